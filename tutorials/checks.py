"""Check the exercises: `check("1.1", attempt)` says whether an attempt is right and, if not, which way it went wrong.

The exercises are in `exercises/`, one file a tutorial. Each has the right answer, arguments to try attempts on, and
the usual wrong turns as functions: an attempt that computes what a wrong turn computes gets its hint.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Turn:
    """A usual wrong turn: what it computes, and what to say to whoever took it."""

    computes: Callable[..., Any]
    hint: str


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    number      "1.2" is the second one of tutorial 1
    name        of the function that the reader writes
    right       computes the answer
    cases       tuples of arguments; they should tell every wrong turn from the right one and from the others
    turns       the first one that agrees with an attempt in all cases gives the hint
    well_done   what the answer is good for
    on_error    what to say to an attempt that raises an exception
    tolerance   largest error that is let through, over the largest number of the answer
    """

    number: str
    name: str
    right: Callable[..., Any]
    cases: list[tuple[Any, ...]]
    turns: tuple[Turn, ...]
    well_done: str
    on_error: str = ""
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What became of an attempt: state is "solved", "unsolved" or "refused"."""

    state: str
    text: str


def check(number: str, attempt: Callable[..., Any]) -> None:
    """Print whether an attempt at an exercise is right, or a hint."""
    exercise = find(number)
    verdict = judge(exercise, attempt)
    words = {"solved": "solved.", "unsolved": "not solved yet.", "refused": "not right yet."}[verdict.state]
    print(f"Exercise {number}, {exercise.name}: {words} {verdict.text}".rstrip())


def find(number: str) -> Exercise:
    """Return an exercise by its number.

    Raises LookupError for a number that does not exist.
    """
    tutorial = number.partition(".")[0]
    for file in sorted((Path(__file__).parent / "exercises").glob("[0-9]*.py")):
        if file.name.partition("_")[0].lstrip("0") == tutorial:
            for exercise in importlib.import_module(f"exercises.{file.stem}").EXERCISES:
                if exercise.number == number:
                    return exercise
    raise LookupError(f"there is no exercise {number!r}; numbers look like '3.1', the first one of tutorial 3")


def judge(exercise: Exercise, attempt: Callable[..., Any]) -> Verdict:
    """Try an attempt on all cases of an exercise."""
    if attempt is ...:
        return Verdict("unsolved", "")
    if not callable(attempt):
        return Verdict("refused", f"Hint: pass the function itself, {exercise.name}, without calling it.")
    found = []
    for case in exercise.cases:
        arguments = [np.copy(a) if isinstance(a, np.ndarray) else a for a in case]
        try:
            result = _quietly(attempt, arguments)
        except NotImplementedError:
            return Verdict("unsolved", "")
        except Exception as error:
            said = f"Hint: it raised {type(error).__name__}: {error}. Arguments: {_texts(case)}."
            return Verdict("refused", f"{said} {exercise.on_error}".rstrip())
        if result is None or result is ...:
            return Verdict("refused", "Hint: it returned nothing. Does it end with `return`?")
        for place, (before, after) in enumerate(zip(case, arguments, strict=True)):
            if isinstance(before, np.ndarray) and not np.array_equal(
                before, after, equal_nan=before.dtype.kind in "fc"
            ):
                return Verdict("refused", f"Hint: it changes its argument {place + 1} in place. Work on a copy.")
        found.append(result)
    expected = [_quietly(exercise.right, case) for case in exercise.cases]
    if all(alike(f, e, exercise.tolerance) for f, e in zip(found, expected, strict=True)):
        return Verdict("solved", exercise.well_done)
    for turn in exercise.turns:
        wrong = [_quietly(turn.computes, case) for case in exercise.cases]
        if all(alike(f, w, exercise.tolerance) for f, w in zip(found, wrong, strict=True)):
            return Verdict("refused", f"Hint: {turn.hint}")
    return Verdict("refused", f"Hint: {_first_difference(exercise, found, expected)}")


def alike(found: Any, expected: Any, tolerance: float) -> bool:
    """Return whether two results agree: in number, shape and value; integers and booleans exactly."""
    pairs = _pairs(found, expected)
    return pairs is not None and all(f.shape == e.shape and bool(_agree(f, e, tolerance).all()) for f, e in pairs)


def _pairs(found: Any, expected: Any) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return arrays side by side, or None where the attempt did not return as many as expected."""
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    if not isinstance(found, tuple | list) or len(found) != len(expected):
        return None
    try:
        return [(np.asarray(f), np.asarray(e)) for f, e in zip(found, expected, strict=True)]
    except ValueError:  # a ragged list is no array
        return None


def _agree(found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Return for each element whether it agrees; the shapes are equal."""
    if found.dtype.kind not in "biufc" or (found.dtype.kind == "b") != (expected.dtype.kind == "b"):
        return np.zeros(expected.shape, bool)
    if expected.dtype.kind in "biu":
        return found == expected
    finite = expected[np.isfinite(expected)]
    most = tolerance * float(np.abs(finite).max()) if finite.size else 0.0
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= most
    return near | (found == expected) | (np.isnan(found) & np.isnan(expected))


def _quietly(function: Callable[..., Any], arguments: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*arguments)


def _first_difference(exercise: Exercise, found: list[Any], expected: list[Any]) -> str:
    for case, f, e in zip(exercise.cases, found, expected, strict=True):
        if alike(f, e, exercise.tolerance):
            continue
        pairs = _pairs(f, e)
        if pairs is None:
            return f"expected {_text(e)}; found {_text(f)}."
        for number, (part, right) in enumerate(pairs):
            which = f"result {number + 1}: " if len(pairs) > 1 else ""
            if part.shape != right.shape:
                return (
                    f"{which}expected shape {list(right.shape)}, found {list(part.shape)}. Arguments: {_texts(case)}."
                )
            if (part.dtype.kind == "b") != (right.dtype.kind == "b") or part.dtype.kind not in "biufc":
                return f"{which}expected {_text(right)}, found {_text(part)}. Arguments: {_texts(case)}."
            wrong = ~_agree(part, right, exercise.tolerance)
            if wrong.any():
                place = tuple(int(i) for i in np.argwhere(wrong)[0])
                at = f" at {list(place)}" if place else ""
                values = f"expected {_number(right[place])}{at}, found {_number(part[place])}"
                return f"{which}{values}. Arguments: {_texts(case)}."
    raise AssertionError("the results agree")


def _number(value: Any) -> str:
    return f"{value:,}" if value.dtype.kind in "iu" else str(value) if value.dtype.kind == "b" else f"{value:.6g}"


def _texts(case: tuple[Any, ...]) -> str:
    return "; ".join(map(_text, case))


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
