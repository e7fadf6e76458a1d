"""Products with a weight of the checkpoint: plain ones, and FP8 ones with quantised inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from blocklab.errors import InputError
from blocklab.numerics.dots import dot, fp8_matmul
from blocklab.numerics.recipes import Recipe
from blocklab.numerics.scaling import Block, dequantize_tile, quantize
from blocklab.numerics.tiles import tiled_product
from blocklab.numerics.weight import Weight
from blocklab.xp import Array, array_module

Show: TypeAlias = Callable[[str, Array], Array]
"""What sees a value under a name, and returns it or another in its place."""


def multiply(x: Array, weight: Weight, recipe: Recipe, name: str = "", show: Show = lambda name, value: value) -> Array:
    """Multiply by a weight matrix: y = W x, not yet rounded.

    x  [..., K];  weight  [N, K];  result  [..., N]
    Plain recipes: weights are rounded to the storage format, one dot (float64 or BLAS float32).
    FP8 recipes: x is quantised 1 x group, and shown as NAME.in.codes and NAME.in.scale; the dots are `fp8_matmul`'s.
    Errors: InputError where an FP8 recipe meets a weight that is not FP8.
    Source: DeepSeek-V3 report, section 3.3.
    """
    return _fp8_product(x, weight, recipe, name, show) if recipe.fp8_linear else _plain_product(x, weight, recipe)


def stored_values(weight: Weight, recipe: Recipe, rows: slice = slice(None), columns: slice = slice(None)) -> Array:
    """Return a tile of a weight on the recipe's storage grid (FP8 times its scales, rounded once)."""
    if weight.scale is not None and weight.block is not None and recipe.storage == "bfloat16":
        return dequantize_tile(weight.raw, weight.scale, weight.block, weight.format, rows, columns, "bfloat16")
    values = weight.values(rows, columns)
    return values if weight.format == recipe.storage else recipe.round(values)


def _plain_product(x: Array, weight: Weight, recipe: Recipe) -> Array:
    N, K = weight.shape
    flat = x.reshape(-1, K)  # [B T, K]
    dtype = "float32" if recipe.accumulate == "float32" else "float64"
    if weight.format == recipe.storage == dtype:
        y = dot(flat, weight.values(), recipe.accumulate)
    else:
        y = tiled_product(flat, N, lambda rows, columns: stored_values(weight, recipe, rows, columns), dtype)
    return y.reshape(*x.shape[:-1], N)


def _fp8_product(x: Array, weight: Weight, recipe: Recipe, name: str, show: Show) -> Array:
    if weight.scale is None or weight.block is None:
        raise InputError(
            f"{name}: recipe {recipe.name} expected an FP8 weight with block scales; found {weight.format}."
            " Use recipe deepseek-bf16 for this checkpoint"
        )
    codes, scale = quantize_input(x, recipe)
    codes, scale = show(f"{name}.in.codes", codes), show(f"{name}.in.scale", scale)
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
