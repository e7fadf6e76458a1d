import json

import pytest

from blocklab.cli import main
from goldens import FIXTURES


def report(capsys, *arguments):
    assert main(["params", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_kimi_k2_from_the_preset(capsys):
    numbers = report(capsys)
    assert numbers["total"]["parameters"] == 497_500_160
    assert numbers["attention"]["parameters"] == 101_124_096
    assert numbers["mlp"] == {"parameters": 396_361_728, "bytes": 378 * 2**20}
    assert numbers["norms"] == {"parameters": 14_336, "bytes": 28 * 2**10}
    assert numbers["softmax_scale"] == 0.13086079996295005
    assert numbers["yarn_correction_range"] == [19, 20]
    assert numbers["components"][1] == {
        "name": "self_attn.q_a_proj.weight",
        "shape": [1536, 7168],
        "dtype": "e4m3fn",
        "parameters": 11_010_048,
        "bytes": 11_010_048,
    }


def test_the_table_shows_the_shares(capsys):
    main(["params", "--cache"])
    out = capsys.readouterr().out
    for text in ("497,500,160", "20.3%", "79.7%", "474.5 MiB", "96.4 MiB", "378.0 MiB", "28.0 KiB", "576", "20,480"):
        assert text in out


def test_a_synthesised_checkpoint_counts_like_its_preset(capsys, tmp_path):
    main(["synth", str(tmp_path / "small"), "--shards", "2"])
    capsys.readouterr()
    assert report(capsys, "--checkpoint", str(tmp_path / "small")) == report(capsys, "--preset", "kimi-k2-small")


@pytest.mark.slow
def test_full_size_checkpoints_headers(capsys, tmp_path):
    main(["synth", str(tmp_path / "k2"), "--preset", "kimi-k2"])
    capsys.readouterr()
    numbers = report(capsys, "--checkpoint", str(tmp_path / "k2"))
    assert numbers["total"] == report(capsys)["total"]
    assert numbers["total"]["parameters"] == 497_500_160


def test_bytes_follow_the_stored_format(capsys):
    numbers = report(capsys, "--checkpoint", str(FIXTURES / "checkpoints" / "v2lite-bf16"))
    assert numbers["total"]["bytes"] == 2 * numbers["total"]["parameters"]
    assert [c["name"] for c in numbers["components"]][1] == "self_attn.q_proj.weight"


def test_a_missing_checkpoint(capsys, tmp_path):
    assert main(["params", "--checkpoint", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_a_layer_is_for_a_checkpoint(capsys):
    assert main(["params", "--layer", "1"]) == 2
    assert capsys.readouterr().err == "--layer is for a checkpoint; a preset has one block\n"
