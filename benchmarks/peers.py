"""Those that blocklab is measured beside, where they are installed: torch and transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

TORCH = importlib.util.find_spec("torch") is not None
TRANSFORMERS = TORCH and importlib.util.find_spec("transformers") is not None


def torch_products(matrices: Mapping[str, np.ndarray], heads: int, widths: tuple[int, int], T: int) -> Callable:
    """Return a call that computes the products of `blocks.bare_products` by torch, in float32."""
    import torch

    shared = [torch.from_numpy(w) for w in matrices.values()]
    inputs = [torch.randn(T, w.shape[1]) for w in shared]
    q, k = torch.randn(heads, T, widths[0]), torch.randn(heads, widths[0], T)
    p, v = torch.rand(heads, T, T), torch.randn(heads, T, widths[1])

    @torch.inference_mode()
    def call() -> None:
        for w, x in zip(shared, inputs, strict=True):
            torch.nn.functional.linear(x, w)
        q @ k
        p @ v

    return call


def transformers_layer(folder: Path, state: Mapping[str, Any], x: np.ndarray, dtype: str) -> Callable[[], Any]:
    """Return a call of transformers' DeepseekV3DecoderLayer with weights `state` on x [1, T, D], causal."""
    import json

    import torch
    from transformers.models.deepseek_v3 import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as peer

    stored = json.loads((folder / "config.json").read_text())
    own = {"model_type", "architectures", "torch_dtype", "quantization_config"}
    config = DeepseekV3Config(**{key: value for key, value in stored.items() if key not in own})
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        layer = peer.DeepseekV3DecoderLayer(config, 0)
    layer.load_state_dict(dict(state), assign=True)
    layer.eval()
    hidden = torch.from_numpy(x).to(getattr(torch, dtype))
    T = x.shape[1]
    positions = torch.arange(T)[None]
    mask = torch.full((1, 1, T, T), torch.finfo(hidden.dtype).min, dtype=hidden.dtype).triu(1)
    rotary = peer.DeepseekV3RotaryEmbedding(config)(hidden, positions)

    @torch.inference_mode()
    def call() -> Any:
        y = layer(hidden, attention_mask=mask, position_ids=positions, position_embeddings=rotary)
        return y[0] if isinstance(y, tuple) else y

    return call


def dequantised_state(folder: Path, dtype: str, layer: int = 0) -> dict[str, Any]:
    """Return the weights of a layer as torch tensors in `dtype`, one tensor after the other."""
    import torch
    from safetensors import safe_open

    prefix, state = f"model.layers.{layer}.", {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            names = set(tensors.keys())
            for name in sorted(n for n in names if n.startswith(prefix)):
                if name.endswith(("weight_scale_inv", "inv_freq")):
                    continue
                value = tensors.get_tensor(name)
                if value.dtype == torch.float8_e4m3fn:
                    scale = tensors.get_tensor(name + "_scale_inv")
                    value = value.float()
                    for i, row in enumerate(scale):
                        band = value[128 * i : 128 * (i + 1)]
                        band *= row.repeat_interleave(128)[: value.shape[1]]
                state[name[len(prefix) :]] = value.to(getattr(torch, dtype))
    return state
