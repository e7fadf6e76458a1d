"""Exact numbers for the explorer: extremes, histograms, loud channels, and how two values differ."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from blocklab.check.measures import difference, measure
from blocklab.show.explore_pack import Reduction, reduce
from blocklab.show.facts import loud_channels
from blocklab.show.pooling import colour_range
from blocklab.store.statistics import statistics

BINS = 61
"""Odd, so that zero is in the middle of a bin."""

SCREEN = 640
"""Columns that a screen has room for; where there are more, each shows the strongest of several."""


def describe(value: np.ndarray, limit: float, has_channels: bool) -> dict[str, Any]:
    """Return numbers about all values: statistics, what lies beyond a limit, extremes, the loudest channels."""
    finite = value[np.isfinite(value)]
    numbers = asdict(statistics(value)) | {"limit": limit, "beyond": int((np.abs(finite) > limit).sum())}
    if finite.size == 0:
        return numbers | {"least": None, "most": None, "at": [], "channels": []}
    peak = np.where(np.isfinite(value), np.abs(value), -1).argmax()
    loud = loud_channels(value, 6) if has_channels and value.ndim > 2 else []
    return numbers | {
        "least": float(finite.min()),
        "most": float(finite.max()),
        "at": _place(peak, value),
        "channels": [asdict(channel) for channel in loud],
    }


def picture_limit(cells: np.ndarray, trimmed: bool) -> float:
    """Return the range of colours for the cells of a picture [B, H, T, W], as strong as a screen shows them.

    trimmed  whether a few outliers may lie beyond it
    """
    shown = reduce(cells, Reduction(len(cells), 1, -(-cells.shape[3] // SCREEN)))
    finite = np.abs(shown[np.isfinite(shown)])
    return colour_range(shown).limit if trimmed or not finite.size else float(finite.max()) or 1.0


def histogram(value: np.ndarray, limit: float) -> dict[str, Any]:
    """Return counts of BINS equal bins over +-limit, and of what lies beyond on each side."""
    finite, limit = value[np.isfinite(value)], min(limit, 1e300)  # whose double is a number, too
    unit = limit if limit < 1e-300 else 1.0  # a bin has to have some width
    with np.errstate(all="ignore"):
        counts, _ = np.histogram(finite.astype(np.float64) / unit, BINS, (-limit / unit, limit / unit))
    return {"counts": counts.tolist(), "below": int((finite < -limit).sum()), "above": int((finite > limit).sum())}


def differences(step: str, a: np.ndarray, b: np.ndarray, stored: str) -> tuple[dict[str, Any], np.ndarray]:
    """Return how a differs from b, as `measure` has it, and a - b; both in the axes of the step.

    stored  the format whose units in the last place are counted
    """
    known = stored if stored in ("float64", "float32", "bfloat16", "float16") else "float32"
    return measure(step, a, b, known).to_json(), difference(a, b)


def _place(flat: np.intp, array: np.ndarray) -> list[int]:
    return [int(i) for i in np.unravel_index(flat, array.shape)]
