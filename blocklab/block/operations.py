"""The operations that the block is made of; each rounds where its recipe says."""

from __future__ import annotations

import numpy as np

from blocklab.block.taps import Tap, no_tap, see
from blocklab.block.weights import Weight
from blocklab.errors import InputError
from blocklab.numerics import Recipe, dot, fp8_matmul, quantize, round_to
from blocklab.numerics.scaling import Block, dequantize_tile
from blocklab.numerics.tiles import stack_product, tiled_product
from blocklab.xp import Array, array_module


def store(x: Array, recipe: Recipe) -> Array:
    """Round to the recipe's storage format, once, and return the array that carries the values."""
    if x.dtype == recipe.storage:
        return x
    return round_to(x, recipe.storage).astype(recipe.carrier, copy=False)


def rms_norm(x: Array, gain: Weight, eps: float, recipe: Recipe) -> Array:
    """Scale every row to unit root mean square, then each channel by its gain.

    y = x / sqrt(mean(x^2) + eps) * g

    x, result  [..., D];  gain  [D]
    The mean of squares is accumulated in float64. norm="once" rounds the product; "twice" rounds
    x / sqrt(...) first and g * y again, as transformers does.
    A row of zeros gives zeros; NaN anywhere in a row makes the whole row NaN. Squares are in the work precision: where
    one overflows, in float32 from 1.8e19 on, the row becomes zeros, and NaN where x is infinite, as in torch.
    Source: arXiv 1910.07467.
    """
    xp = array_module(x)
    x = x.astype(recipe.work, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        mean_square = xp.mean(xp.square(x), axis=-1, keepdims=True, dtype="float64")  # [..., 1]
        y = x * (1 / xp.sqrt(mean_square + eps)).astype(recipe.work)
    if recipe.norm == "twice":
        y = round_to(y, recipe.storage)
    return store(gain.values().astype(recipe.work) * y, recipe)


def linear(
    x: Array, weight: Weight, recipe: Recipe, tap: Tap = no_tap, name: str = "", split: tuple[int, int] | None = None
) -> Array:
    """Multiply by a weight matrix: y = W x.

    x  [..., K];  weight  [N, K];  result  [..., N], or [..., H, N / H] with split = (H, N / H)
    Plain recipes: weights are rounded to the storage format, one dot (float64 or BLAS float32), one rounding.
    FP8 recipes: x is quantised 1 x group, the dots are `fp8_matmul`'s, one rounding; `tap` may see the
    quantised input as NAME.in.codes and NAME.in.scale, and sees the result as NAME.
    Errors: InputError where an FP8 recipe meets a weight that is not FP8.
    Source: DeepSeek-V3 report, section 3.3.
    """
    if recipe.fp8_linear:
        y = _fp8_linear(x, weight, recipe, tap, name)
    else:
        y = _plain_linear(x, weight, recipe)
    y = store(y, recipe)
    return see(tap, name, y if split is None else y.reshape(*y.shape[:-1], *split))


def product(a: Array, b: Array, recipe: Recipe) -> Array:
    """Multiply stacks of activations, a [..., H, T, K] and b [..., H or 1, S, K], along K: [..., H, T, S].

    Accumulated in float64 unless the recipe accumulates in BLAS float32; not yet rounded.
    """
    dtype = "float32" if recipe.accumulate == "float32" else "float64"
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    if a.ndim < 4 or b.shape[-3] > 1:
        return stack_product(a, b.swapaxes(-1, -2))
    B, H, T, K = a.shape
    y = stack_product(a.reshape(B, 1, H * T, K), b.swapaxes(-1, -2))  # all heads share b: one product
    return y.reshape(B, H, T, b.shape[-2])


def softmax(scores: Array, recipe: Recipe) -> Array:
    """Turn each row of scores into shares that sum to one.

    p = exp(s - max s) / sum exp(s - max s)

    scores, result  [..., S]; computed in the work precision, rounded once.
    A row that is -inf everywhere gives zeros; NaN gives NaN.
    """
    xp = array_module(scores)
    scores = scores.astype(recipe.work, copy=False)
    top = xp.max(scores, axis=-1, keepdims=True) if scores.shape[-1] else scores
    top = xp.where(top == -np.inf, xp.zeros_like(top), top)
    with np.errstate(under="ignore"):
        weights = xp.exp(scores - top)
        total = xp.sum(weights, axis=-1, keepdims=True)
        return store(weights / xp.where(total == 0, xp.ones_like(total), total), recipe)


def silu(x: Array, recipe: Recipe) -> Array:
    """Let positive values through and damp negative ones: x / (1 + exp(-x)).

    Computed from exp(-|x|), which cannot overflow, in the work precision; rounded once.
    silu(-89) is about -2e-37; far below it underflows to -0. -inf gives NaN, as 0 times infinity does.
    """
    xp = array_module(x)
    x = x.astype(recipe.work, copy=False)
    with np.errstate(under="ignore", invalid="ignore"):
        decay = xp.exp(-xp.abs(x))
        return store(x * xp.where(x >= 0, 1, decay) / (1 + decay), recipe)


def stored_values(weight: Weight, recipe: Recipe, rows: slice = slice(None), columns: slice = slice(None)) -> Array:
    """Return a tile of a weight on the recipe's storage grid (FP8 times its scales, rounded once)."""
    if weight.scale is not None and weight.block is not None and recipe.storage == "bfloat16":
        return dequantize_tile(weight.raw, weight.scale, weight.block, weight.format, rows, columns, "bfloat16")
    values = weight.values(rows, columns)
    return values if weight.format == recipe.storage else store(values, recipe)


def _plain_linear(x: Array, weight: Weight, recipe: Recipe) -> Array:
    N, K = weight.shape
    flat = x.reshape(-1, K)  # [B T, K]
    dtype = "float32" if recipe.accumulate == "float32" else "float64"
    if weight.format == recipe.storage == dtype:
        y = dot(flat, weight.values(), recipe.accumulate)
    else:
        y = tiled_product(flat, N, lambda rows, columns: stored_values(weight, recipe, rows, columns), dtype)
    return y.reshape(*x.shape[:-1], N)


def _fp8_linear(x: Array, weight: Weight, recipe: Recipe, tap: Tap, name: str) -> Array:
    if weight.scale is None or weight.block is None:
        raise InputError(
            f"{name}: recipe {recipe.name} expected an FP8 weight with block scales; found {weight.format}."
            " Use recipe deepseek-bf16 for this checkpoint"
        )
    codes, scale = quantize_input(x, recipe)
    codes, scale = see(tap, f"{name}.in.codes", codes), see(tap, f"{name}.in.scale", scale)
    return fp8_matmul(
        codes,
        scale,
        weight.raw,
        weight.scale,
        recipe.accumulate,
        group=recipe.group,
        block=weight.block,
        promote=recipe.promote,
        scale_order=recipe.scale_order,
        a_format=recipe.activation_format,
    )


def quantize_input(x: Array, recipe: Recipe) -> tuple[Array, Array]:
    """Return codes [..., K] and scales [..., K / group] of the input of an FP8 linear.

    A scale that a token or the tensor shares is repeated for each group.
    """
    K, rows = x.shape[-1], {"group": x, "token": x, "tensor": x.reshape(-1, x.shape[-1])}[recipe.granularity]
    block: Block = {"group": (1, recipe.group), "token": (1, None), "tensor": (None, None)}[recipe.granularity]
    codes, scale = quantize(
        rows,
        recipe.activation_format,
        block=block,
        amax_floor=recipe.amax_floor,
        scale=recipe.scale,
        quotient=recipe.quotient,
    )
    if recipe.granularity != "group":
        repeated = array_module(x).zeros((*x.shape[:-1], -(-K // recipe.group)), scale.dtype)
        scale = repeated + scale if x.size else repeated
    return codes.reshape(x.shape), scale
