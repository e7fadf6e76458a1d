"""Read the percent format: a script whose cells begin with `# %%`, or `# %% [markdown]` for text in comments.

A line `<!-- fold 3.2 -->` in a text cell stands for the hint and the solution of an exercise: notebooks show them
folded, and the script, which cannot fold, does not show them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from checks import find

HERE = Path(__file__).resolve().parent


class Cell(NamedTuple):
    """One cell: kind is "code" or "markdown"; the text is what a notebook shows."""

    kind: str
    text: str


def read_cells(path: str | Path) -> list[Cell]:
    """Return the cells of a script in percent format.

    Raises ValueError for text before the first cell, for another kind of cell, and for code in a text cell.
    """
    cells: list[Cell] = []
    kind, lines = "", []
    for line in [*Path(path).read_text(encoding="utf-8").splitlines(), "# %%"]:
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        text = "\n".join(lines).strip("\n")
        if kind == "markdown":
            text = re.sub(r"<!-- fold ([\d.]+) -->", lambda found: folded(found[1]), _uncomment(text, path))
        if kind:
            cells.append(Cell(kind, text))
        elif text:
            raise ValueError(f"{path}: expected `# %%` before the first line; found {text.splitlines()[0]!r}")
        kinds = {"# %%": "code", "# %% [markdown]": "markdown"}
        if line.rstrip() not in kinds:
            raise ValueError(f"{path}: expected a cell `# %%` or `# %% [markdown]`; found {line!r}")
        kind, lines = kinds[line.rstrip()], []
    return cells


def folded(number: str) -> str:
    """Return the hint and the solution of an exercise as Markdown that is folded away until somebody opens it."""
    hint = find(number).hint.replace("*", r"\*")
    parts = {"A hint": hint, "A solution": f"```python\n{solution(number)}\n```"}
    return "\n\n".join(
        f"<details><summary>{title} for {number}</summary>\n\n{text}\n\n</details>" for title, text in parts.items()
    )


def solution(number: str) -> str:
    """Return the source of an exercise's solution, with the functions of its own that it calls before it."""
    (file,) = (HERE / "solutions").glob(f"{number.partition('.')[0].zfill(2)}_*.py")
    source = file.read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}

    def with_helpers(name: str) -> list[str]:
        called = [node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)]
        below = [text for other in functions if other in called and other != name for text in with_helpers(other)]
        return [*below, ast.get_source_segment(source, functions[name]) or ""]

    return "\n\n\n".join(with_helpers(find(number).name))


def _uncomment(text: str, path: str | Path) -> str:
    lines = text.splitlines()
    for line in lines:
        if not (line.startswith("# ") or line == "#"):
            raise ValueError(f"{path}: expected every line of a text cell to begin with `# `; found {line!r}")
    return "\n".join(line[2:] for line in lines)
