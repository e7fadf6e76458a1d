"""Dots."""

from __future__ import annotations

import numpy as np

from blocklab.numerics.codes import decode


def dot(x, w, accumulate="float32"):
    """v1: x [..., K] w [N, K] -> [..., N]."""
    dtype = np.float32 if accumulate == "float32" else np.float64
    return np.matmul(x.astype(dtype, copy=False), w.astype(dtype, copy=False).T)


def fp8_matmul(a_codes, a_scale, w_codes, w_scale, accumulate="exact", *, group=128, block=(128, 128), promote=128,
               scale_order="separate", a_format="e4m3fn", w_format="e4m3fn"):
    """v1."""
    lead, k = a_codes.shape[:-1], a_codes.shape[-1]
    a = decode(a_codes.reshape(-1, k), a_format).astype(np.float64)
    s_a = a_scale.reshape(len(a), -1)
    w = decode(w_codes, w_format).astype(np.float64)
    s_w = np.repeat(w_scale, block[0], 0)[: len(w)]
    acc = np.zeros((len(a), len(w)), np.float32)
    for g, start in enumerate(range(0, k, group)):
        d = (a[:, start : start + group] @ w[:, start : start + group].T).astype(np.float32)
        sw = s_w[:, start // block[1]]
        if scale_order == "separate":
            acc += d * s_a[:, g, None] * sw
        else:
            acc += d * (s_a[:, g, None] * sw)
    return acc.reshape(*lead, -1)
