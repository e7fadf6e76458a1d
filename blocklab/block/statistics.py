"""A few numbers that describe an array of activations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocklab.xp import Array, array_module


@dataclass(frozen=True)
class Statistics:
    """Numbers over the finite elements of one value.

    rms     root mean square
    peak    largest magnitude
    zeros   share of elements that are zero
    hidden  count of infinities (masked scores are -inf)
    nan     count of NaN
    """

    shape: tuple[int, ...]
    rms: float
    peak: float
    zeros: float
    hidden: int
    nan: int


def statistics(value: Array) -> Statistics:
    """Describe an array; sums are accumulated in float64 whatever its dtype."""
    xp = array_module(value)
    nan = int(xp.isnan(value).sum()) if value.dtype.kind == "f" else 0
    hidden = int(xp.isinf(value).sum()) if value.dtype.kind == "f" else 0
    finite = value[xp.isfinite(value)] if nan or hidden else value
    if finite.size == 0:
        return Statistics(tuple(value.shape), 0.0, 0.0, 0.0, hidden, nan)
    magnitude = xp.abs(finite)
    peak = float(magnitude.max())
    unit = 1.0
    if peak > 1e150:  # whose square no float64 holds
        magnitude, unit = magnitude / peak, peak
    return Statistics(
        tuple(value.shape),
        rms=unit * float(np.sqrt(float(xp.mean(xp.square(magnitude, dtype="float64"))))),
        peak=peak,
        zeros=float((finite == 0).mean()),
        hidden=hidden,
        nan=nan,
    )
