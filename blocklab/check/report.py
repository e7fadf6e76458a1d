"""What validation found: a table, a sentence, JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklab.check.diagnose import Diagnosis, Finding
from blocklab.check.dump import Unmatched
from blocklab.check.measures import Measures, finite_or_none
from blocklab.check.outcome import Outcome, apart, not_finite, share, worst_place
from blocklab.check.stepwise import StepResult
from blocklab.tables import format_table

MOSTLY = 0.1
"""A mistake that leaves less than this share of an error is named, although it does not explain all of it."""


@dataclass(frozen=True)
class Report(Outcome):
    """The result of `validate`.

    steps         one entry a compared tensor, in the order of computation
    not_compared  tensors of the dump that were compared with nothing
    diagnoses     explanations of the failing steps
    notes         what was assumed, and what else the reader should know
    proposal      a recipe that explains the dump better, or None
    foreign       the format of the dump's values, where the recipe would not give such values
    """

    source: str
    recipe: str
    attention: str
    steps: tuple[StepResult, ...]
    not_compared: tuple[Unmatched, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()
    proposal: str | None = None
    foreign: str | None = None

    @property
    def first_divergence(self) -> str | None:
        """The first step that fails, or that rounding hides and a mistake explains."""
        order = [r.step for r in self.steps]
        failing = [r.step for r in self.steps if not r.local.passed]
        explained = [d.step for d in self.diagnoses if d.case is not None]
        return min({*failing, *explained}, key=order.index, default=None)

    @property
    def diagnosis(self) -> list[Finding]:
        """All findings: the explanations of one step after the other, then what came near at the first."""
        found = [f for d in self.diagnoses for f in d.findings if f.explains]
        return found + [f for d in self.diagnoses for f in d.findings if not f.explains]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "verdict": self.verdict,
            "first_divergence": self.first_divergence,
            "sentence": self.sentence,
            "source": self.source,
            "recipe": self.recipe,
            "attention": self.attention,
            "proposed_recipe": self.proposal,
            "steps": [_step_json(r) for r in self.steps],
            "not_compared": [u.dump_name for u in self.not_compared],
            "why_not_compared": {u.dump_name: u.why for u in self.not_compared},
            "diagnosis": [f.to_json() for f in self.diagnosis],
            "notes": list(self.notes),
        }

    @property
    def sentence(self) -> str:
        """The verdict in words that a person can act on."""
        text = _passed(self) if self.passed else " ".join(_diverged(self))
        if self.foreign:
            text = (
                f"The values of the dump are {self.foreign} numbers, which recipe {self.recipe} would not give: it was"
                f" computed, or saved, in {self.foreign}. {text}"
            )
        if self.proposal:
            text += f" Recipe {self.proposal} explains it better: try --recipe {self.proposal}."
        return text

    def table(self) -> str:
        """Return one line a step, local and end to end side by side, then notes and the verdict."""
        lines = [
            f"{self.source}: recipe {self.recipe}, attention {self.attention}",
            "",
            format_table(_HEADS, map(_row, self.steps), "<<<>>>>><>><"),
        ]
        read = [f"  {r.dump_name}: {r.how}" for r in self.steps if "[" in r.how or "half-split" in r.how]
        lines += ["", "read otherwise than as they are:", *read] if read else []
        if self.not_compared:
            lines += ["", "not compared:"]
            lines += [f"  {u.dump_name}: {u.why}" for u in self.not_compared]
        findings = self.diagnosis
        if findings:
            lines += ["", "diagnosis:"]
            lines += [f"  {_mark(f)} {f.mistake} at {f.step}: {f.detail}; leaves {f.residual:.1e}" for f in findings]
        lines += ["", *(f"note: {note}" for note in self.notes), *([""] if self.notes else []), self.sentence]
        return "\n".join(lines)

    def errors_by_position(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return step -> (local, end to end): the relative error of each query position, [B, T]; what a plot shows."""
        found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for r in self.steps:
            far = r.by_position if r.by_position_end_to_end is None else r.by_position_end_to_end
            found.setdefault(r.step, (r.by_position, far))
        return found


def _mark(finding: Finding) -> str:
    return "explains  " if finding.explains else "comes near"


def _step_json(r: StepResult) -> dict[str, Any]:
    local = r.local.measures.to_json() | {
        "pass": r.local.passed,
        "of_tolerance": finite_or_none(r.local.within),
        "of_rounding": finite_or_none(r.local.rounding),
        "from_recorded_inputs": r.local.direct,
        "only_in": r.local.only_in or None,
    }
    far = None if r.end_to_end is None else r.end_to_end.to_json() | {"pass": r.end_to_end_passed}
    matched = {"step": r.step, "dump_name": r.dump_name, "matched": r.how, "also": list(r.also)}
    return {**matched, "local": local, "end_to_end": far}


_HEADS = ("step", "dump name", "", "equal", "ulp", "error", "of tol.", "ratio", "worst at", "end to end", "ratio", "")


def _row(r: StepResult) -> tuple[str, ...]:
    m, e = r.local.measures, r.end_to_end
    far = ("", "", "") if e is None else (apart(e), _ratio(e), "" if r.end_to_end_passed else "far")
    mark = "ok" if r.local.passed else "FAILS"
    return (
        *(r.step, r.dump_name, mark, share(m.equal), f"{m.max_ulp:.3g}", apart(m)),
        *(f"{max(r.local.within, r.local.rounding if r.local.direct else 0):.2g}", _ratio(m), worst_place(m)),
        *far,
    )


def _ratio(m: Measures) -> str:
    return f"{m.ratio:.4f}"


def _passed(report: Report) -> str:
    worst = max(report.steps, key=lambda r: r.local.within)
    text = f"All {len(report.steps)} compared tensors are within tolerance for recipe {report.recipe}"
    closest = f" ({worst.step} comes closest, at {worst.local.within:.0%} of its own)"
    text += closest if worst.local.within else ", and equal"
    last = report.steps[-1]
    if last.end_to_end is not None:
        text += f"; end to end `{last.step}` differs by {last.end_to_end.relative:.1e} in norm"
    return text + "."


def _diverged(report: Report) -> list[str]:
    """Return sentences: the first step that differs and why, later ones that are explained, and those that are not."""
    step = report.first_divergence
    first = max((r for r in report.steps if r.step == step), key=lambda r: (not r.local.passed, r.local.suspect))
    opening = f"`{first.step}` ({first.dump_name}) is the first step that differs, {_how(first)}"
    if not report.diagnoses:
        return [f"{opening}."]
    explained = [d for d in report.diagnoses if d.case is not None and d.step != step]
    others = [d.step for d in report.diagnoses if d.case is None and d.step != step]
    own = next((d for d in report.diagnoses if d.step == step), None)
    lines = [f"{opening}: {_why(own)}" if own else f"{opening}."]
    lines += [f"Then `{d.step}`: {_why(d)}" for d in explained]
    return lines + ([f"Nor is {', '.join(f'`{s}`' for s in others)} explained."] if others else [])


def _how(r: StepResult) -> str:
    m = r.local.measures
    if m.spoiled:
        return not_finite(m, "theirs", "ours")
    if r.local.within <= 1:
        return f"{1 - m.equal:.0%} of its elements by rounding"
    text = f"by {m.relative:.1e} in norm, most at {worst_place(m)}"
    if r.local.only_in:
        text += f", only in {r.local.only_in}"
    if math.isfinite(m.ratio) and abs(m.ratio - 1) > 1e-3 and m.cosine > 0.999:
        text += f", theirs being {m.ratio:.4f} times ours"
    return text


def _why(diagnosis: Diagnosis) -> str:
    explaining = [f for f in diagnosis.findings if f.explains]
    if not explaining:
        near = min(diagnosis.findings, key=lambda f: f.residual, default=None)
        if near is None or not near.residual < MOSTLY * near.before:
            return "no mistake of the catalogue explains it."
        most = f"{near.detail} ({near.mistake}) explains most: {near.residual:.1e} is left"
        return f"no mistake of the catalogue explains all of it, but {most}."
    best, others = explaining[0], [f for f in explaining[1:] if f.beside is None]
    text = f"{best.detail} ({best.mistake})"
    if best.beside:
        text += f", beside {best.beside}"
    if others:
        text += f"; this dump cannot tell it from {', '.join(f.mistake for f in others)}"
    return text + "."
