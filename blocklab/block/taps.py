"""Taps: functions that see every named value of a block as it is computed, and may replace it.

`value = tap("q_latent", value)`: a tap is a function of a name and a value that returns the value, or another of the
same shape; it never changes the value in place, which may be the caller's own input. One with a method `wants(name)`
is asked only for the names it wants, so that values nobody listens to (scores of long sequences, quantised inputs)
need not be built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from blocklab.block.steps import QUANTISED, STEPS
from blocklab.errors import InputError
from blocklab.xp import Array

Tap: TypeAlias = Callable[[str, Array], Array]


def no_tap(name: str, value: Array) -> Array:
    """Return the value: nobody listens."""
    return value


def listens(tap: Tap, name: str) -> bool:
    """Whether `tap` sees `name`; a plain function sees the steps, and not the quantised inputs."""
    if tap is no_tap:
        return False
    wants: Callable[[str], bool] | None = getattr(tap, "wants", None)
    return wants(name) if wants is not None else name in STEPS


def see(tap: Tap, name: str, value: Array) -> Array:
    """Show `value` to `tap` under `name` and return what the tap makes of it.

    Floats of another precision are taken in the value's own; they are not rounded to the storage format.
    Raises InputError when the tap returns another shape or another kind of number.
    """
    if not listens(tap, name):
        return value
    seen = tap(name, value)
    if getattr(seen, "shape", None) != value.shape:
        raise InputError(
            f"the tap at {name} must return an array of shape {list(value.shape)};"
            f" found {list(getattr(seen, 'shape', ())) or type(seen).__name__}"
        )
    if seen.dtype == value.dtype:
        return seen
    if value.dtype.kind != "f" or seen.dtype.kind != "f":
        raise InputError(f"the tap at {name} must return {value.dtype} values; found {seen.dtype}")
    return seen.astype(value.dtype)


class Replace:
    """A tap that replaces values: an array, or a function of the value, for each name."""

    def __init__(self, **replacements: Array | Callable[[Array], Array]) -> None:
        """Take `name=array_or_function`, with **{"up.in.codes": ...} for a quantised input.

        A step that a run does not compute is not replaced. Raises InputError for a name that no run has.
        """
        for name in replacements:
            if name not in STEPS and name not in QUANTISED:
                kind, names = ("quantised inputs", QUANTISED) if ".in." in name else ("steps", STEPS)
                raise InputError(f"cannot replace {name!r}: the {kind} are {', '.join(names)}")
        self.replacements = replacements

    def wants(self, name: str) -> bool:
        """Whether `name` is replaced."""
        return name in self.replacements

    def __call__(self, name: str, value: Array) -> Array:
        """Return the replacement."""
        new = self.replacements[name]
        return new(value) if callable(new) else new


class Chain:
    """Several taps, one after the other: each sees what the one before it returned."""

    def __init__(self, *taps: Tap) -> None:
        """Take the taps in order."""
        self.taps = taps

    def wants(self, name: str) -> bool:
        """Whether any of the taps sees `name`."""
        return any(listens(tap, name) for tap in self.taps)

    def __call__(self, name: str, value: Array) -> Array:
        """Pass the value through every tap that listens."""
        for tap in self.taps:
            value = see(tap, name, value)
        return value
