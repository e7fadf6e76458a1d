import json
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from blocklab.cli import main
from blocklab.commands import COMMANDS
from blocklab.json_file import json_text

NAMES = [command.__name__.rpartition(".")[2] for command in COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(capsys, name):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"blocklab {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["run", "--fast"], ["synth"], ["run", "--tokens=" + "9" * 5000], ["sweep", "--seeds="]],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capsys, arguments):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("blocklab")
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["run", "--input=--"], ["sweep", "--recipe=--"], ["sweep", "--vary=--"]])
def test_dashes_for_a_value(capsys, arguments):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"{arguments[1][:-3]}: expected a value; found --\n"


def test_python_m_blocklab_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "blocklab", "params", "--json"], capture_output=True, text=True)
    assert done.returncode == 0
    assert '"parameters": 497500160' in done.stdout


def test_a_closed_pipe_is_no_traceback():
    command = f"{sys.executable} -m blocklab run | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("blocklab")
    assert done.stderr == ""


def test_the_public_names_are_there_and_no_picture_is_drawn_before_it_is_asked_for():
    program = (
        "import sys; from blocklab import *;"
        "print(validate.__name__, compare.__name__, trace.__name__, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["validate", "compare", "trace", "False"], done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--checkpoint="],
        ["run", "--trace="],
        ["run", "--output="],
        ["run", "--positions="],
        ["params", "--checkpoint="],
        ["sweep", "--table="],
        ["sweep", "--output="],
        ["explore", "--against="],
        ["step", "--trace="],
        ["plot", "t", "q", "--output=a.png", "--kind="],
    ],
)
def test_nothing_for_a_value(capsys, arguments):
    assert main(arguments) == 2
    name = arguments[-1][2:-1]
    err = capsys.readouterr().err
    assert f"{name}: expected a value; found nothing" in err or "invalid choice: ''" in err
    assert err.count("\n") == 1


RUN_OPTIONS = ["--input=nofile", "--tokens=3", "--positions=zzz", "--attention=absorb", "--recipe=zzz", "--seed=3"]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["step"], RUN_OPTIONS),
        (["explore"], RUN_OPTIONS),
        (["explain", "q_latent", "0,0,0"], RUN_OPTIONS[:4]),
    ],
)
def test_options_of_a_run_are_refused_beside_a_saved_trace(tmp_path, capsys, command, options):
    path = str(tmp_path / "t.safetensors")
    assert main(["run", "--tokens=2", "--trace", path]) == 0
    for option in options:
        capsys.readouterr()
        assert main([*command, "--trace", path, option]) == 2
        assert (
            f"{option.partition('=')[0]} is for a new run; --trace shows one that is saved" in capsys.readouterr().err
        )
    for option in ("--preset=kimi-k2", "--checkpoint=nodir", "--layer=0"):
        assert main([*command, "--trace", path, option]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens=2", "--batch=0"], "batch and tokens must be at least 1; found 0 and 2"),
        (["--tokens=4,0"], "batch and tokens must be at least 1; found 1 and 0"),
        (["--positions=-1"], "positions: expected 0 to 2147483647; found -1"),
        (["--tokens=2,3", "--positions=5,6"], "positions: expected a start or 3 positions; found 2"),
        (["--seeds=0,0"], "sweep: expected each seed once; found 0, 0"),
        (["--tokens=2,2"], "sweep: expected each length once; found 2, 2"),
        (["--recipe=float32", "--recipe=float32"], "sweep: expected each recipe once; found float32, float32"),
    ],
)
def test_a_sweep_of_which_no_case_can_be_right_is_refused_at_once(capsys, arguments, words):
    assert main(["sweep", *arguments]) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert not out


def test_an_input_is_not_overwritten(tmp_path, capsys):
    path, checkpoint = tmp_path / "t.safetensors", tmp_path / "k2"
    assert main(["synth", str(checkpoint)]) == 0
    assert main(["run", "--tokens=2", "--trace", str(path)]) == 0
    weights = next(checkpoint.glob("*.safetensors"))
    before = path.read_bytes(), weights.read_bytes()
    for words in (
        ["run", "--input", str(path), "--trace", str(path)],
        ["run", "--checkpoint", str(checkpoint), "--tokens=2", "--output", str(weights)],
        ["explore", "--trace", str(path), "-o", str(path)],
        ["sweep", "--input", str(path), "--table", str(path)],
    ):
        capsys.readouterr()
        assert main(words) == 2
        assert "expected another file to write; this one is read, too" in capsys.readouterr().err
    assert before == (path.read_bytes(), weights.read_bytes())


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize(
    "words", [["--recipe=float64", "--steps=attn_out,resid_post"], ["--recipe=bfloat16", "--steps=resid_pre,z"]]
)
def test_a_sweep_whose_errors_are_zero_is_drawn(tmp_path, ending, words):
    path = tmp_path / f"s.{ending}"
    assert main(["sweep", "--tokens=1", *words, "-o", str(path)]) == 0
    assert path.stat().st_size > 1000


def test_a_closed_stdin_answers_nothing(tmp_path):
    done = subprocess.run(
        ["bash", "-c", '"$0" -m blocklab step --tokens 1 --steps z 0<&-', sys.executable],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_is_not_utf8_stands_in_a_table(tmp_path):
    checkpoint, table = os.fsdecode(os.fsencode(str(tmp_path)) + b"/x\xff"), tmp_path / "t.csv"
    assert main(["synth", checkpoint]) == 0
    assert main(["sweep", "--checkpoint", checkpoint, "--tokens=1", "--recipe=float32", "--table", str(table)]) == 0
    assert "/x\\udcff," in table.read_text()


def test_json_has_no_nan():
    text = json_text({"a": [math.nan, (1.0, -math.inf)], "b": {"c": np.float64("inf")}, "d": True, "e": "NaN"})
    assert json.loads(text) == {"a": [None, [1.0, None]], "b": {"c": None}, "d": True, "e": "NaN"}


def test_overflow_in_a_command_is_no_warning_of_numpys(capsys, monkeypatch):
    def spoiled(options):
        return int(np.float64(1e308) * np.array(10.0) == np.inf) - 1

    monkeypatch.setattr("blocklab.commands.mistakes.run", spoiled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["mistakes"]) == 0
