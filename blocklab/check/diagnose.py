"""Which mistake of the catalogue explains a step that differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blocklab.check.case import Case
from blocklab.check.dump import Dump
from blocklab.check.graph import MIXING, chain_to
from blocklab.check.measures import finite_or_none
from blocklab.check.mistakes import MISTAKES
from blocklab.check.shrink import shrink_dump, shrink_run, unseen_axes
from blocklab.check.stepwise import Local, StepResult, check
from blocklab.check.variation import EVERY_LINEAR, Mistake, Variation

ROUNDS = 4
"""Mistakes that are looked for one after the other."""

SHOWN = 5
"""Mistakes that do not explain a step but are listed, the nearest first."""

APART = 3.0
"""Two explanations can be told apart when one leaves this many times more unexplained than the other."""

GONE = 1e-5
"""Share of an error that is left when a mistake explains it, be the rest within tolerance or not."""

NOISE = 1e-12

TOKENS = 8
"""Tokens that mistakes are tried on where that is enough."""


@dataclass(frozen=True)
class Finding:
    """One mistake tried on one step.

    explains  whether the step is within tolerance once the mistake is made, and no other leaves much less
    residual  relative error that is left; `before` what it was
    beside    a second mistake that is needed at the same step
    """

    mistake: str
    detail: str
    step: str
    explains: bool
    residual: float
    before: float
    beside: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the finding as JSON values."""
        found: dict[str, object] = {
            "mistake": self.mistake,
            "explains": self.explains,
            "residual": finite_or_none(self.residual),
            "step": self.step,
            "detail": self.detail,
        }
        return found | ({"beside": self.beside} if self.beside else {})


@dataclass(frozen=True)
class _Trial:
    """One form of a mistake, and what it leaves at the step."""

    mistake: Mistake
    variation: Variation
    local: Local
    before: float
    first: _Trial | None = None

    @property
    def acts(self) -> set[str]:
        """The steps that this form computes differently."""
        return set(self.variation.acts or self.mistake.acts)

    @property
    def overlaps(self) -> bool:
        """Whether it undoes some of the mistake it is tried on top of."""
        return self.first is not None and bool(self.acts & self.first.acts)

    @property
    def explains(self) -> bool:
        """Within tolerance, not by rounding alone, and far nearer than without the mistake; or all but gone.

        Another formula than the right one may have larger errors than the right one's tolerance: 1 + erf(x) cancels.
        """
        if self.local.residual < GONE * self.before:
            return True
        return self.local.passed and not self.local.suspect and self.local.residual < self.before / 2


@dataclass(frozen=True)
class Diagnosis:
    """What was found at one step: findings, best first, and the run that makes the best explanation's mistake."""

    step: str
    findings: tuple[Finding, ...]
    case: Case | None


@np.errstate(all="ignore")  # their values may be anything
def diagnose(
    dump: Dump, case: Case, their_table: bool, results: list[StepResult]
) -> tuple[list[Diagnosis], list[StepResult]]:
    """Explain the failing steps one after the other, each with the mistakes found before already made.

    results  the comparison of the dump with this run
    Returns the explanations, and the comparison of the dump with the run that makes all mistakes found.
    Only the failing step is recomputed, from their recorded inputs, and only mistakes that act between those and it
    are tried.
    """
    case = case.change(theirs={match.step: match.readings[0].values for match in reversed(dump.matched)})
    found: list[Diagnosis] = []
    left: set[str] = set()
    for _ in range(ROUNDS):
        failing = _next_failing(results, left)
        if failing is None:
            break
        diagnosis = _explain(dump, case, their_table, failing, results)
        left.add(failing.step)
        if diagnosis.case is not None:
            case = diagnosis.case
            results = check(dump, case, their_table, end_to_end=False)
        if diagnosis.case is not None or not failing.local.passed:
            found.append(diagnosis)
    return found, results


def _next_failing(results: list[StepResult], left: set[str]) -> StepResult | None:
    waiting = [r for r in results if r.step not in left and (not r.local.passed or r.local.suspect)]
    return waiting[0] if waiting else None


def _explain(dump: Dump, case: Case, their_table: bool, failing: StepResult, results: list[StepResult]) -> Diagnosis:
    small = shrink_dump(dump, unseen_axes(chain_to(failing.step, dump.steps, case), case), results, failing.step)
    trials = list(_try_all(small, case, their_table, failing))
    explaining = [trial for trial in trials if trial.explains]
    if not explaining:
        pairs = list(_try_pairs(small, their_table, failing, trials))
        explaining = [trial for trial in pairs if trial.explains]
        trials += explaining
    best = _best(dump, their_table, explaining)
    before = failing.local.residual
    findings = _findings(failing.step, before, trials, best)
    return Diagnosis(failing.step, findings, None if best is None else best.variation.case)


def _worst_tokens(failing: StepResult, case: Case, chain: set[str]) -> tuple[slice, np.ndarray] | None:
    """Return the worst sequence and its worst tokens where steps take tokens one by one, None where all are needed."""
    errors = failing.by_position
    together = chain.intersection(MIXING) or case.recipe.granularity == "tensor"
    if together or case.past or errors.size <= 2 * TOKENS:
        return None
    sequence = int(errors.sum(axis=1).argmax())
    order = np.argsort(-errors[sequence], kind="stable")
    return slice(sequence, sequence + 1), np.sort(order[:TOKENS])


def _try_all(
    dump: Dump, case: Case, their_table: bool, failing: StepResult, first: _Trial | None = None
) -> Iterator[_Trial]:
    """Try every form of every mistake that acts between the recorded inputs and the step.

    Axes that do not matter there are cut. Where tokens are taken one by one, the worst few are tried, and all of them
    only with what explains those.
    """
    chain = chain_to(failing.step, dump.steps, case)
    one_weight = len(chain.intersection(EVERY_LINEAR)) == 1
    worst = _worst_tokens(failing, case, chain)
    unseen = unseen_axes(chain, case)
    few = None if worst is None else dump.take(*worst, case.past)
    for mistake in MISTAKES.values():
        if (first is not None and mistake is first.mistake) or not chain.intersection(mistake.acts):
            continue
        known: dict[str, Local] = {}
        for variation in mistake.vary(case):
            if not chain.intersection(variation.acts or mistake.acts):
                continue
            local = known.get(variation.form) if one_weight else None
            if local is None and few is not None and worst is not None and mistake.by_token:
                local = _local(few, shrink_run(variation.case.take(*worst), unseen), their_table, failing)
                local = None if local.passed else local
            local = local or _local(dump, shrink_run(variation.case, unseen), their_table, failing)
            known |= {variation.form: local} if variation.form else {}
            yield _Trial(mistake, variation, local, failing.local.residual, first)


def _local(dump: Dump, case: Case, their_table: bool, failing: StepResult) -> Local:
    results = check(dump, case, their_table, until=failing.step)
    return next(r.local for r in results if (r.step, r.dump_name) == (failing.step, failing.dump_name))


def _try_pairs(dump: Dump, their_table: bool, failing: StepResult, trials: list[_Trial]) -> Iterator[_Trial]:
    """Make the most helpful mistakes, and try all others on top."""
    before = failing.local.residual
    nearest = sorted(trials, key=lambda trial: trial.local.residual)
    helpful = [trial for trial in nearest if trial.local.residual < 0.8 * before][:3]
    for trial in helpful:
        yield from _try_all(dump, trial.variation.case, their_table, failing, trial)


def _best(dump: Dump, their_table: bool, explaining: list[_Trial]) -> _Trial | None:
    """Return the explanation that leaves least; of those that leave as little, the one that suits later steps best."""
    if not explaining:
        return None
    least = min(trial.local.residual for trial in explaining)
    near = [trial for trial in explaining if trial.local.residual <= APART * least + NOISE]
    if len(near) == 1:
        return near[0]

    def later(trial: _Trial) -> tuple[int, bool, float]:
        results = check(dump, trial.variation.case, their_table, end_to_end=False)
        wrong = sum(not r.local.passed or r.local.suspect for r in results)
        return wrong, trial.overlaps, trial.local.residual

    return min(near, key=later)


def _findings(step: str, before: float, trials: list[_Trial], best: _Trial | None) -> tuple[Finding, ...]:
    """Return one finding a mistake: the best first, those that leave as little, then the nearest of the others."""
    forms: dict[str, _Trial] = {}
    for trial in sorted(trials, key=lambda t: (t is not best, not t.explains, t.local.residual)):
        forms.setdefault(trial.mistake.id, trial)
    limit = -1.0 if best is None else APART * best.local.residual + NOISE
    found = []
    for trial in forms.values():
        explains = trial.explains and trial.local.residual <= limit
        if explains or trial.local.residual < 0.9 * before:
            beside = None if trial.first is None else trial.first.mistake.id
            details = (trial.mistake.id, trial.variation.detail, step, explains, trial.local.residual, before, beside)
            found.append(Finding(*details))
    found.sort(key=lambda f: (best is None or f.mistake != best.mistake.id, not f.explains, f.residual))
    others = sum(not f.explains for f in found)
    return tuple(found if others <= SHOWN else found[: len(found) - others + SHOWN])
