"""What reports on two sets of steps have in common: a verdict, and words for numbers."""

from __future__ import annotations

import math

from blocklab.check.measures import BLOCK, Measures


class Outcome:
    """A comparison of steps, which passes when none of them differs."""

    @property
    def first_divergence(self) -> str | None:
        """The first step that differs, or None."""
        raise NotImplementedError

    @property
    def passed(self) -> bool:
        """Whether no step differs."""
        return self.first_divergence is None

    @property
    def verdict(self) -> str:
        """Return "pass" or "diverged"."""
        return "pass" if self.passed else "diverged"

    @property
    def exit_status(self) -> int:
        """0 for a pass, 1 otherwise."""
        return 0 if self.passed else 1


def share(equal: float) -> str:
    """Return a share in percent, rounded down: 100.00% means all."""
    return f"{math.floor(equal * 1e4) / 100:.2f}%"


def worst_place(m: Measures) -> str:
    """Return the worst place of a step in words: "b0 t17 h2", or "b0 t17 c128..255" with the worst 128 channels."""
    if m.worst_position is None:
        return ""
    b, t = m.worst_position
    head = "" if m.worst_head is None else f" h{m.worst_head}"
    block = "" if m.worst_block is None else f" c{m.worst_block}..{m.worst_block + BLOCK - 1}"
    return f"b{b} t{t}{head}{block}"


def not_finite(m: Measures, theirs: str, ours: str) -> str:
    """Return the counts that differ between two sides: "1 NaN in theirs, 0 in ours, 5 infinities in theirs, ..."."""
    counts = {"NaN": (m.nan_theirs, m.nan_ours), "infinities": (m.inf_theirs, m.inf_ours)}
    told = [f"{a} {name} in {theirs}, {b} in {ours}" for name, (a, b) in counts.items() if a != b]
    return ", ".join(told) or "NaN or infinities in other places"


def apart(m: Measures) -> str:
    """Return the relative error as text; "nan" where one side alone has NaN or infinity, which no number tells."""
    return "nan" if m.spoiled else f"{m.relative:.1e}"
