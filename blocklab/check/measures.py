"""How far two arrays of one step are apart: the numbers that a comparison shows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blocklab.block.steps import STEPS
from blocklab.numerics.formats import get_format

HIDDEN = -1e30
"""Masked scores below this are the same, be they -inf or the lowest number of a format."""

LEAST_NORMAL = 2.0**-126
"""The least normal number of float32 and bfloat16: what is smaller may be flushed to zero."""

BLOCK = 128


@dataclass(frozen=True)
class Measures:
    """How `theirs` differs from `ours`. Places are indices along named axes; None where nothing differs.

    equal           share of equal elements; NaN equals NaN, -0 equals 0
    max_ulp         largest and 99th-percentile distance in units in the last place of the storage format
    max_abs         largest absolute error
    relative        |theirs - ours| / |ours| in the Euclidean norm, over elements finite on both sides
    cosine          of the angle between them: blind to a scale
    ratio           best-fit factor: theirs is about ratio * ours
    nan_*, inf_*    counts
    spoiled         share of elements that are finite on one side only
    worst_position  batch and position with the largest error relative to its own norm
    worst_head      head, likewise
    worst_block     first channel of the worst 128 of the last axis
    """

    equal: float
    max_ulp: float
    p99_ulp: float
    max_abs: float
    relative: float
    cosine: float
    ratio: float
    nan_theirs: int
    nan_ours: int
    inf_theirs: int
    inf_ours: int
    spoiled: float
    worst_position: tuple[int, int] | None
    worst_head: int | None
    worst_block: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the measures as JSON values: null for what is not finite."""
        return {key: finite_or_none(value) for key, value in asdict(self).items()}


def finite_or_none(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity become None."""
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def ulp(values: np.ndarray, number_format: str) -> np.ndarray:
    """Return the distance between neighbours of a format at each magnitude, as float64."""
    if number_format in ("float32", "float64"):
        precision, emin = (24, -126) if number_format == "float32" else (53, -1022)
    else:
        fmt = get_format(number_format)
        precision, emin = fmt.precision, fmt.emin
    exponent = np.frexp(np.where(np.isfinite(values), values, 0))[1].astype(np.int32) - 1
    exponent = np.where(values == 0, emin, np.maximum(exponent, emin))
    return np.asarray(np.ldexp(1.0, exponent - (precision - 1)))


def difference(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return theirs - ours in float64: 0 where equal, both NaN or both hidden, infinite where one is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.asarray(theirs.astype(np.float64) - ours)
        same = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours)) | ((theirs < HIDDEN) & (ours < HIDDEN))
    delta[same] = 0
    delta[~np.isfinite(delta)] = np.inf
    return delta


@np.errstate(over="ignore", invalid="ignore")  # values may be anything
def measure(
    step: str, theirs: np.ndarray, ours: np.ndarray, number_format: str, left_out: np.ndarray | None = None
) -> Measures:
    """Compare two arrays of one step, both in its axes (with other axes, worst places stay unknown).

    left_out  True for elements that are equal here because they are not compared: they do not count as equal
    """
    delta = difference(theirs, ours)
    both = np.isfinite(theirs) & np.isfinite(ours) & (theirs > HIDDEN) & (ours > HIDDEN)
    # Left out are only elements that are not finite somewhere: they have their own counts.
    a, b = np.where(both, theirs, 0).astype(np.float64), np.where(both, ours, 0).astype(np.float64)
    d = np.where(both, delta, 0)
    peak = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    ulps = np.abs(delta) / ulp(np.maximum(np.abs(a), np.abs(b)), number_format)
    unit = 1.0 if 1e-150 < peak < 1e150 else peak or 1.0  # squares of what is smaller or larger are no float64 numbers
    a, b, d = a / unit, b / unit, d / unit
    aa, bb, ab, dd = (float((u * v).sum()) for u, v in ((a, a), (b, b), (a, b), (d, d)))
    position, head, block = _worst(step, np.where(np.isfinite(delta), delta / unit, np.abs(a) + np.abs(b) + 1), b)
    counted = ulps if left_out is None else ulps[~np.broadcast_to(left_out, ulps.shape)]
    return Measures(
        equal=1 - float((delta != 0).sum() / counted.size) if counted.size else 1.0,
        max_ulp=float(ulps.max(initial=0)),
        p99_ulp=float(np.quantile(counted, 0.99, method="higher")) if counted.size else 0.0,
        max_abs=float(np.abs(delta).max(initial=0)),
        relative=_over(math.sqrt(dd), math.sqrt(bb)),
        cosine=_over(ab, math.sqrt(aa) * math.sqrt(bb)) if dd else 1.0,
        ratio=_over(ab, bb) if dd else 1.0,
        nan_theirs=int(np.isnan(theirs).sum()),
        nan_ours=int(np.isnan(ours).sum()),
        inf_theirs=int(np.isinf(theirs).sum()),
        inf_ours=int(np.isinf(ours).sum()),
        spoiled=float(np.isinf(delta).mean()) if delta.size else 0.0,
        worst_position=position,
        worst_head=head,
        worst_block=block,
    )


def error_by_position(step: str, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return the relative error of every query (or key) position, [B, T]: the worst is where to look first."""
    delta = difference(theirs, ours)
    return _relative(delta, np.where(np.isfinite(ours) & (ours > HIDDEN), ours, 0), _axes(step, "BT"))


_PLACES = {"B": "sequence", "T": "token", "H": "head", "S": "key"}


def extent(step: str, wrong: np.ndarray) -> str:
    """Return in words what half of an axis or less holds all that is wrong: "head 5, tokens 20 to 31"; else ""."""
    axes = STEPS[step].axes
    if wrong.ndim != len(axes):
        return ""
    found = []
    for i, axis in enumerate(axes):
        hit = np.flatnonzero(wrong.any(axis=tuple(j for j in range(wrong.ndim) if j != i)))
        if 0 < len(hit) <= wrong.shape[i] / 2:
            found.append(_places(_PLACES.get(axis, "channel"), hit))
    return ", ".join(filter(None, found))


def _places(name: str, hit: np.ndarray) -> str:
    first, last = int(hit[0]), int(hit[-1])
    if first == last:
        return f"{name} {first}"
    if last - first + 1 == len(hit):
        return f"{name}s {first} to {last}"
    return f"{name}s {', '.join(map(str, hit))}" if len(hit) <= 4 else ""


def _worst(step: str, delta: np.ndarray, ours: np.ndarray) -> tuple[tuple[int, int] | None, int | None, int | None]:
    if not delta.any() or delta.ndim != len(STEPS[step].axes):
        return None, None, None
    by_position = _relative(delta, ours, _axes(step, "BT"))
    b, t = np.unravel_index(int(by_position.argmax()), by_position.shape)
    head = _relative(delta, ours, _axes(step, "H")).argmax() if "H" in STEPS[step].axes else None
    block = None
    if STEPS[step].axes[-1] != "S":
        with np.errstate(over="ignore"):
            power = np.square(delta).sum(axis=tuple(range(delta.ndim - 1)))
        block = BLOCK * int(np.add.reduceat(power, np.arange(0, len(power), BLOCK)).argmax())
    return (int(b), int(t)), None if head is None else int(head), block


def _axes(step: str, kept: str) -> tuple[int, ...]:
    """Return the axes to sum over, so that those in `kept` remain; keys stand for queries where there are none."""
    axes = STEPS[step].axes
    first = ["T" if axis == "S" and "T" not in axes else axis for axis in axes]
    return tuple(i for i, axis in enumerate(first) if axis not in kept)


def _relative(delta: np.ndarray, ours: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.sqrt(np.square(delta).sum(axis=axes))
        size = np.sqrt(np.square(ours, dtype=np.float64).sum(axis=axes))
        return np.asarray(error / np.where(size == 0, 1, size))


def _over(a: float, b: float) -> float:
    """Return a / b; where b is zero, 0 for a zero and infinity for others."""
    if b == 0:
        return 0.0 if a == 0 else math.inf
    return a / b
