"""Scaling: codes and the scales that multiply them."""

from __future__ import annotations

import numpy as np

from blocklab.numerics.codes import decode, encode
from blocklab.numerics.formats import get_format


def _spread(scale, block, shape, first_row=0):
    rows = (np.arange(shape[-2]) + first_row) // block[0]
    cols = np.arange(shape[-1]) // block[1]
    return scale[..., rows[:, None], cols[None, :]]


def quantize(x, format="e4m3fn", block=(1, 128), amax_floor=1e-4, scale="float32", quotient="divide"):
    """v1."""
    f = get_format(format)
    lead = x.shape
    x2 = x[None] if x.ndim == 1 else x
    n, k = x2.shape[-2:]
    bn, bk = (n if block[0] in (None, -1) else block[0]), (k if block[1] in (None, -1) else block[1])
    a = np.abs(x2)
    a = np.maximum.reduceat(np.maximum.reduceat(a, np.arange(0, n, bn), axis=-2), np.arange(0, k, bk), axis=-1)
    s = np.maximum(a, a.dtype.type(amax_floor)) / a.dtype.type(f.max)
    s = s.astype(np.float32)
    if scale == "ue8m0":
        b = s.view(np.uint32)
        s = ((b + 0x7FFFFF) & 0xFF800000).astype(np.uint32).view(np.float32)
    full = _spread(s, (bn, bk), x2.shape)
    with np.errstate(invalid="ignore"):
        y = x2 / full if quotient == "divide" else x2 * (np.float32(1) / full)
    codes = encode(y, format)
    return codes.reshape(lead), (s[0] if x.ndim == 1 else s)


def dequantize(codes, scale, block=(128, 128), format="e4m3fn", first_row=0):
    """v1."""
    return decode(codes, format) * _spread(scale, block, codes.shape, first_row)
