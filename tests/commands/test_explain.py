import json

import pytest

from blocklab.cli import main
from blocklab.store.trace_file import load_tensors, save_tensors
from goldens import FIXTURES

TEXT = ["--text", "the cat sat on the mat"]


def test_text_and_json_agree(capsys):
    assert main(["explain", "mlp_out", "0,7,3", *TEXT]) == 0
    text = capsys.readouterr().out
    assert main(["explain", "mlp_out", "0,7,3", *TEXT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert text.startswith("mlp_out[B 0, T 7, D 3] = ")
    assert repr(found["traced"]) in text
    assert found["matches"] is True
    assert found["verdict"] in text
    (groups,) = found["tables"].values()
    assert len(groups) == 12


def test_the_softmax_scale_and_why(capsys):
    assert main(["explain", "attn_scores", "0,1,7,1", *TEXT]) == 0
    out = capsys.readouterr().out
    assert "0.1 x 1 x ln 32 + 1" in out
    assert "160^-1/2" in out
    assert "0.143350824" in out


def test_a_saved_trace_knows_its_own_block(capsys, tmp_path):
    path = str(tmp_path / "a.safetensors")
    checkpoint = ["--checkpoint", str(FIXTURES / "checkpoints" / "kimi-fp8")]
    assert main(["run", *checkpoint, "--tokens", "5", "--recipe", "hopper-fp8", "--trace", path]) == 0
    capsys.readouterr()
    for step, index in (("q_rot", "0,4,1,9"), ("gate", "0,2,7"), ("kv_latent_norm", "0,0,0")):
        assert main(["explain", step, index, "--trace", path]) == 0
        assert "matches the traced value to the bit" in capsys.readouterr().out
    assert main(["explain", "gate", "0,2,7", "--trace", path, "--preset", "kimi-k2-small"]) == 2
    assert "of another block than these weights" in capsys.readouterr().err


def test_a_value_that_does_not_come_about_so_is_exit_code_1(capsys, tmp_path):
    path, wrong = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    assert main(["run", *TEXT, "--trace", str(path)]) == 0
    file = load_tensors(path)
    arrays = {name: array.copy() for name, array in file.arrays.items()}
    arrays["up"][0, 3, 5] *= 2
    save_tensors(wrong, arrays, file.formats, file.metadata)
    capsys.readouterr()
    assert main(["explain", "up", "0,3,5", "--trace", str(wrong)]) == 1
    assert "does not match" in capsys.readouterr().out
    assert main(["explain", "act", "0,3,5", "--trace", str(wrong)]) == 1
    assert main(["explain", "act", "0,3,6", "--trace", str(wrong)]) == 0


def test_a_number_of_another_program(capsys):
    dump = str(FIXTURES / "dumps" / "deepseek-fp8.safetensors")
    checkpoint = ["--checkpoint", str(FIXTURES / "checkpoints" / "kimi-fp8")]
    assert main(["explain", "mlp_norm", "0,3,5", "--trace", dump, *checkpoint]) == 2
    assert "computed from resid_mid, which the trace does not have" in capsys.readouterr().err
    assert main(["explain", "gate", "0,3,5", "--trace", dump, *checkpoint]) == 0
    assert "matches the traced value to the bit" in capsys.readouterr().out
    dump = str(FIXTURES / "dumps" / "kimi-bf16.safetensors")
    assert main(["explain", "gate", "0,3,5", "--trace", dump]) == 2
    assert "for a dump with other names, say of which block" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q_latent", "0,99,3"], "expected 3 indices below B 1, T 16, Q 384; found 0,99,3"),
        (["q_latent", "0,5,-1"], "expected 3 indices"),
        (["q_latent", "x"], "expected an index such as 0,5,3; found 'x'"),
        (["q_latents", "0,0,0"], "no step 'q_latents'"),
        (["q_latent"], "INDEX"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert main(["explain", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
