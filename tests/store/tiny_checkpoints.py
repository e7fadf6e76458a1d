"""Tiny checkpoints made on the fly: every size different, short last blocks, scales that differ by powers of two."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.weights import weight_shapes
from blocklab.numerics import encode
from blocklab.store.writing import Source, source

SETTINGS: dict[str, Any] = {
    **{"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_key_value_heads": 3},
    **{"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 10},
    **{"rms_norm_eps": 1e-6, "rope_theta": 50000.0, "rope_scaling": None, "vocab_size": 30},
    **{"num_hidden_layers": 4, "n_routed_experts": 8, "first_k_dense_replace": 2},
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 16]},
}
PREFIX = "model.layers.0."
STORED = {"fp8": "F8_E4M3", "bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def tensors(dtype: str = "fp8", prefix: str = PREFIX, settings: dict[str, Any] = SETTINGS) -> dict[str, Source]:
    """Return seeded tensors of one layer, and embed_tokens."""
    rng = np.random.default_rng(5)
    found = {}
    for name, shape in weight_shapes(BlockConfig.from_dict(settings)).items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if dtype == "fp8" and len(shape) == 2:
            grid = tuple(-(-n // 16) for n in shape)
            found[prefix + name] = source("F8_E4M3", encode(values, "e4m3fn"))
            scales = np.ldexp(np.float32(1), rng.integers(-6, 6, grid)).astype(np.float32)
            found[prefix + name + "_scale_inv"] = source("F32", scales)
        else:
            found[prefix + name] = stored(values, "bfloat16" if dtype == "fp8" else dtype)
    embedding = rng.standard_normal((settings["vocab_size"], settings["hidden_size"]), dtype=np.float32)
    found[prefix.partition("layers.")[0] + "embed_tokens.weight"] = stored(embedding, "bfloat16")
    return found


def stored(values: np.ndarray, dtype: str) -> Source:
    array = encode(values, "bfloat16") if dtype == "bfloat16" else values.astype(dtype)
    return source(STORED[dtype], array)


def edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    content = json.loads(path.read_text())
    change(content["weight_map"])
    path.write_text(json.dumps(content))
