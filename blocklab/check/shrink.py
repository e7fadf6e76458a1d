"""A block as small as one step of it allows: what a trial of a mistake does not look at is cut to width one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from blocklab.block.steps import STEPS
from blocklab.block.weights import BlockWeights, weight_shapes
from blocklab.check.case import Case
from blocklab.check.dump import Dump
from blocklab.check.graph import inputs_of
from blocklab.check.stepwise import StepResult
from blocklab.numerics.weight import Weight

_WIDTHS = {"D": "hidden_size", "Q": "q_lora_rank", "F": "intermediate_size"}
"""Axes that can be cut without touching heads, and the setting that gives their size."""


def unseen_axes(chain: Collection[str], case: Case) -> str:
    """Return those of the axes D, Q, F that neither the steps of a chain nor what they are computed from have.

    Values before a chain are put back to recorded ones, so that the width of what they come from does not matter.
    """
    seen = {letter for step in chain for name in (step, *inputs_of(step, case)) for letter in STEPS[name].shape}
    has_axis = {"D": True, "Q": case.config.q_lora_rank is not None, "F": True}
    return "".join(letter for letter in _WIDTHS if letter not in seen and has_axis[letter])


def shrink_run(case: Case, axes: str) -> Case:
    """Return the run with these axes cut to their first element."""
    settings: dict[str, Any] = {_WIDTHS[letter]: 1 for letter in axes}
    config = replace(case.config, **settings)
    named: Mapping[str, Weight] = case.weights.named()
    small = {name: _cut(named[name], shape) for name, shape in weight_shapes(config).items()}
    x = case.x[..., :1] if "D" in axes else case.x
    return case.change(x=x, weights=BlockWeights.from_mapping(config, small))


def shrink_dump(dump: Dump, axes: str, results: Iterable[StepResult], step: str) -> Dump:
    """Return the dump without the steps that have one of these axes, before a trial at `step`.

    Where a tensor can be read in several ways, the one that the comparison chose is fixed, but for those of the step
    itself: a shrunk run has no values to choose by.
    """
    chosen = {(r.step, r.dump_name): (r.reading,) for r in results if r.step != step}
    kept = [
        replace(match, readings=chosen.get((match.step, match.dump_name), match.readings))
        for match in dump.matched
        if not set(axes).intersection(STEPS[match.step].shape)
    ]
    return replace(dump, x=dump.x[..., :1] if "D" in axes else dump.x, matched=tuple(kept))


def _cut(weight: Weight, shape: tuple[int, ...]) -> Weight:
    """Return the first rows and columns of a weight, and of its scales."""
    if weight.shape == shape:
        return weight
    raw = weight.raw[tuple(slice(n) for n in shape)]
    if weight.scale is None or weight.block is None:
        return replace(weight, raw=raw)
    grid = tuple(slice(-(-n // size)) for n, size in zip(shape, weight.block, strict=True))
    return replace(weight, raw=np.ascontiguousarray(raw), scale=weight.scale[grid])
