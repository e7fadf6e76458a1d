import json

import pytest

from blocklab.cli import main


def test_the_published_layout(capsys, tmp_path):
    assert main(["synth", str(tmp_path / "k2"), "--shards", "2"]) == 0
    assert "kimi-k2-small, fp8, 2 files" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "k2").iterdir())
    assert names == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    index = json.loads((tmp_path / "k2" / "model.safetensors.index.json").read_text())
    assert "model.layers.0.mlp.up_proj.weight_scale_inv" in index["weight_map"]
    assert json.loads((tmp_path / "k2" / "config.json").read_text())["kv_lora_rank"] == 256


def test_a_bfloat16_checkpoint_runs(capsys, tmp_path):
    assert main(["synth", str(tmp_path / "k2"), "--dtype", "bfloat16"]) == 0
    assert main(["run", "--checkpoint", str(tmp_path / "k2"), "--recipe", "bfloat16", "--text", "abc"]) == 0


def test_equal_seeds_write_equal_bytes(tmp_path, capsys):
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        main(["synth", str(tmp_path / name), "--seed", seed])
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "-1"], "seed: expected 0 or more"),
        (["--shards", "0"], "shards: expected 1 to"),
        (["--shards", "99"], "found 99"),
        (["--dtype", "fp4"], "invalid choice: 'fp4'"),
    ],
)
def test_bad_options_leave_nothing_behind(capsys, tmp_path, arguments, words):
    assert main(["synth", str(tmp_path / "k2"), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "k2").exists()


def test_nothing_is_overwritten(capsys, tmp_path):
    (tmp_path / "precious").write_text("mine")
    assert main(["synth", str(tmp_path)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
