import pytest

from blocklab.cli import main
from blocklab.commands import step

RUN = ["--text", "the cat", "--token", "3"]


def test_in_a_pipe_it_prints_every_step_and_asks_nothing(capsys):
    assert main(["step", *RUN]) == 0
    out = capsys.readouterr().out
    assert out.count("\nformula ") == 27
    assert "step 27 of 27" in out
    assert "[Enter]" not in out
    assert "query 3 looks at key 2 'h'" in out


def test_some_steps(capsys):
    assert main(["step", *RUN, "--steps", "attn_norm,pattern"]) == 0
    assert capsys.readouterr().out.count("\nformula ") == 2


def test_a_saved_trace_gives_the_same_text(capsys, tmp_path):
    path = str(tmp_path / "a.safetensors")
    assert main(["run", "--text", "the cat", "--trace", path, "--steps", "*,*.in.*"]) == 0
    capsys.readouterr()
    assert main(["step", "--trace", path, "--token", "3"]) == 0
    saved = capsys.readouterr().out
    assert main(["step", *RUN]) == 0
    assert saved == capsys.readouterr().out


def test_in_a_terminal_it_walks(capsys, monkeypatch):
    answers = iter(["mlp_out", "b", "q"])
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(step.sys, stream), "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert main(["step", *RUN]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " of 27" in line]
    assert shown == ["resid_pre", "mlp_out", "act"]


def test_absorbed_attention_has_its_own_steps(capsys):
    assert main(["step", *RUN, "--attention", "absorb", "--steps", "q_absorbed,z_latent"]) == 0
    assert "W^UK_h" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--token", "99"], "token: expected 0 to 15; found 99"),
        (["--steps", "nothing"], "no step matches 'nothing'"),
        (["--steps", "q_absorbed"], "the trace has none that match 'q_absorbed'"),
        (["--trace", "missing.safetensors"], "missing.safetensors"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert main(["step", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
