"""Scores of the conformance kit: what is wrong in an answer, and which known deviation accounts for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklab.conformance.part import Answer, Deviation, Part, matches, same_nan
from blocklab.numerics.formats import decode_plain


@dataclass(frozen=True)
class Explanation:
    """A deviation that was recomputed and found in the answer; `explains` counts wrong values that it predicts."""

    deviation: str
    sentence: str
    explains: int


@dataclass(frozen=True)
class Score:
    """How one part was answered.

    verdict       "pass", "fail", "differs" (an informational part), or "not answered"
    right, cases  values that are right, of how many
    problem       why the answer could not be compared, or None
    first_wrong   index, label, input, expected and found of the first wrong value
    explanations  confirmed deviations, the one that explains most first
    unexplained   wrong values that no confirmed deviation predicts
    """

    part: str
    verdict: str
    right: int
    cases: int
    problem: str | None = None
    first_wrong: Mapping[str, Any] | None = None
    explanations: tuple[Explanation, ...] = ()
    unexplained: int = 0


def score(part: Part, found: np.ndarray) -> Score:
    """Compare one answer with what is right, and explain what is wrong."""
    cases = part.answer.value.size
    verdict = "differs" if part.informational else "fail"
    problem = _wrong_kind(part, found)
    if problem is None and found.shape != part.answer.value.shape:
        problem = f"expected shape {list(part.answer.value.shape)}, found {list(found.shape)}"
    if problem is not None:
        return Score(part.name, verdict, 0, cases, problem, explanations=_of_another_shape(part, found))
    values = _comparable(part, found)
    right = _matching(part, values, part.answer)
    if right.all():
        return Score(part.name, "pass", cases, cases)
    explanations, unexplained = explain(part, values, ~right)
    first = _first_wrong(part, values, ~right)
    return Score(part.name, verdict, int(right.sum()), cases, None, first, explanations, unexplained)


def explain(part: Part, found: np.ndarray, wrong: np.ndarray) -> tuple[tuple[Explanation, ...], int]:
    """Return the deviations that were confirmed, and how many wrong values none of them predicts.

    A deviation is confirmed where the answer is what it predicts in every place where it predicts something wrong
    (places accounted for already aside), and where that accounts for more wrong values. The one that accounts for
    most comes first. A later one is given beside it if both predict the same and cannot be told apart.
    """
    open_ = [_Claim(part, d, found) for d in part.deviations if d.answer.value.shape == found.shape]
    chosen: list[_Claim] = []
    left = wrong.copy()
    while left.any():
        confirmed = [c for c in open_ if (c.predicted & left).any() and c.predicted[c.differs & ~(wrong & ~left)].all()]
        if not confirmed:
            break
        best = max(confirmed, key=lambda c: (int((c.predicted & left).sum()), c.sharp))
        chosen += [c for c in confirmed if c is best or c.same_as(best, wrong)]
        left &= ~best.predicted
    explanations = [Explanation(c.deviation.name, c.deviation.sentence, int(c.predicted[wrong].sum())) for c in chosen]
    return tuple(explanations), int(left.sum())


class _Claim:
    """A deviation beside an answer: where it predicts the answer, and where it predicts something wrong."""

    def __init__(self, part: Part, deviation: Deviation, found: np.ndarray) -> None:
        self.part, self.deviation = part, deviation
        self.value = _comparable(part, deviation.answer.value)
        self.predicted = _matching(part, found, deviation.answer)
        self.differs = ~_matching(part, self.value, part.answer)
        self.sharp = bool(np.array_equal(deviation.answer.low, deviation.answer.high, equal_nan=True))

    def same_as(self, other: _Claim, wrong: np.ndarray) -> bool:
        """Tell whether this predicts what the other does, in the places given."""
        return bool(_matching(self.part, self.value, other.deviation.answer)[wrong].all())


def _of_another_shape(part: Part, found: np.ndarray) -> tuple[Explanation, ...]:
    """Return the deviations that give an answer of another shape, where the whole answer is theirs."""
    if _wrong_kind(part, found):
        return ()
    values = _comparable(part, found)
    same = [d for d in part.deviations if d.answer.value.shape == found.shape != part.answer.value.shape]
    whole = [d for d in same if _matching(part, values, d.answer).all()]
    return tuple(Explanation(d.name, d.sentence, part.answer.value.size) for d in whole)


def _matching(part: Part, found: np.ndarray, answer: Answer) -> np.ndarray:
    if part.codes is not None:
        answer = Answer(*(same_nan(a, part.codes) for a in answer))
    return matches(found, answer, part.signed_zero)


def _wrong_kind(part: Part, found: np.ndarray) -> str | None:
    """Return what is wrong with an answer's dtype: codes must be integers, flags booleans or integers."""
    expected = part.answer.value.dtype.kind
    allowed = {"u": "ui", "b": "bui", "f": "fui"}[expected]
    if found.dtype.kind in allowed:
        return None
    return f"expected {part.output}, found {found.dtype}"


def _comparable(part: Part, found: np.ndarray) -> np.ndarray:
    """Return an answer in the dtype it is compared in: integers for codes, booleans, or float64."""
    if part.codes is not None:
        return same_nan(found.astype(np.int64), part.codes)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return found.astype(bool if part.answer.value.dtype.kind == "b" else np.float64)


def _first_wrong(part: Part, found: np.ndarray, wrong: np.ndarray) -> dict[str, Any]:
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    shown: dict[str, Any] = {"index": list(index)}
    if part.labels:
        shown["label"] = part.labels[index[0]]
    if part.elementwise is not None:
        given = part.inputs[part.elementwise]
        shown["input"] = text(given[index], part.codes if given.dtype == np.uint8 else None)
    expected = part.answer.value[index]
    if part.output == "float32":
        expected = np.float32(expected)
    return shown | {"expected": text(expected, part.codes), "found": text(found[index], part.codes)}


def text(value: Any, codes: str | None = None) -> str:
    """Return a number with its bits, as in "124.3 (0x42F8999A)"; a code as its bits with its value."""
    if isinstance(value, np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, np.integer):
        if codes is None or not 0 <= value < 256:
            return f"0x{int(value):02X}" if value >= 0 else str(value)
        return f"0x{int(value):02X} ({number(decode_plain(int(value), codes))})"
    if math.isnan(value):
        return "NaN"
    value = np.float64(value)
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    if value == narrow:
        return f"{value:.9g} (0x{int(narrow.view(np.uint32)):08X})"
    return f"{value:.17g} (0x{int(np.float64(value).view(np.uint64)):016X})"


def number(value: float) -> str:
    """Return a number in a few digits."""
    return "NaN" if math.isnan(value) else f"{value:g}"


def verdict_of(scores: Sequence[Score]) -> str:
    """Return "pass" when nothing that counts was answered wrongly, else "fail"."""
    return "fail" if any(s.verdict == "fail" for s in scores) else "pass"
