"""Whether the tensors of a layer have the shapes and dtypes that config.json calls for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from blocklab.block.config import BlockConfig
from blocklab.block.steps import SETTINGS
from blocklab.block.weights import weight_axes, weight_shapes
from blocklab.errors import InputError, shown
from blocklab.store.safetensors_file import Stored

_LINEAR_DTYPES = ("F8_E4M3", "BF16", "F16", "F32")
_NORM_DTYPES = ("BF16", "F16", "F32", "F64")
_SCALE_DTYPES = ("F32", "BF16")


def axes_in_settings(config: BlockConfig) -> dict[str, list[str]]:
    """Return for every tensor its axes in terms of config.json, for messages: "num_attention_heads * v_head_dim"."""

    def text(axes: tuple[str, ...]) -> str:
        sums = [" + ".join(SETTINGS[letter] for letter in axis.split("+")) for axis in axes]
        return " * ".join(f"({part})" if "+" in part and len(sums) > 1 else part for part in sums)

    return {name: [text(axes) for axes in shape] for name, shape in weight_axes(config).items()}


def is_fp8(stored: Stored) -> bool:
    """Whether a tensor is stored as e4m3fn codes, which need scales."""
    return stored.entry.dtype == "F8_E4M3"


def check_shapes(config: BlockConfig, weights: Mapping[str, Stored]) -> None:
    """Compare every shape with config.json's; the message names the setting that explains the mismatches."""
    expected, axes = weight_shapes(config), axes_in_settings(config)
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
            f"{weights[name].label}: expected shape {list(expected[name])} = [{', '.join(axes[name])}] of config.json,"
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
    axes = axes_in_settings(config)
    for name, shape in expected.items():
        found = weights[name].entry.shape
        if len(found) != len(shape):
            return ""
        for axis, want, have in zip(axes[name], shape, found, strict=True):
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
