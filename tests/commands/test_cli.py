import subprocess
import sys

import pytest

from blocklab.cli import main
from blocklab.commands import COMMANDS

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
