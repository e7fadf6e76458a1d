"""Numbers that describe one step: loud channels, where attention looks, FP8 codes, what changed."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from blocklab.block.steps import steps_of
from blocklab.numerics.linears import quantize_input
from blocklab.show.about import config_of, form_of, recipe_of
from blocklab.show.pooling import masked_to_infinity
from blocklab.store.statistics import root_mean_square, statistics
from blocklab.store.trace import Trace

OUTLIER = 4.0
"""A channel this many times louder than the median channel is called an outlier."""


@dataclass(frozen=True)
class Channel:
    """One channel of a step: its index (head and channel where there are heads) and root mean square.

    ratio  to the median channel
    """

    index: tuple[int, ...]
    rms: float
    ratio: float


def channel_rms(value: np.ndarray) -> np.ndarray:
    """Return the root mean square of every channel over batch and positions: [D], or [H, N]."""
    return np.asarray(root_mean_square(np.where(np.isfinite(value), value, 0), axis=(0, 1)))


def loud_channels(value: np.ndarray, count: int = 3) -> list[Channel]:
    """Return the loudest channels of a step [B, T, ...], loudest first."""
    rms = channel_rms(value)
    middle = _median(rms) or 1.0
    order = np.argsort(-rms, axis=None, kind="stable")[:count]
    places = [tuple(int(i) for i in np.unravel_index(flat, rms.shape)) for flat in order]
    ratios = [min(float(rms[place]) / middle, sys.float_info.max) for place in places]
    return [Channel(place, float(rms[place]), ratio) for place, ratio in zip(places, ratios, strict=True)]


def outlier_count(value: np.ndarray) -> int:
    """Count the channels that are OUTLIER times louder than the median channel."""
    rms = channel_rms(value)
    return int((rms / OUTLIER > _median(rms)).sum())


def _median(rms: np.ndarray) -> float:
    """Return the median, also where the sum of the middle two is no float64 number."""
    return 2 * float(np.median(rms / 2))


@dataclass(frozen=True)
class Gaze:
    """Where one head looks from one query: its strongest key, that key's share, and how many keys it spreads over.

    spread  e to the entropy of the row: 1 for a single key, n for n equal ones
    """

    head: int
    key: int
    share: float
    spread: float


def gazes(pattern: np.ndarray, query: int, batch: int = 0) -> list[Gaze]:
    """Return where each head of a pattern [B, H, T, S] looks from one query."""
    found = []
    for head, row in enumerate(pattern[batch, :, query].astype(np.float64)):
        positive = row[row > 0]
        with np.errstate(all="ignore"):  # what is no pattern has any values
            spread = float(np.exp(-(positive * np.log(positive)).sum()))
        found.append(Gaze(head, int(row.argmax()), float(row.max()), spread))
    return found


@dataclass(frozen=True)
class Fp8Facts:
    """How a quantised input uses e4m3: shares of codes at the largest value, subnormal and zero; range of scales."""

    largest: float
    subnormal: float
    zero: float
    scale_min: float
    scale_max: float


def fp8_facts(codes: np.ndarray, scale: np.ndarray) -> Fp8Facts:
    """Describe e4m3 codes; one code of each group is at 448 by construction, unless the amax floor held it down."""
    magnitude = codes & 0x7F
    return Fp8Facts(
        largest=float((magnitude == 0x7E).mean()),
        subnormal=float(((magnitude > 0) & (magnitude < 8)).mean()),
        zero=float((magnitude == 0).mean()),
        scale_min=float(scale.min()),
        scale_max=float(scale.max()),
    )


def quantised_input(trace: Trace, step: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return codes and scales of the input of an FP8 linear: as traced, or quantised again; None where there are none.

    Steps that are no linears, recipes without FP8 and inputs that were not traced have none.
    """
    if f"{step}.in.codes" in trace and f"{step}.in.scale" in trace:
        return trace[f"{step}.in.codes"], trace[f"{step}.in.scale"]
    recipe = recipe_of(trace)
    wire = steps_of(config_of(trace), form_of(trace))[step]
    if recipe is None or not recipe.fp8_linear or wire.kind != "linear" or wire.inputs[0] not in trace:
        return None
    x = trace[wire.inputs[0]]
    return quantize_input(x.reshape(*x.shape[:2], -1), recipe)


@dataclass(frozen=True)
class Change:
    """What became of one input of a step.

    source    the input's name
    rms, peak   before and after
    relative  norm of the difference over the norm of the input; None where the shapes differ
    """

    source: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    rms: tuple[float, float]
    peak: tuple[float, float]
    relative: float | None


def change(trace: Trace, source: str, step: str) -> Change:
    """Compare a step with one of its inputs."""
    before, after = (masked_to_infinity(name, trace[name]) for name in (source, step))
    was, now = statistics(before), statistics(after)
    relative = None
    if before.shape == after.shape:
        both = np.isfinite(before) & np.isfinite(after)
        size = float(root_mean_square(before[both])) if both.any() else 0.0
        difference = after[both].astype(np.float64) - before[both]
        relative = float(root_mean_square(difference)) / size if size else None
    return Change(source, (was.shape, now.shape), (was.rms, now.rms), (was.peak, now.peak), relative)


def sources_of(trace: Trace, step: str) -> list[str]:
    """Return the inputs of a step that the trace has; where it has none, the step before it."""
    wire = steps_of(config_of(trace), form_of(trace))[step]
    found = [name for name in wire.inputs if name in trace]
    if found or wire.kind == "input":
        return found
    names = [listed.name for listed, _ in trace.headers()]
    before = names[: names.index(step)] if step in names else []
    return before[-1:]
