"""Making large arrays small without losing what is large in them, and choosing a range of colours for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocklab.errors import InputError


def edges(size: int, cells: int) -> np.ndarray:
    """Return where each of at most `cells` cells starts, and where the last ends: [n + 1]."""
    cells = max(1, min(size, cells))
    return np.arange(cells + 1) * size // cells


def masked_to_infinity(name: str, value: np.ndarray) -> np.ndarray:
    """Return masked scores with -inf in hidden places: other programs add the lowest finite number instead."""
    if name != "attn_masked" or not (value < -6e4).any():
        return value
    floor = -1e30 if (value < -1e30).any() else -6e4  # the lowest bfloat16 and float32, or the lowest float16
    return np.where(value <= floor, -np.inf, value).astype(value.dtype, copy=False)


def between_heads(channels: int, each: int) -> range:
    """Return the first channels of heads that lie side by side, but for the first head; none where `each` is 0."""
    return range(each, channels, each) if each else range(0)


def pool(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return a matrix of at most rows x columns; each cell is the value of largest magnitude under it, sign kept.

    A mean would hide one loud channel among sixteen; the largest magnitude cannot. NaN counts as larger than all
    numbers, so that it stays visible; infinities count only where nothing else is under the cell, so that hidden
    scores, -inf, do not cover seen ones.
    """
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"pool: expected a matrix that is not empty; found {list(values.shape)}")
    return _pool_rows(_pool_rows(values, rows).T, columns).T


def _pool_rows(values: np.ndarray, cells: int) -> np.ndarray:
    starts = edges(values.shape[0], cells)[:-1]
    if len(starts) == values.shape[0]:
        return values
    size = np.where(np.isfinite(values), np.abs(values), np.where(np.isnan(values), np.inf, -1.0))
    loudest = np.maximum.reduceat(size, starts, axis=0)
    # The first value of that magnitude: rows after it, and quieter ones, are pushed behind all others.
    order = np.arange(values.shape[0])[:, None]
    cell = np.searchsorted(starts, order[:, 0], side="right") - 1
    first = np.minimum.reduceat(np.where(size == loudest[cell], order, values.shape[0]), starts, axis=0)
    return np.asarray(np.take_along_axis(values, first, axis=0))


@dataclass(frozen=True)
class ColourRange:
    """Colours run from -limit to limit; `beyond` marks the cells that are larger than that."""

    limit: float
    beyond: np.ndarray


def colour_range(values: np.ndarray, keep: float = 0.99, slack: float = 2.0) -> ColourRange:
    """Return a range that outliers do not stretch: the `keep` quantile of magnitudes, unless the largest is close.

    Where the largest value is within `slack` times that quantile, all of the values are in range. Hidden (-inf)
    and NaN cells do not count.
    """
    size = np.abs(values[np.isfinite(values)]).astype(np.float64)
    if size.size == 0 or size.max() == 0:
        return ColourRange(1.0, np.zeros(values.shape, bool))
    limit, top = float(np.quantile(size, keep)), float(size.max())
    if limit == 0 or top <= slack * limit:
        limit = top
    return ColourRange(limit, np.isfinite(values) & (np.abs(values) > limit))
