"""Every tutorial runs from any folder, and its notebook is the same tutorial, executed."""

import base64
import json
import math
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import find, judge
from percent import read_cells

from blocklab.numerics import round_to

TUTORIALS = Path(__file__).parents[2] / "tutorials"
SCRIPTS = sorted(TUTORIALS.glob("[0-9]*.py"))
NAMES = [script.stem for script in SCRIPTS]

tutorial = pytest.mark.parametrize("script", SCRIPTS, ids=NAMES)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return a function that runs a script, once, in an empty folder, with warnings as errors: what it prints."""
    texts = {}

    def run(script):
        if script not in texts:
            folder = tmp_path_factory.mktemp(script.stem)
            environment = {k: v for k, v in os.environ.items() if k not in ("MPLBACKEND", "PICTURES", "DISPLAY")}
            done = subprocess.run(
                [sys.executable, "-W", "error", str(script)],
                cwd=folder,
                env=environment | {"PYTHONIOENCODING": "utf-8"},
                capture_output=True,
                encoding="utf-8",
                timeout=120,
            )
            assert done.returncode == 0, done.stderr[-2000:]
            assert done.stderr == ""
            assert list(folder.iterdir()) == []
            texts[script] = done.stdout
        return texts[script]

    return run


def notebook_of(script):
    return json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))


def exercises_of(script):
    return re.findall(r'^check\("([\d.]+)", (\w+)\)$', script.read_text(encoding="utf-8"), re.M)


@tutorial
def test_the_notebook_has_the_cells_of_the_script(script):
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook_of(script)["cells"]]
    assert found == read_cells(script)


@tutorial
def test_the_notebook_shows_what_the_script_prints(script, printed):
    shown = [
        "".join(output["text"])
        for cell in notebook_of(script)["cells"]
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream"
    ]
    assert "".join(shown) == printed(script)


@tutorial
def test_the_notebook_is_executed_and_small_and_names_no_machine(script):
    path = script.with_suffix(".ipynb")
    assert path.stat().st_size < 500_000
    code = [cell for cell in notebook_of(script)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2
    for picture in pictures:
        width, height = struct.unpack(">II", base64.b64decode(picture)[16:24])
        assert 300 <= width <= 1200
        assert 200 <= height <= 1000
    text = re.sub(r'"image/png": "[^"]*"', "", path.read_text(encoding="utf-8"))
    assert not re.search(
        r"(?<![\w.:/])/(work|home|root|tmp|usr|opt|Users|var)/|[A-Z]:\\\\|ipykernel_|site-packages", text
    )


@tutorial
def test_each_exercise_is_shipped_unsolved_and_says_so(script, printed):
    exercises = exercises_of(script)
    assert 2 <= len(exercises) <= 4
    said = [line for line in printed(script).splitlines() if line.startswith("Exercise ")]
    assert said == [f"Exercise {number}, {name}: not solved yet." for number, name in exercises]


@tutorial
def test_each_exercise_says_how_long_and_how_hard_and_has_its_solution_folded_below(script):
    text = script.read_text(encoding="utf-8")
    numbers = [number for number, _ in exercises_of(script)]
    assert re.findall(r"^# \*\*([\d.]+)\*\* \(\d+ minutes, (?:easy|medium|hard)\) ", text, re.M) == numbers
    assert re.findall(r'^check\("([\d.]+)", \w+\)\n\n# %% \[markdown\]\n# <!-- fold \1 -->$', text, re.M) == numbers
    for number in numbers:
        shown = [cell.text for cell in read_cells(script) if f"<summary>A solution for {number}</summary>" in cell.text]
        assert len(shown) == 1
        namespace = {"np": np, "math": math, "round_to": round_to}
        exec(re.search(rf"solution for {number}</summary>\n\n```python\n(.*?)```", shown[0], re.S)[1], namespace)
        assert judge(find(number), namespace[find(number).name]).state == "solved"


@tutorial
def test_links_lead_somewhere(script):
    text = "\n".join(cell.text for cell in read_cells(script) if cell.kind == "markdown")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert any(link.startswith("https://arxiv.org/") for link in links)
    assert any(link.startswith("../blocklab/") for link in links)
    assert [link for link in links if "://" not in link and not (TUTORIALS / link).exists()] == []


def test_the_syllabus_lists_every_tutorial():
    text = (TUTORIALS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \d+ \| \[.*?\]\((.*?)\.ipynb\)", text, re.M) == NAMES
    for folder in ("exercises", "solutions"):
        assert sorted(file.stem for file in (TUTORIALS / folder).glob("[0-9]*.py")) == NAMES


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n# %%\n", "before the first line"),
        ("# %% [raw]\n", "expected a cell"),
        ("# %% [markdown]\nx = 1\n", "text cell"),
        ("# %% a title\nx = 1\n", "expected a cell"),
    ],
)
def test_percent_format_is_read_strictly(tmp_path, text, complaint):
    (tmp_path / "t.py").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_cells(tmp_path / "t.py")
