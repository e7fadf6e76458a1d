"""`--device gpu` without a GPU says so in one line."""

import sys
import types

import pytest

from blocklab.cli import main


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (None, "cupy is not installed"),
        (types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False)), "no CUDA device"),
    ],
)
def test_one_line_and_exit_code_2(monkeypatch, capsys, module, message):
    monkeypatch.setitem(sys.modules, "cupy", module)
    assert main(["run", "--device", "gpu"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
