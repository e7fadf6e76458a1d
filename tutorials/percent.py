"""Read the percent format: a script whose cells begin with `# %%`, or `# %% [markdown]` for text in comments."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


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
            text = _uncomment(text, path)
        if kind:
            cells.append(Cell(kind, text))
        elif text:
            raise ValueError(f"{path}: expected `# %%` before the first line; found {text.splitlines()[0]!r}")
        kinds = {"# %%": "code", "# %% [markdown]": "markdown"}
        if line.rstrip() not in kinds:
            raise ValueError(f"{path}: expected a cell `# %%` or `# %% [markdown]`; found {line!r}")
        kind, lines = kinds[line.rstrip()], []
    return cells


def _uncomment(text: str, path: str | Path) -> str:
    lines = text.splitlines()
    for line in lines:
        if not (line.startswith("# ") or line == "#"):
            raise ValueError(f"{path}: expected every line of a text cell to begin with `# `; found {line!r}")
    return "\n".join(line[2:] for line in lines)
