"""A few numbers that describe an array of activations."""

from __future__ import annotations

from dataclasses import dataclass

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
    return Statistics(
        tuple(value.shape),
        rms=float(root_mean_square(finite)),
        peak=float(xp.abs(finite).max()),
        zeros=float((finite == 0).mean()),
        hidden=hidden,
        nan=nan,
    )


def root_mean_square(value: Array, axis: tuple[int, ...] | None = None) -> Array:
    """Return sqrt(mean(x^2)) of finite values over all axes or some, in float64, also where no float64 holds x^2."""
    xp = array_module(value)
    peak = float(xp.abs(value).max()) if value.size else 0.0
    unit = 1.0 if peak == 0 or 1e-150 < peak < 1e150 else peak
    return unit * xp.sqrt(xp.mean(xp.square(value if unit == 1 else value / unit, dtype="float64"), axis=axis))
