"""Whether the tensors of a layer have the shapes and dtypes that config.json calls for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from blocklab.block.config import BlockConfig
from blocklab.block.weights import weight_shapes
from blocklab.errors import InputError, shown
from blocklab.store.safetensors_file import Stored

_QUERY = "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)"

AXES: Mapping[str, tuple[str, ...]] = {
    "input_layernorm.weight": ("hidden_size",),
    "self_attn.q_proj.weight": (_QUERY, "hidden_size"),
    "self_attn.q_a_proj.weight": ("q_lora_rank", "hidden_size"),
    "self_attn.q_a_layernorm.weight": ("q_lora_rank",),
    "self_attn.q_b_proj.weight": (_QUERY, "q_lora_rank"),
    "self_attn.kv_a_proj_with_mqa.weight": ("kv_lora_rank + qk_rope_head_dim", "hidden_size"),
    "self_attn.kv_a_layernorm.weight": ("kv_lora_rank",),
    "self_attn.kv_b_proj.weight": ("num_attention_heads * (qk_nope_head_dim + v_head_dim)", "kv_lora_rank"),
    "self_attn.o_proj.weight": ("hidden_size", "num_attention_heads * v_head_dim"),
    "post_attention_layernorm.weight": ("hidden_size",),
    "mlp.gate_proj.weight": ("intermediate_size", "hidden_size"),
    "mlp.up_proj.weight": ("intermediate_size", "hidden_size"),
    "mlp.down_proj.weight": ("hidden_size", "intermediate_size"),
}
"""The axes of every tensor in terms of config.json, for messages; a test holds them to `weight_shapes`."""

_LINEAR_DTYPES = ("F8_E4M3", "BF16", "F16", "F32")
_NORM_DTYPES = ("BF16", "F16", "F32", "F64")
_SCALE_DTYPES = ("F32", "BF16")


def is_fp8(stored: Stored) -> bool:
    """Whether a tensor is stored as e4m3fn codes, which need scales."""
    return stored.entry.dtype == "F8_E4M3"


def check_shapes(config: BlockConfig, weights: Mapping[str, Stored]) -> None:
    """Compare every shape with config.json's; the message names the setting that explains the mismatches."""
    expected = weight_shapes(config)
    wrong = [name for name in expected if weights[name].entry.shape != expected[name]]
    for name in wrong:
        found = weights[name].entry.shape
        if found == expected[name][::-1]:
            raise InputError(
                f"{weights[name].label}: transposed: expected [out, in] = {list(expected[name])}, found {list(found)}"
            )
    if wrong:
        name = wrong[0]
        raise InputError(
            f"{weights[name].label}: expected shape {list(expected[name])} = [{', '.join(AXES[name])}] of config.json,"
            f" found {list(weights[name].entry.shape)}{_suspect(config, expected, weights)}"
        )


def check_scales(config: BlockConfig, weights: Mapping[str, Stored], scales: Mapping[str, Stored]) -> None:
    """Check every dtype, and that FP8 weights have scales on the config's block grid and nothing else has any."""
    lacking = [w.name for name, w in weights.items() if is_fp8(w) and name not in scales]
    for name, weight in weights.items():
        _check_dtype(name, weight)
        scale = scales.get(name)
        if is_fp8(weight):
            _check_grid(config, weight, scale, len(lacking))
        elif scale is not None:
            raise InputError(
                f"{scale.label}: expected scales of F8_E4M3 weights only, found some of a {weight.entry.dtype} tensor"
            )


def _check_dtype(name: str, weight: Stored) -> None:
    norm = name.endswith("layernorm.weight")
    allowed = _NORM_DTYPES if norm else _LINEAR_DTYPES
    dtype = weight.entry.dtype
    if dtype not in allowed:
        hint = "; FP8 codes must be stored as F8_E4M3, not as bytes" if dtype in ("U8", "I8") else ""
        raise InputError(f"{weight.label}: expected dtype {', '.join(allowed)}, found {dtype}{hint}")


def _check_grid(config: BlockConfig, weight: Stored, scale: Stored | None, lacking: int) -> None:
    if config.weight_block_size is None:
        raise InputError(
            f"{weight.label}: FP8, but config.json has no quantization_config.weight_block_size: expected [128, 128]"
            " or the like; it is never inferred from the scales"
        )
    rows, columns = config.weight_block_size
    n, k = weight.entry.shape
    grid = (-(-n // rows), -(-k // columns))
    if scale is None:
        found = f"none (nor for {lacking - 1} other weights)" if lacking > 1 else "none"
        raise InputError(
            f"{weight.label}: FP8 without scale: expected {shown(weight.name)}_scale_inv {list(grid)}, found {found}"
        )
    if scale.entry.dtype not in _SCALE_DTYPES:
        raise InputError(f"{scale.label}: expected dtype {', '.join(_SCALE_DTYPES)}, found {scale.entry.dtype}")
    if scale.entry.shape != grid:
        transposed = "transposed scales: " if scale.entry.shape == grid[::-1] else ""
        raise InputError(
            f"{scale.label}: {transposed}expected shape {list(grid)} for a weight of {[n, k]} in blocks of"
            f" {[rows, columns]}, found {list(scale.entry.shape)}"
        )


def _suspect(config: BlockConfig, expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, Stored]) -> str:
    """Return a clause that names the one setting that every wrong axis depends on and no right axis does."""
    wrong_axes: list[set[str]] = []
    confirmed: set[str] = set()
    for name, shape in expected.items():
        found = weights[name].entry.shape
        if len(found) != len(shape):
            return ""
        for axis, want, have in zip(AXES[name], shape, found, strict=True):
            settings = set(re.findall(r"[a-z_]+", axis))
            if want == have:
                confirmed |= settings
            else:
                wrong_axes.append(settings)
    suspects = set.intersection(*wrong_axes) - confirmed
    if len(suspects) != 1:
        return ""
    setting = suspects.pop()
    return f"; {setting} {getattr(config, setting)} of config.json disagrees with the tensors"
