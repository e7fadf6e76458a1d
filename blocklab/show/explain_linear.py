"""How one output of a linear came about: FP8 groups with their scales and sums, or one dot and one rounding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from blocklab.errors import InputError
from blocklab.numerics import Recipe, decode, quantize
from blocklab.numerics.tensor_core import HOPPER_FP8, tensor_core_dot
from blocklab.numerics.weight import Weight
from blocklab.show.working import Context, Line, Working, spacing

LARGEST = 8
"""Terms of a dot that are listed."""


def explain_linear(context: Context, source: str, weight_name: str, index: tuple[int, ...]) -> Working:
    """Explain one output of a linear; the last axes of `index` count its rows, head after head."""
    x = context.value(source)
    x = x.reshape(*x.shape[:2], -1)[index[0], index[1]]  # [K]
    row = _row(index[2:], context)
    weight = context.weight(weight_name)
    inputs = [f"{source}[{index[0]}, {index[1]}, :]", f"row {row} of {weight_name} {list(weight.shape)}"]
    if context.recipe.fp8_linear:
        return _fp8(x, weight, row, context, inputs)
    return explain_dot(x, stored_row(weight, row, context.recipe), context, inputs)


def row_values(weight: Weight, row: int) -> np.ndarray:
    """Return one row of a weight: float32(code) * scale, each block's scale repeated over its columns."""
    values = decode(np.asarray(weight.raw[row]), weight.format)
    if weight.scale is None or weight.block is None:
        return np.asarray(values)
    rows, columns = weight.block
    return np.asarray(values * np.repeat(weight.scale[row // rows], columns)[: len(values)])


def stored_row(weight: Weight, row: int, recipe: Recipe) -> np.ndarray:
    """Return one row of a weight as a plain recipe uses it: rounded to the storage format."""
    return np.asarray(recipe.round(row_values(weight, row)))


def _row(place: tuple[int, ...], context: Context) -> int:
    """Return the row of the weight: h N + n for a head and its channel."""
    if len(place) == 1:
        return place[0]
    return place[0] * int(context.trace[context.step].shape[-1]) + place[1]


def explain_dot(a: np.ndarray, b: np.ndarray, context: Context, inputs: list[str]) -> Working:
    """Explain a dot of two vectors: summed in float64 (or by BLAS in float32), and rounded once."""
    recipe, terms = context.recipe, a.astype(np.float64) * b
    total = plain_dot(a, b, recipe)
    listed = np.argsort(-np.abs(terms), kind="stable")[:LARGEST]
    rows = [{"k": int(k), "x": float(a[k]), "w": float(b[k]), "x w": float(terms[k])} for k in listed]
    kind = "float32, by BLAS" if recipe.accumulate == "float32" else "float64"
    lines = [
        Line("terms", len(terms), "products"),
        Line("dot", total, f"their sum in {kind}"),
        *rounding_lines(total, context),
    ]
    tables = {f"the {len(rows)} largest terms": rows}
    return Working(inputs, lines, total, context.stored, tables, sum_bound(terms, recipe))


def plain_dot(a: np.ndarray, b: np.ndarray, recipe: Recipe) -> float:
    """Return the dot of two vectors in the precision in which the recipe sums."""
    dtype = np.float32 if recipe.accumulate == "float32" else np.float64
    return float(np.dot(a.astype(dtype), b.astype(dtype)))


def sum_bound(terms: np.ndarray, recipe: Recipe) -> float:
    """Return how far another order of summation can move a sum: K u sum |terms|, u = 2^-24 or 2^-53."""
    unit = 2.0**-24 if recipe.accumulate == "float32" else 2.0**-53
    return float(len(terms) * unit * np.abs(terms).sum())


def rounding_lines(total: float, context: Context) -> list[Line]:
    """Return the lines of the last rounding: the grid at the total, and what is stored."""
    if context.storage in ("float64", "float32"):
        return [Line("stored", context.stored(total), f"as {context.storage}")]
    step = spacing(total, context.storage)
    return [
        Line("spacing", step, f"of {context.storage} at the sum"),
        Line("stored", context.stored(total), f"rounded to {context.storage}, {context.stored(total) - total:+.3g}"),
    ]


def _fp8(x: np.ndarray, weight: Weight, row: int, context: Context, inputs: list[str]) -> Working:
    """Explain an FP8 dot: acc = acc + (dot s_a) s_w in float32, group by group, the Hopper register beside it."""
    recipe = context.recipe
    if weight.scale is None or weight.block is None:
        raise InputError(f"explain: recipe {recipe.name} expected an FP8 weight; found {weight.format}")
    if recipe.granularity != "group" or recipe.activation_format != "e4m3fn":
        raise InputError(f"explain: expected a recipe with groups of e4m3fn activations; found {recipe.name}")
    codes, a_scale = quantize(
        x, block=(1, recipe.group), amax_floor=recipe.amax_floor, scale=recipe.scale, quotient=recipe.quotient
    )
    w_codes, w_scale = np.asarray(weight.raw[row]), weight.scale[row // weight.block[0]]
    values, w_values = decode(codes), decode(w_codes)
    rows: list[dict[str, Any]] = []
    sums = {"exact": np.float32(0), "hopper": np.float32(0)}
    for start, stop in _stretches(len(x), weight.block[1], recipe):
        s_a, s_w = a_scale[start // recipe.group], w_scale[start // weight.block[1]]
        part = slice(start, stop)
        dots = {
            "exact": np.float32(np.dot(values[part].astype(np.float64), w_values[part].astype(np.float64))),
            "hopper": np.float32(tensor_core_dot(values[part], w_values[part], HOPPER_FP8)),
        }
        for kind, dot in dots.items():
            sums[kind] = np.float32(sums[kind] + _scaled(dot, s_a, s_w, recipe))
        rows.append(
            {"k": f"{start}..{stop - 1}", "amax": float(np.abs(x[part]).max()), "s_a": float(s_a), "s_w": float(s_w)}
            | {"dot": float(dots["exact"]), "(dot s_a) s_w": float(_scaled(dots["exact"], s_a, s_w, recipe))}
            | {"sum": float(sums["exact"])}
            | {"Hopper dot": float(dots["hopper"]), "Hopper sum": float(sums["hopper"])}
        )
    used = "hopper" if recipe.accumulate == "hopper" else "exact"
    total = float(sums[used])
    lost = abs(float(sums["hopper"]) - float(sums["exact"]))
    lines = [
        Line("sum", float(sums["exact"]), "exact dots of the groups, added in float32"),
        Line("hopper_sum", float(sums["hopper"]), f"with 14-bit registers, {lost:.3g} away"),
        Line(
            "plain_dot",
            float(np.dot(x.astype(np.float64), row_values(weight, row).astype(np.float64))),
            "without quantising the input",
        ),
        *rounding_lines(total, context),
    ]
    bound = float(len(x) * 2.0**-24 * np.abs(x.astype(np.float64) * row_values(weight, row)).sum())
    return Working(
        inputs,
        lines,
        total,
        context.stored,
        {f"groups of {recipe.group}: codes' dots, scales, running sums": rows},
        bound if recipe.accumulate == "float32" else 0.0,
    )


def _scaled(dot: np.float32, s_a: np.float32, s_w: np.float32, recipe: Recipe) -> np.float32:
    return np.float32(dot * (s_a * s_w)) if recipe.scale_order == "folded" else np.float32((dot * s_a) * s_w)


def _stretches(K: int, columns: int, recipe: Recipe) -> list[tuple[int, int]]:
    """Return the stretches of K that are summed before they are scaled."""
    cuts = {*range(0, K, recipe.group), *range(0, K, columns), K}
    if recipe.accumulate == "hopper":
        step = recipe.promote or K
        cuts = {*range(0, K, step), K} | (cuts if step < min(recipe.group, columns, K) else set())
    return list(pairwise(sorted(cuts)))
