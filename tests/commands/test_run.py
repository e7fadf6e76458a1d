import json
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from blocklab.block.steps import STEPS
from blocklab.cli import main
from blocklab.numerics import round_to
from blocklab.store.trace import load_trace
from goldens import FIXTURES

NAIVE = [step.name for step in STEPS.values() if step.attention != "absorb"]


def run(capsys, *arguments):
    code = main(["run", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_with_no_option_every_step_is_a_line(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line.split()[:1] and line.split()[0] in STEPS] == NAIVE
    assert "deepseek-fp8" in out
    assert "preset kimi-k2-small, synthetic weights, seed 0" in out


def test_text_labels_the_positions(capsys):
    code, out, _ = run(capsys, "--text", "a cat")
    assert code == 0
    assert "tokens   ^ a ␣ c a t" in out


def test_json_has_the_steps_and_their_numbers(capsys):
    code, out, _ = run(
        capsys, "--json", "--tokens", "5", "--batch", "2", "--recipe", "float32", "--attention", "absorb"
    )
    report = json.loads(out)
    assert code == 0
    assert [row["step"] for row in report["steps"]] == [n for n in STEPS if STEPS[n].attention != "naive"]
    assert report["steps"][0]["shape"] == [2, 5, 640]
    assert report["recipe"] == "float32"


def test_a_saved_trace_holds_what_was_run_and_digests_agree(capsys, tmp_path):
    path = tmp_path / "t.safetensors"
    code, out, _ = run(capsys, "--trace", str(path), "--digest", "--json", "--steps", "*,*.in.*", "--text", "abc")
    assert code == 0
    trace = load_trace(path)
    assert trace.digest() == {row["step"]: row["sha256"] for row in json.loads(out)["steps"]}
    assert trace.formats["q"] == "bfloat16"
    assert trace["q.in.codes"].dtype == np.uint8
    assert trace.given["attention_mask"].dtype == bool
    assert json.loads(trace.metadata["labels"]) == ["^", "a", "b", "c"]
    np.testing.assert_array_equal(round_to(trace["act"], "bfloat16"), trace["act"])


def test_globs_choose_steps(capsys):
    _, out, _ = run(capsys, "--json", "--steps", "q*,resid_*")
    names = [row["step"] for row in json.loads(out)["steps"]]
    assert names == ["resid_pre", "q_latent", "q_latent_norm", "q", "q_nope", "q_rot", "resid_mid", "resid_post"]


def test_activations_from_a_file_and_the_output_to_one(capsys, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 640)).astype(np.float32)
    save_file({"input": x}, tmp_path / "x.safetensors")
    np.savez(tmp_path / "x.npz", input=x[None])
    outputs = []
    for name in ("x.safetensors", "x.npz"):
        target = tmp_path / f"{name}.out.safetensors"
        code, _, _ = run(capsys, "--input", str(tmp_path / name), "--output", str(target), "--positions", "1000")
        assert code == 0
        outputs.append(target.read_bytes())
    assert outputs[0] == outputs[1]


def test_positions_move_the_rotation_and_nothing_the_head_can_see(capsys):
    digests = []
    for positions in ("0", "7,8,9,10"):
        _, out, _ = run(capsys, "--tokens", "4", "--json", "--digest", "--positions", positions)
        digests.append({row["step"]: row["sha256"] for row in json.loads(out)["steps"]})
    assert digests[0]["q"] == digests[1]["q"]
    assert digests[0]["q_rot"] != digests[1]["q_rot"]


def test_a_checkpoint_written_by_synth_runs_like_its_preset(capsys, tmp_path):
    assert main(["synth", str(tmp_path / "k2"), "--shards", "3", "--seed", "5"]) == 0
    capsys.readouterr()
    reports = []
    for source in (["--preset", "kimi-k2-small"], ["--checkpoint", str(tmp_path / "k2")]):
        code, out, _ = run(capsys, *source, "--seed", "5", "--text", "the cat", "--json", "--digest")
        assert code == 0
        reports.append([row["sha256"] for row in json.loads(out)["steps"]])
    assert reports[0] == reports[1]


def test_token_ids(capsys, tmp_path):
    main(["synth", str(tmp_path / "k2")])
    code, out, _ = run(capsys, "--checkpoint", str(tmp_path / "k2"), "--token-ids", "1,255,0")
    assert code == 0
    assert "3 token ids" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipe", "fp8"], "no recipe 'fp8'; there are float64"),
        (["--recipe", "float32,scale"], "recipe option 'scale': expected option=value"),
        (["--recipe", "float32,scales=1"], "has no option scales"),
        (["--recipe", "float32,work=float16"], "work must be one of float64, float32; found 'float16'"),
        (["--recipe", "deepseek-fp8,group=0"], "group must be"),
        (["--recipe", "hopper-fp8,promote=48"], "expected promote in multiples of 32"),
        (["--recipe", "deepseek-fp8,group=64,group=32"], "recipe option 'group=32': given twice"),
        (["--recipe", "float32,name=mine"], "recipe option 'name=mine': a name is no option"),
        (["--preset", "kimi"], "invalid choice: 'kimi'"),
        (["--tokens", "0"], "batch and tokens must be at least 1; found 1 and 0"),
        (["--batch", "-2"], "found -2 and 16"),
        (["--tokens", "many"], "invalid int value: 'many'"),
        (["--text", "a", "--tokens", "3"], "--tokens is for the seeded input"),
        (["--text", ""], "text: expected at least one byte"),
        (["--token-ids", "1,x"], "token ids: expected integers"),
        (["--token-ids", "256"], "bytes 0 to 255; found 256"),
        (["--token-ids", "1," + "9" * 30], "token ids: expected numbers below 2^31; found 999"),
        (["--positions", "-1"], "positions: expected 0 to"),
        (["--positions", "1,2"], "positions: expected a start or 16 positions; found 2"),
        (["--positions", "a"], "positions: expected a start or a list of integers"),
        (["--seed", "-1"], "seed: expected 0 or more"),
        (["--steps", "keys"], "no step matches 'keys'"),
        (["--steps", "kv_up,v", "--attention", "absorb"], "none of them is computed in deepseek-fp8, absorb attention"),
        (["--steps", "gate.in.*", "--recipe", "float32"], "none of them is computed in float32"),
        (["--checkpoint", "nowhere"], "nowhere"),
        (["--input", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--trace", "nowhere/t.safetensors", "--tokens", "1"], "nowhere/t.safetensors: cannot be written"),
        (["--trace", "t.npz"], "t.npz: expected a file name that ends in .safetensors"),
        (["--output", "y.npy"], "y.npy: expected a file name that ends in .safetensors"),
        (["--trace", "t", "--output", "./t"], "t: expected a file for each output, found one for two"),
        (["--layer", "3"], "--layer is for a checkpoint"),
        (["--layer", "3", "--checkpoint", str(FIXTURES / "checkpoints" / "kimi-f32")], "layer"),
        (["--checkpoint", str(FIXTURES / "checkpoints" / "kimi-f32")], "expected an FP8 weight with block scales"),
        (["--checkpoint", str(FIXTURES / "checkpoints" / "kimi-f32"), "--text", "a"], "pass token ids"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, arguments, words):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("shape", [(2, 3, 639), (640,), (0, 640)])
def test_an_input_of_the_wrong_shape(capsys, tmp_path, shape):
    save_file({"input": np.ones(shape, np.float32)}, tmp_path / "x.safetensors")
    code, _, err = run(capsys, "--input", str(tmp_path / "x.safetensors"))
    assert code == 2
    assert f"x.safetensors: input: expected floats [B, T, 640]; found float32 {list(shape)}" in err


def test_a_nan_in_the_input_is_named_by_its_place(capsys, tmp_path):
    x = np.ones((1, 3, 640), np.float32)
    x[0, 2, 7] = np.nan
    save_file({"input": x}, tmp_path / "x.safetensors")
    code, _, err = run(capsys, "--input", str(tmp_path / "x.safetensors"))
    assert code == 2
    assert "input[0, 2, 7]: expected finite values that float32 holds; found nan" in err


def test_an_input_file_without_an_input(capsys, tmp_path):
    save_file({"x": np.ones((1, 3, 640), np.float32)}, tmp_path / "x.safetensors")
    code, _, err = run(capsys, "--input", str(tmp_path / "x.safetensors"))
    assert code == 2
    assert "expected an array named input (or resid_pre); found x" in err


def test_where_the_system_does_not_count_memory_none_is_told(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    code, out, _ = run(capsys, "--steps", "resid_post")
    assert code == 0
    assert "peak memory" not in out
    code, out, _ = run(capsys, "--steps", "resid_post", "--json")
    assert json.loads(out)["peak_bytes"] is None
