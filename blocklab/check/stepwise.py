"""Comparing somebody's values with ours, step by step: end to end, and locally from their own values."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from blocklab.block.steps import STEPS
from blocklab.check.case import Case
from blocklab.check.dump import Dump, Matched
from blocklab.check.error_rules import Open
from blocklab.check.graph import AFTER_ATTENTION, chain_to, inputs_of
from blocklab.check.layout import Reading
from blocklab.check.measures import LEAST_NORMAL, Measures, difference, error_by_position, extent, measure, ulp
from blocklab.check.tolerance import Uncertainty

END_TO_END = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 4e-3, "float16": 1e-3}
"""Largest relative error, in norm, of a whole block that rounds as ours does: one flipped tie spreads."""

END_TO_END_FP8 = 2e-2
"""The same where inputs are quantised to FP8: a flipped code is a sixteenth of the value."""

CLEARLY = 0.5
"""Share of the plainest reading's squared error that another reading may have left, to be taken instead."""

RARE, FEW = 0.01, 2
"""Share and count of elements that may differ by a rounding although nothing but ties is open."""

UNSEEN = ("attn_masked", "pattern")
"""Steps whose values for a query that sees no key mean nothing."""

OFTEN = 0.02
"""Share of differing elements from which a chain of unrecorded roundings may be another chain than ours."""


@dataclass(frozen=True)
class Local:
    """One step from their recorded inputs.

    within    largest |theirs - ours| over tolerance: 1 is the limit
    rounding  share of differing elements over the share that ties explain; 0 where storage is float32 or wider
    direct    whether all inputs of the step were recorded
    only_in   where all elements beyond their tolerance are, in words; "" where they are all over the step
    """

    measures: Measures
    within: float
    rounding: float
    direct: bool
    only_in: str = ""

    @property
    def passed(self) -> bool:
        """Whether a correct implementation may have computed this."""
        return self.within <= 1 and (self.rounding <= 1 or not self.direct)

    @property
    def residual(self) -> float:
        """What is apart, as one number: the relative error, and the share of elements finite on one side only."""
        return self.measures.relative + self.measures.spoiled

    @property
    def suspect(self) -> bool:
        """Whether each element is within its tolerance, but far more are rounded otherwise than should be."""
        return self.passed and self.rounding > 1


@dataclass(frozen=True)
class StepResult:
    """One tensor of the dump against its step; `end_to_end` is None where only the local pass was run."""

    step: str
    dump_name: str
    how: str
    also: tuple[str, ...]
    local: Local
    end_to_end: Measures | None
    end_to_end_limit: float
    reading: Reading = field(repr=False)
    by_position: np.ndarray = field(repr=False)
    by_position_end_to_end: np.ndarray | None = field(repr=False)

    @property
    def end_to_end_passed(self) -> bool | None:
        """Whether what arrives here is as close as two correct implementations are."""
        e = self.end_to_end
        if e is None:
            return None
        return e.relative <= self.end_to_end_limit and e.spoiled == 0


def check(
    dump: Dump,
    case: Case,
    their_table: bool,
    end_to_end: bool = True,
    until: str | None = None,
    judge: bool = True,
) -> list[StepResult]:
    """Run the block and compare every tensor of the dump with its step.

    end_to_end  whether to run a second copy of the batch that is left alone
    until       the one step of interest: the run ends there, and only that step is compared (locally)
    judge       whether to derive tolerances; without, only the measures count
    """
    both = end_to_end and until is None
    alone = case.record() if both and case.recipe.granularity == "tensor" else None  # one scale for both copies is none
    comparing = Comparing(dump, case, their_table, both, until, judge, alone)
    attn_out = dump.of("attn_out")
    with contextlib.suppress(_Enough), np.errstate(over="ignore", invalid="ignore"):  # their values may be anything
        if until in AFTER_ATTENTION and attn_out:
            case.go_from(attn_out[0].readings[0].values.astype(case.recipe.carrier), comparing)
        else:
            (case.doubled() if both and alone is None else case).go(comparing)
    return comparing.results


class _Enough(Exception):
    """The last step of interest has been compared."""


class Comparing:
    """The tap that compares and then continues from their value.

    Every sequence is computed twice, the copies side by side in the batch: the first is left alone (end to end), the
    second is put back on their recorded values after every step (local). The weights are decoded once for both.

    Queries that see no key get NaN, zeros or equal shares, as each implementation likes: they are left out at the mask
    and the softmax, after these until a recorded step shows what became of them, and of the end-to-end comparison.
    """

    def __init__(
        self,
        dump: Dump,
        case: Case,
        their_table: bool,
        end_to_end: bool,
        until: str | None,
        judge: bool,
        alone: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Take what `check` takes, and the steps of a run that was left alone where it was another."""
        self.alone = alone
        self.dump, self.case, self.end_to_end, self.until, self.judge = dump, case, end_to_end, until, judge
        self.uncertainty = Uncertainty(case, their_table)
        self.results: list[StepResult] = []
        self.blind = blind_queries(case)
        self.lost: set[str] = set()
        self.chain = chain_to(until, dump.steps, case) if until is not None else set()
        fp8 = case.recipe.fp8_linear
        self.limit = END_TO_END_FP8 if fp8 else END_TO_END[case.recipe.storage]

    def wants(self, name: str) -> bool:
        """Listen to all steps."""
        return name in STEPS

    def __call__(self, name: str, value: np.ndarray) -> np.ndarray:
        """Compare a step, and return what the block is to go on with."""
        B = len(self.case.x)
        ours, local = (value[:B], value[B:]) if self.end_to_end and self.alone is None else (None, value)
        far = ours if self.alone is None else self.alone[name]
        matches, go_on = self.dump.of(name), local
        left_out = self._left_out(name)
        if left_out is not None and not (matches and name not in UNSEEN):
            self.lost.add(name)
        if self.until is not None and name != self.until:
            return self._pass_by(name, matches, local)
        direct = self.uncertainty.from_recorded(name)
        found: Open | None = None
        for match in reversed(matches):
            reading = self._choose(match, local, left_out)
            if self.judge and found is None and not np.array_equal(reading.values, local):
                found = self.uncertainty.before(name, local)
            go_on = reading.values.astype(value.dtype)
            self.results.append(self._compare(match, reading, far, local, found, direct, left_out))
        if matches:
            self.uncertainty.recorded(name, go_on)
        elif self.judge:
            self.uncertainty.unrecorded(name, local, self.uncertainty.before(name, local))
        if name == self.until:
            raise _Enough
        return go_on if ours is None else np.concatenate([ours, go_on])

    def _pass_by(self, name: str, matches: list[Matched], local: np.ndarray) -> np.ndarray:
        """Go on from their value before the one step of interest; errors are followed only where they lead to it."""
        if matches:
            value = self._choose(matches[0], local, self._left_out(name)).values.astype(local.dtype)
            self.uncertainty.recorded(name, value)
            return value
        found = self.uncertainty.before(name, local) if name in self.chain else Open(0.0)
        self.uncertainty.unrecorded(name, local, found)
        return local

    def _left_out(self, name: str) -> np.ndarray | None:
        """Return which queries of a step are not compared locally, in the step's axes; None for none."""
        unknown = name in UNSEEN or self.lost.intersection(inputs_of(name, self.case))
        return self._unseen(name) if unknown else None

    def _unseen(self, name: str) -> np.ndarray | None:
        """Return the queries that see no key, in the axes of a step that they reach; None for none."""
        if self.blind is None or "T" not in STEPS[name].axes or _ORDER[name] < _ORDER[UNSEEN[0]]:
            return None
        sizes = dict(zip("BT", self.blind.shape, strict=True))
        return self.blind.reshape([sizes.get(axis, 1) for axis in STEPS[name].axes])

    def _choose(self, match: Matched, local: np.ndarray, left_out: np.ndarray | None) -> Reading:
        """Return the plainest reading, or one that is clearly closer to our value."""
        options = match.readings
        if len(options) == 1 or np.array_equal(options[0].values, local):
            return options[0]

        def error(reading: Reading) -> float:
            delta = np.clip(difference(reading.values, local), -1e9, 1e9)
            return float(np.square(delta if left_out is None else np.where(left_out, 0, delta)).sum())

        errors = [error(reading) for reading in options]
        best = int(np.argmin(errors))
        return options[best if errors[best] < CLEARLY * errors[0] else 0]

    def _compare(
        self,
        match: Matched,
        reading: Reading,
        ours: np.ndarray | None,
        local: np.ndarray,
        found: Open | None,
        direct: bool,
        left_out: np.ndarray | None,
    ) -> StepResult:
        step, values, storage = match.step, reading.values, self.case.recipe.storage
        theirs = values if left_out is None else np.where(left_out, local, values)
        far_out = self._unseen(step)
        far = values if far_out is None or ours is None else np.where(far_out, ours, values)
        within, rounding, only_in = self._judge(step, theirs, local, found, direct)
        return StepResult(
            step,
            match.dump_name,
            ", ".join(filter(None, (match.how, reading.how))),
            match.also,
            Local(measure(step, theirs, local, storage, left_out), within, rounding, direct, only_in),
            None if ours is None else measure(step, far, ours, storage, far_out),
            self.limit,
            reading,
            error_by_position(step, theirs, local),
            None if ours is None else error_by_position(step, far, ours),
        )

    def _judge(
        self, step: str, theirs: np.ndarray, local: np.ndarray, found: Open | None, direct: bool
    ) -> tuple[float, float, str]:
        """Return the largest error over its tolerance, how many elements differ over how many may, and where."""
        if found is None:
            return 0.0, 0.0, ""
        delta = np.abs(difference(theirs, local))
        with np.errstate(all="ignore"):
            ratio = np.where(delta == 0, 0, delta / self.uncertainty.tolerance(local, theirs, found))
        within = float(np.max(ratio, initial=0))
        only_in = extent(step, ratio > 1) if within > 1 else ""
        storage = self.case.recipe.storage
        if storage in ("float32", "float64") or not np.isfinite(delta).all():
            return within, 0.0, only_in
        share = OFTEN
        counted = int(np.count_nonzero((theirs != 0) | (local != 0)))  # hidden keys have shares of 0 on both sides
        if direct:
            ties = np.minimum(1, 2 * np.sqrt(found.variance) / ulp(local, storage))
            share = RARE + 2 * float(np.mean(ties))
        return within, float((delta >= LEAST_NORMAL).sum() / max(FEW, share * counted)), only_in


_ORDER = {name: i for i, name in enumerate(STEPS)}


def blind_queries(case: Case) -> np.ndarray | None:
    """Return bool [B, T], True for queries that a mask of booleans or -inf lets see nothing; None without any."""
    M = case.M if case.M.dtype.kind == "b" else np.isfinite(case.M)
    seeing = np.asarray(M.any(axis=-1))  # [T], [B, T] or [B, H, T]
    if seeing.all():
        return None
    seeing = np.asarray(seeing.any(axis=1)) if seeing.ndim == 3 else seeing
    return ~np.broadcast_to(seeing, case.x.shape[:2])
