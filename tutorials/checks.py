"""Check the exercises: `check("1.1", attempt)` says whether an attempt is right and, if not, which way it went wrong.

The exercises are in `exercises/`, one file a tutorial. Each has the right answer, arguments to try attempts on, and
the usual wrong turns as functions: an attempt that computes what a wrong turn computes gets its hint. An attempt that
went another way is shown the smallest case in which it is wrong, its numbers beside the right ones.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHOWN = 24
"""Arrays of more numbers than this are shown by their type and shape alone."""

ENTRIES = 6
"""So many numbers that differ are shown."""


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
    cases       tuples of arguments; they should tell every wrong turn from the right one and from the others, and
                one of them should be small enough to look at
    turns       the first one that agrees with an attempt in all cases gives the hint
    well_done   what the answer is good for
    hint        a step on the way, for those who ask: the notebook has it folded below the exercise
    on_error    what to say to an attempt that raises an exception
    tolerance   largest relative error of each number that is let through; for float32 at least 128 last places,
                unless it is 0
    same_type   the type counts too: integers are no floats, and float32 is not float64
    """

    number: str
    name: str
    right: Callable[..., Any]
    cases: list[tuple[Any, ...]]
    turns: tuple[Turn, ...]
    well_done: str
    hint: str
    on_error: str = ""
    tolerance: float = 1e-10
    same_type: bool = False


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
        if file.name.partition("_")[0] == tutorial.zfill(2):
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
            said = f"Hint: it raised {type(error).__name__}: {error}. Arguments: {_kinds(case)}."
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
    if _all_alike(exercise, found, expected):
        return Verdict("solved", exercise.well_done)
    wrong = [[_quietly(turn.computes, case) for case in exercise.cases] for turn in exercise.turns]
    for same_type in (True, False) if exercise.same_type else (False,):  # a turn of the same types fits better
        for turn, values in zip(exercise.turns, wrong, strict=True):
            if all(alike(f, w, _slack(exercise.tolerance, f), same_type) for f, w in zip(found, values, strict=True)):
                return Verdict("refused", f"Hint: {turn.hint}")
    return Verdict("refused", f"Hint: {_smallest_failure(exercise, attempt, found, expected)}")


def alike(found: Any, expected: Any, tolerance: float, same_type: bool = False) -> bool:
    """Return whether two results agree: in number, shape and value; integers and booleans exactly."""
    pairs = _pairs(found, expected)
    return pairs is not None and all(
        f.shape == e.shape and bool(_agree(f, e, tolerance).all()) and not (same_type and _other_type(f, e))
        for f, e in pairs
    )


def _all_alike(exercise: Exercise, found: list[Any], expected: list[Any]) -> bool:
    return all(alike(f, e, exercise.tolerance, exercise.same_type) for f, e in zip(found, expected, strict=True))


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
    with np.errstate(all="ignore"):
        wide = expected.astype(np.float64)
        near = np.isfinite(wide) & (np.abs(found - wide) <= _slack(tolerance, expected) * np.abs(wide))
    return near | (found == expected) | (np.isnan(found) & np.isnan(expected))


def _slack(tolerance: float, result: Any) -> float:
    single = getattr(result, "dtype", None) == np.float32
    return max(tolerance, 128 * 2.0**-23) if tolerance and single else tolerance


def _other_type(found: np.ndarray, expected: np.ndarray) -> bool:
    if expected.dtype.kind in "iu":
        return found.dtype.kind not in "iu"
    return found.dtype != expected.dtype


def _quietly(function: Callable[..., Any], arguments: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*arguments)


def _smallest_failure(exercise: Exercise, attempt: Callable[..., Any], found: list[Any], expected: list[Any]) -> str:
    """Say what is wrong in the failing case with the fewest numbers."""
    failing = [
        (case, f, e)
        for case, f, e in zip(exercise.cases, found, expected, strict=True)
        if not alike(f, e, exercise.tolerance, exercise.same_type)
    ]
    case, f, e = min(failing, key=lambda one: sum(np.size(part) for part in one[0]))
    pairs = _pairs(f, e)
    if pairs is None:
        return f"expected {_kind(e)}; found {_kind(f)}. Arguments: {_kinds(case)}."
    for number, (part, right) in enumerate(pairs):
        which = f"result {number + 1}: " if len(pairs) > 1 else ""
        if part.shape != right.shape:
            return f"{which}expected shape {list(right.shape)}, found {list(part.shape)}. Arguments: {_kinds(case)}."
        if (part.dtype.kind == "b") != (right.dtype.kind == "b") or part.dtype.kind not in "biufc":
            return f"{which}expected {_kind(right)}, found {_kind(part)}. Arguments: {_kinds(case)}."
        agree = _agree(part, right, exercise.tolerance)
        if not agree.all():
            differ = f", {np.sum(~agree):,} of {agree.size:,} numbers differ" if agree.ndim else ""
            lines = [f"the smallest case that fails{differ}:"]
            lines += [f"{name} = {_value(value)}" for name, value in zip(_names(attempt, case), case, strict=True)]
            lines += [which.rstrip(" :")] if which else []
            lines += _side_by_side(part, right, np.argwhere(~agree))
            return "\n    ".join(lines)
        if exercise.same_type and _other_type(part, right):
            return f"{which}the values are right, but they are {part.dtype}: return {right.dtype}."
    raise AssertionError("the results agree")


def _side_by_side(found: np.ndarray, right: np.ndarray, places: np.ndarray) -> list[str]:
    rows = [("at", "yours", "right")] if right.ndim else [("", "yours", "right")]
    for place in map(tuple, places[:ENTRIES].tolist()):
        rows.append((str(list(place)) if place else "", _number(found[place]), _number(right[place])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    return lines + (["..."] if len(places) > ENTRIES else [])


def _names(attempt: Callable[..., Any], case: tuple[Any, ...]) -> list[str]:
    """Return the names of an attempt's arguments, as many as the case has."""
    try:
        names = list(inspect.signature(attempt).parameters)
    except (TypeError, ValueError):
        names = []
    return names if len(names) == len(case) else [f"argument {place + 1}" for place in range(len(case))]


def _number(value: Any) -> str:
    return f"{value:,}" if value.dtype.kind in "iu" else str(value) if value.dtype.kind == "b" else f"{value:.10g}"


def _value(value: Any) -> str:
    """Return an argument as text: its numbers, if they are few."""
    if isinstance(value, np.ndarray) and value.size <= SHOWN:
        return np.array2string(value, precision=6, separator=", ", max_line_width=100).replace("\n", "\n    ")
    if is_dataclass(value):
        sizes = [
            f"{f.name}={v}"
            for f in fields(value)
            if f.name.endswith(("hidden_size", "intermediate_size", "_heads", "_rank", "_dim"))
            and isinstance(v := getattr(value, f.name), int | None)
        ]
        return f"a config with {', '.join(sizes)}"
    return _kind(value)


def _kinds(case: tuple[Any, ...]) -> str:
    return "; ".join(map(_kind, case))


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_kind, value))})"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
