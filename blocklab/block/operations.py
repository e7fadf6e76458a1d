"""The formulas that the block is made of: functions of arrays, in the precision of the arrays they are given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blocklab.numerics import Recipe
from blocklab.numerics.tiles import stack_product
from blocklab.xp import Array, array_module


def as_it_is(x: Array) -> Array:
    """Return x: nothing is rounded inside a formula."""
    return x


def rms_norm(x: Array, gain: Array, eps: float, inner: Callable[[Array], Array] = as_it_is) -> Array:
    """Scale every row to unit root mean square, then each channel by its gain.

    y = x / sqrt(mean(x^2) + eps) * g

    x, result  [..., D];  gain  [D];  inner  rounds x / sqrt(...) before the gain, as transformers does
    The mean of squares is accumulated in float64.
    A row of zeros gives zeros; NaN anywhere in a row makes the whole row NaN. Where a square overflows, in float32
    from 1.8e19 on, the row becomes zeros, and NaN where x is infinite, as in torch.
    Source: arXiv 1910.07467.
    """
    xp = array_module(x)
    with np.errstate(over="ignore", invalid="ignore"):
        mean_square = xp.mean(xp.square(x), axis=-1, keepdims=True, dtype="float64")  # [..., 1]
        y = x * (1 / xp.sqrt(mean_square + eps)).astype(x.dtype)
    return gain * inner(y)


def rotate(x: Array, R: Array, inner: Callable[[Array], Array] = as_it_is) -> Array:
    """Rotate each pair of neighbours (x_2i, x_2i+1) by the angle of R.

    (a, b) -> (a cos - b sin, a sin + b cos)

    x, result  [B, T, R] or [B, T, H, R];  R  complex [T, R/2] or [B, T, R/2];  inner  rounds cos, sin and products
    Source: RoFormer, arXiv 2104.09864; DeepSeek-V3 inference code.
    """
    xp = array_module(x, R)
    if x.ndim == 4:
        R = R[..., None, :]  # [(B,) T, 1, R/2]
    cos, sin = inner(R.real.astype(x.dtype)), inner(R.imag.astype(x.dtype))
    a, b = x[..., 0::2], x[..., 1::2]
    rotated = xp.empty(x.shape, dtype=x.dtype)
    rotated[..., 0::2] = inner(a * cos) - inner(b * sin)
    rotated[..., 1::2] = inner(a * sin) + inner(b * cos)
    return rotated


def softmax(scores: Array) -> Array:
    """Turn each row of scores into shares that sum to one.

    p = exp(s - max s) / sum exp(s - max s)

    scores, result  [..., S]
    A row that is -inf everywhere gives zeros; NaN gives NaN.
    """
    xp = array_module(scores)
    top = xp.max(scores, axis=-1, keepdims=True) if scores.shape[-1] else scores
    top = xp.where(top == -np.inf, xp.zeros_like(top), top)
    with np.errstate(under="ignore"):
        weights = xp.exp(scores - top)
        total = xp.sum(weights, axis=-1, keepdims=True)
        return weights / xp.where(total == 0, xp.ones_like(total), total)


def silu(x: Array) -> Array:
    """Let positive values through and damp negative ones: x / (1 + exp(-x)).

    Computed from exp(-|x|), which cannot overflow.
    silu(-89) is about -2e-37; far below it underflows to -0. -inf gives NaN, as 0 times infinity does.
    """
    xp = array_module(x)
    with np.errstate(under="ignore", invalid="ignore"):
        decay = xp.exp(-xp.abs(x))
        return x * xp.where(x >= 0, 1, decay) / (1 + decay)


def dots(q: Array, k: Array, recipe: Recipe) -> Array:
    """Return the dot of every query with every key: q [B, T, H, K], k [B, S, H, K] or [B, S, K] -> [B, H, T, S].

    Accumulated in float64 unless the recipe accumulates in BLAS float32; not yet rounded.
    """
    q, k = _heads_first(q, recipe), _heads_first(k, recipe)  # [B, H, T, K], [B, H or 1, S, K]
    B, H, T, K = q.shape
    if k.shape[1] == H:
        return stack_product(q, k.swapaxes(-1, -2))
    s = stack_product(q.reshape(B, 1, H * T, K), k.swapaxes(-1, -2))  # all heads share the keys: one product
    return s.reshape(B, H, T, k.shape[2])


def mix(p: Array, v: Array, recipe: Recipe) -> Array:
    """Return the values mixed by the pattern: p [B, H, T, S], v [B, S, H, V] or [B, S, V] -> [B, T, H, V].

    Accumulated as `dots` are.
    """
    v = _heads_first(v, recipe)  # [B, H or 1, S, V]
    p = p.astype(v.dtype, copy=False)
    B, H, T, S = p.shape
    if v.shape[1] == H:
        return stack_product(p, v).swapaxes(1, 2)
    z = stack_product(p.reshape(B, 1, H * T, S), v)
    return z.reshape(B, H, T, v.shape[3]).swapaxes(1, 2)


def head_by_head(x: Array, W: Array, recipe: Recipe) -> Array:
    """Return each head of x times a matrix of its own: x [B, T, H, K], W [H, N, K] -> [B, T, H, N]."""
    x = _heads_first(x, recipe)  # [B, H, T, K]
    return stack_product(x, W.astype(x.dtype, copy=False).swapaxes(-1, -2)).swapaxes(1, 2)


def _heads_first(x: Array, recipe: Recipe) -> Array:
    """Return [B, T, H, K] as [B, H, T, K], and [B, S, K], which all heads share, as [B, 1, S, K]."""
    x = x.astype("float32" if recipe.accumulate == "float32" else "float64", copy=False)
    return x.swapaxes(1, 2) if x.ndim == 4 else x[:, None]
