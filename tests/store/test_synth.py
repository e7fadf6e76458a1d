from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from blocklab.block.config import BlockConfig
from blocklab.errors import InputError
from blocklab.store.checkpoint import embedding_rows, load_weights
from blocklab.store.synth_checkpoint import write_synthetic
from blocklab.synth.weights import synthetic_embedding, synthetic_weights


@pytest.mark.parametrize("dtype", ["fp8", "bfloat16"])
@pytest.mark.parametrize("shards", [1, 2])
def test_what_is_written_is_what_is_made_in_memory(tmp_path: Path, dtype: str, shards: int) -> None:
    folder = tmp_path / "k2"
    size = write_synthetic(folder, "kimi-k2-small", dtype, seed=3, shards=shards)
    config = BlockConfig.preset("kimi-k2-small")
    expected, embedding = synthetic_weights(config, 3, dtype).named(), synthetic_embedding(config, 3)
    found = load_weights(folder)
    assert found.named().keys() == expected.keys()
    for name, weight in found.named().items():
        assert weight.format == expected[name].format
        assert weight.block == expected[name].block
        np.testing.assert_array_equal(weight.raw, expected[name].raw)
        if weight.scale is not None:
            np.testing.assert_array_equal(weight.scale, expected[name].scale)
    assert size == sum(w.nbytes for w in expected.values()) + embedding.nbytes
    np.testing.assert_array_equal(embedding_rows(folder, np.arange(256)), embedding.values())


def test_config_describes_what_is_there(tmp_path: Path) -> None:
    write_synthetic(tmp_path / "fp8", "kimi-k2-small")
    write_synthetic(tmp_path / "bf16", "kimi-k2-small", "bfloat16")
    fp8, bf16 = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("fp8", "bf16"))
    assert fp8.pop("quantization_config")["weight_block_size"] == [128, 128]
    assert fp8 == bf16
    assert (fp8["num_hidden_layers"], fp8["vocab_size"]) == (1, 256)
    with pytest.raises(InputError, match="layer 1: expected 0 to 0"):
        load_weights(tmp_path / "fp8", 1)


def test_unknown_preset_and_dtype(tmp_path: Path) -> None:
    for preset, dtype in (("kimi-k3", "fp8"), ("kimi-k2-small", "int4")):
        with pytest.raises(InputError, match=r"no preset 'kimi-k3'|dtype must be fp8 or bfloat16; found 'int4'"):
            write_synthetic(tmp_path / "k2", preset, dtype)
    assert list(tmp_path.iterdir()) == []
