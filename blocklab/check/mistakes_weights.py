"""Mistakes in reading weights: block scales, FP8 bytes, the order of rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from blocklab.check.case import Case
from blocklab.check.variation import EVERY_LINEAR, Mistake, Variation, each_weight
from blocklab.numerics.weight import Weight


def _with_scale(change: Callable[[np.ndarray, Weight], np.ndarray | None]) -> Callable[[Weight], Weight | None]:
    """Return a change of a weight's scales; None or equal scales mean that it cannot show."""

    def changed(weight: Weight) -> Weight | None:
        if weight.scale is None:
            return None
        scale = change(weight.scale, weight)
        if scale is None or np.array_equal(scale, weight.scale):
            return None
        return replace(weight, scale=np.ascontiguousarray(scale, dtype=np.float32))

    return changed


def scale_missing(case: Case) -> Iterator[Variation]:
    """Use the codes without their scales."""
    yield from each_weight(case, _with_scale(lambda s, w: np.ones_like(s)), "codes without their scales")


def scale_divided(case: Case) -> Iterator[Variation]:
    """Divide by the scales, misled by their name weight_scale_inv."""
    yield from each_weight(case, _with_scale(lambda s, w: 1 / s), "divided by weight_scale_inv")


def scale_transposed(case: Case) -> Iterator[Variation]:
    """Read the grid of scales column by column."""
    detail = "the grid of scales is transposed"
    yield from each_weight(case, _with_scale(lambda s, w: s.reshape(s.shape[::-1]).T), detail)
    by_rows = _with_scale(lambda s, w: None if _square(s) else s.T.reshape(s.shape))
    yield from each_weight(case, by_rows, f"{detail} and read row by row")


def _square(s: np.ndarray | Weight) -> bool:
    return bool(s.shape[0] == s.shape[1])


def scale_last_row_lost(case: Case) -> Iterator[Variation]:
    """Lose the scales of the last row of blocks, which is often a short one."""

    def last(row: Callable[[np.ndarray], np.ndarray]) -> Callable[[Weight], Weight | None]:
        return _with_scale(lambda s, w: np.concatenate([s[:-1], row(s)]) if len(s) > 1 else None)

    lost = "the last row of scales is lost"
    yield from each_weight(case, last(lambda s: np.ones_like(s[-1:])), f"{lost} and 1 taken")
    yield from each_weight(case, last(lambda s: s[-2:-1]), f"{lost} and the one before taken")
    yield from each_weight(case, last(lambda s: np.zeros_like(s[-1:])), f"{lost} and the rows are zero")


def fp8_read_as_fnuz(case: Case) -> Iterator[Variation]:
    """Read e4m3fn bytes as e4m3fnuz: half as large, and 0x80, which is -0, becomes NaN."""

    def half(weight: Weight) -> Weight | None:
        return None if weight.scale is None else replace(weight, scale=weight.scale / 2)

    def half_with_nan(weight: Weight) -> Weight | None:
        if weight.scale is None:
            return None
        raw = np.asarray(weight.raw)
        minus_zero = raw == 0x80
        return (
            replace(weight, scale=weight.scale / 2, raw=np.where(minus_zero, 0x7F, raw).astype("u1"))
            if minus_zero.any()
            else None
        )

    yield from each_weight(case, half, "e4m3fn bytes read as e4m3fnuz, half as large")
    yield from each_weight(case, half_with_nan, "e4m3fn bytes read as e4m3fnuz, half as large, 0x80 as NaN")


def weights_transposed(case: Case) -> Iterator[Variation]:
    """Read a weight as [in, out]: transposed where it is square, scrambled where not."""

    def as_stored(weight: Weight) -> Weight | None:
        scale = weight.scale
        if scale is not None and _square(scale) and _square(weight):
            scale = np.ascontiguousarray(scale.T)
        return replace(weight, raw=_other_way(weight.raw), scale=scale)

    def dequantised(weight: Weight) -> Weight | None:
        # Of a square weight both are the same; FP8 linears need codes.
        if weight.scale is None or _square(weight) or case.recipe.fp8_linear:
            return None
        return Weight(_other_way(weight.values()), "float32")

    yield from each_weight(case, as_stored, "the bytes are read as [in, out]")
    yield from each_weight(case, dequantised, "the dequantised values are read as [in, out]")


def _other_way(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(values).reshape(values.shape[::-1]).T)


WEIGHTS = (
    Mistake(
        "scale-missing",
        "uses FP8 codes without their block scales",
        "the step of that weight, by a large ratio",
        EVERY_LINEAR,
        scale_missing,
    ),
    Mistake(
        "scale-divided",
        "divides by weight_scale_inv, which multiplies",
        "the step of that weight, by a large ratio",
        EVERY_LINEAR,
        scale_divided,
    ),
    Mistake(
        "scale-transposed",
        "reads the grid of block scales transposed",
        "the step of that weight, in blocks of 128",
        EVERY_LINEAR,
        scale_transposed,
    ),
    Mistake(
        "scale-last-row-lost",
        "loses the scales of the last, often short, row of blocks",
        "the step of that weight, in its last channels: the rotary ones of kv_down",
        EVERY_LINEAR,
        scale_last_row_lost,
    ),
    Mistake(
        "fp8-read-as-fnuz",
        "reads e4m3fn bytes as e4m3fnuz",
        "the step of that weight, by the ratio 0.5 that cosine does not see, or NaN",
        EVERY_LINEAR,
        fp8_read_as_fnuz,
    ),
    Mistake(
        "weights-transposed",
        "reads a weight as [in, out]",
        "the step of that weight",
        EVERY_LINEAR,
        weights_transposed,
    ),
)
"""This module's part of the catalogue."""
