"""Rounding arrays to a format, and its codes: the fast forms of `formats.round_plain` and `decode_plain`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from blocklab.errors import InputError
from blocklab.numerics.formats import FORMATS, Format, check_float, choose_overflow, decode_plain, get_format
from blocklab.xp import Array, array_module

CHUNK = 1 << 15
"""Elements that pass through all operations of a conversion together, so that temporaries stay in the L2 cache."""


def round_to(x: Array, format: str = "e4m3fn", overflow: str | None = None) -> Array:
    """v1."""
    if format in ("float32", "float64"):
        return x.astype(format).astype(x.dtype)
    f = get_format(format)
    rule = choose_overflow(f, overflow)
    check_float(f"round_to {format}", x.dtype)
    xp = array_module(x)
    y = x.astype(np.float64)
    m, e = xp.frexp(y)
    e = xp.maximum(e - 1, f.emin) - f.fraction_bits
    with np.errstate(all="ignore"):
        y = xp.copysign(xp.ldexp(xp.rint(xp.ldexp(y, -e)), e), y)
        if rule == "saturate":
            y = xp.clip(y, -f.max, f.max)
        else:
            y = xp.where(abs(y) > f.max, np.copysign(np.inf, y) if f.has_infinity else np.nan, y)
        if not f.signed:
            y = xp.where(x < 0, np.nan, xp.maximum(y, f.min_normal))
        if f.special == "fnuz":
            y = y + 0.0
        return y.astype(x.dtype)


def encode(x: Array, format: str = "e4m3fn", overflow: str | None = None) -> Array:
    """v1."""
    f = get_format(format)
    y = round_to(x, format, overflow)
    dtype = np.uint8 if f.bits <= 8 else np.uint16
    if f.name == "bfloat16":
        return (y.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if f.name == "float16":
        return y.astype(np.float16).view(np.uint16)
    a = abs(y)
    m, e = np.frexp(a)
    e = np.maximum(e - 1, f.emin)
    q = np.ldexp(a, -(e - f.fraction_bits))
    code = np.where(np.isfinite(q), ((e - f.emin) << f.fraction_bits) + np.where(np.isfinite(q), q, 0).astype(np.int32), 0)
    if f.signed:
        code |= np.signbit(y) * f.sign_bit
    code = np.where(np.isnan(y), f.nan_code, code)
    if f.has_infinity:
        code = np.where(np.isinf(y), 0x7C | (np.signbit(y) * f.sign_bit), code)
    return code.astype(dtype)


@cache
def decode_table(f: Format) -> np.ndarray:
    return np.array([decode_plain(c, f) for c in range(1 << f.bits)], np.float32)


def decode(codes: Array, format: str = "e4m3fn") -> Array:
    """v1."""
    if format in ("float32", "float64"):
        return codes.astype(format, copy=False)
    f = get_format(format)
    if codes.dtype == np.float16:
        return codes.astype(np.float32)
    if f.name == "bfloat16":
        return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if f.name == "float16":
        return codes.view(np.float16).astype(np.float32)
    return decode_table(f).take(codes)
