"""Build the notebooks from the scripts: `python tutorials/build.py`, or `python tutorials/build.py 03 04` for some.

Needs the extra `notebooks`. The notebooks hold no times, no paths and no random ids, so that building twice changes
nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from percent import read_cells

HERE = Path(__file__).resolve().parent
MOST_BYTES = 500_000


def main(chosen: list[str]) -> int:
    """Build the notebooks whose names begin as chosen, or all."""
    scripts = [s for s in sorted(HERE.glob("[0-9]*.py")) if not chosen or s.name.startswith(tuple(chosen))]
    if not scripts:
        print(f"no tutorial begins with {' or '.join(chosen)}", file=sys.stderr)
        return 2
    for script in scripts:
        start = time.perf_counter()
        text = build(script)
        script.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        print(f"{script.stem}: {len(text.encode()) / 1000:.0f} kB, {time.perf_counter() - start:.1f} s")
    return 0


def build(script: Path) -> str:
    """Execute a script as a notebook, in its own folder, and return the notebook's JSON.

    Raises ValueError for a notebook that is too large or names a folder of this machine.
    """
    import nbclient
    from nbformat import v4

    os.environ.pop("PICTURES", None)
    new = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    notebook = v4.new_notebook(cells=[new[cell.kind](cell.text) for cell in read_cells(script)])
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(HERE)}}
    )
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
    }
    for place, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{place:02d}", {}
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if len(data) > 1:  # beside a picture or a table
                data["text/plain"] = data["text/plain"][:80]
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    size = len(text.encode())
    if size >= MOST_BYTES:
        raise ValueError(f"{script.name}: expected a notebook below {MOST_BYTES} bytes; found {size}")
    for folder in (HERE.parent, Path.home(), Path(sys.prefix), Path(tempfile.gettempdir())):
        if folder != Path("/") and f"{folder}/" in text:
            raise ValueError(f"{script.name}: the notebook names the folder {folder}")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
