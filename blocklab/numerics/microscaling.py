"""Microscaling: 8-bit scales for short groups along the last axis, MX and NVFP4."""

from __future__ import annotations

import numpy as np

from blocklab.errors import InputError
from blocklab.numerics.codes import decode, encode
from blocklab.numerics.formats import FORMATS
from blocklab.numerics.rounding import as_floats
from blocklab.numerics.scaling import block_amax, block_sizes, dequantize, element_format
from blocklab.xp import Array, array_module

MX_GROUP, NVFP4_GROUP = 32, 16
"""Elements that share a scale."""


def quantize_mx(x: Array, format: str = "e4m3fn") -> tuple[Array, Array]:
    """Return codes in groups of 32 and the e8m0 codes of their power-of-two scales.

    X = 2^(floor(log2 amax) - emax), emax = floor(log2 max) of the element format; code = encode(x / X), saturated.
    The floor makes amax / X as large as 2^(emax + 1), above the largest element (448 for e4m3fn, 6 for e2m1): such
    values are clipped, which is the published rule.

    x: [..., K], float32 or float64; codes: uint8 [..., K], one FP4 code a byte; scales: uint8 [..., ceil(K/32)].
    Special values: a group of zeros has scale 2^-127 and codes 0. A group with NaN or infinity has scale NaN (0xFF)
    and codes 0.
    Raises InputError for other dtypes and unknown formats.
    Source: OCP Microscaling Formats (MX) v1.0, section 6.3.
    """
    x, element = as_floats(x, "quantize_mx"), element_format(format, "quantize_mx")
    block_sizes((1, MX_GROUP), x.shape, "quantize_mx")
    xp = array_module(x)
    amax = block_amax(x, 1, MX_GROUP)
    finite = xp.isfinite(amax)
    largest = int(np.frexp(element.max)[1])
    exponent = xp.frexp(xp.where(finite, amax, 1))[1] - largest
    exponent = xp.clip(xp.where(amax == 0, -127, exponent), -127, 127)
    scale = xp.where(finite, exponent + FORMATS["e8m0"].bias, FORMATS["e8m0"].nan_code).astype(np.uint8)
    spread = _spread(exponent, MX_GROUP, x.shape[-1])
    elements = xp.ldexp(xp.where(_spread(finite, MX_GROUP, x.shape[-1]), x, 0), -spread)
    return encode(elements, format, "saturate"), scale


def dequantize_mx(codes: Array, scale: Array, format: str = "e4m3fn") -> Array:
    """Return decode(codes) * 2^(scale - 127), [..., K] in float32; scale 0xFF gives NaN.

    Raises InputError when the scales [..., ceil(K/32)] do not fit the codes [..., K].
    Source: OCP Microscaling Formats (MX) v1.0.
    """
    return dequantize(codes, decode(scale, "e8m0"), (1, MX_GROUP), format)


def quantize_nvfp4(x: Array) -> tuple[Array, Array, float]:
    """Return e2m1 codes in groups of 16, the e4m3 codes of their scales, and the float32 scale of the tensor.

    s = float32(amax of x / (6 * 448)); S = e4m3((amax of the group / 6) / s); code = e2m1(x / (S s)), all in
    float32. The largest group scale is thus 448.

    x: [..., K], float32 or float64 (rounded to float32 first); codes: uint8 [..., K], one code a byte; scales: uint8
    [..., ceil(K/16)].
    Special values: zeros give codes 0, and a tensor of zeros, or so small that s would be 0, has s = 1. A group so
    small that S is 0 has codes 0.
    Raises InputError for NaN and infinity, which e2m1 cannot hold, and for float64 values beyond float32.
    Source: NVIDIA, Pretraining LLMs with NVFP4 (arXiv 2509.25149).
    """
    x = as_floats(x, "quantize_nvfp4")
    with np.errstate(all="ignore"):
        return _quantize_nvfp4(x.astype(np.float32))


def _quantize_nvfp4(x: Array) -> tuple[Array, Array, float]:
    block_sizes((1, NVFP4_GROUP), x.shape, "quantize_nvfp4")
    xp = array_module(x)
    amax = block_amax(x, 1, NVFP4_GROUP)
    if not bool(xp.isfinite(amax).all()):
        raise InputError("quantize_nvfp4: expected finite numbers, found NaN or infinity")
    most = float(amax.max()) if amax.size else 0.0
    tensor = np.float32(most) / np.float32(6 * 448) or np.float32(1)
    group = amax / np.float32(6) / tensor
    scale = encode(group, "e4m3fn", "saturate")
    factor = _spread(decode(scale, "e4m3fn") * tensor, NVFP4_GROUP, x.shape[-1])
    elements = xp.where(factor > 0, x, 0) / xp.where(factor > 0, factor, 1)
    return encode(elements.astype(np.float32), "e2m1", "saturate"), scale, float(tensor)


def dequantize_nvfp4(codes: Array, scale: Array, tensor_scale: float) -> Array:
    """Return decode(codes) * (decode(scale) * tensor_scale), [..., K] in float32.

    Raises InputError when the scales [..., ceil(K/16)] do not fit the codes [..., K], and for a tensor_scale that is
    no number.
    Source: as quantize_nvfp4.
    """
    tensor = as_floats(tensor_scale, "dequantize_nvfp4: tensor_scale")
    if tensor.ndim:
        raise InputError(f"dequantize_nvfp4: tensor_scale: expected a number, found {tensor.dtype}{list(tensor.shape)}")
    with np.errstate(all="ignore"):
        scales = decode(scale, "e4m3fn") * np.float32(float(tensor))
    return dequantize(codes, scales, (1, NVFP4_GROUP), "e2m1")


def _spread(scale: Array, group: int, k: int) -> Array:
    """Return the group values repeated for each of the K elements."""
    return scale[..., array_module(scale).arange(k) // group]
