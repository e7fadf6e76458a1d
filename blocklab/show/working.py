"""How one number came about: the working of a calculation, and the verdict on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError
from blocklab.numerics import Recipe, get_format
from blocklab.numerics.weight import Weight
from blocklab.store.trace import Trace

WIDE = {"float32": (24, -126), "float64": (53, -1022)}
"""Significand bits and least exponent of the two formats that are not in `FORMATS`."""


@dataclass(frozen=True)
class Line:
    """One number of a working: its key, its value, and what it is."""

    key: str
    value: Any
    note: str = ""


@dataclass(frozen=True)
class Working:
    """The steps from a step's inputs to one of its numbers.

    inputs   what was read, as in "attn_norm[0, 5, :]"
    lines    numbers in the order of the calculation
    tables   name -> rows of a table, each a mapping from column to value
    total    the value before the last rounding, and `finish` what happens to it then
    bound    how far another order of summation may move `total`; 0 where the order is fixed
    """

    inputs: list[str]
    lines: list[Line]
    total: float
    finish: Callable[[float], float]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    bound: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """A working beside the traced value that it should give."""

    step: str
    index: dict[str, int]
    working: Working
    storage: str
    traced: float
    recomputed: float
    allowed: tuple[float, float]

    @property
    def matches(self) -> bool:
        """Whether the recomputed value is the traced one to the bit; two NaN match."""
        same = self.traced == self.recomputed and math.copysign(1, self.traced) == math.copysign(1, self.recomputed)
        return same or (math.isnan(self.traced) and math.isnan(self.recomputed))

    @property
    def accepted(self) -> bool:
        """Whether it matches, or differs by no more than another order of summation explains."""
        return self.matches or self.allowed[0] <= self.traced <= self.allowed[1]

    @property
    def ulps(self) -> float:
        """The distance in units in the last place of the storage format."""
        return 0.0 if self.matches else abs(self.traced - self.recomputed) / spacing(self.traced, self.storage)

    @property
    def verdict(self) -> str:
        """One sentence on the comparison."""
        if self.matches:
            return "matches the traced value to the bit"
        distance = f"{self.ulps:.3g} ulp of {self.storage}"
        if self.accepted:
            return f"differs from the traced value by {distance}, which another order of summation explains"
        return f"does not match: the traced value is {self.traced!r}, {distance} away"


@dataclass(frozen=True)
class Context:
    """What an explanation reads: a trace, the weights of its block, and its arithmetic."""

    trace: Trace
    weights: BlockWeights
    recipe: Recipe
    attention: str
    step: str

    @property
    def config(self) -> BlockConfig:
        """The sizes of the block."""
        return self.weights.config

    def value(self, name: str) -> np.ndarray:
        """Return the traced values of an input of the step, as the recipe carries them."""
        if name not in self.trace:
            raise InputError(f"explain {self.step}: it is computed from {name}, which the trace does not have")
        return self.trace[name].astype(self.recipe.carrier, copy=False)

    @property
    def storage(self) -> str:
        """The format that the step is stored in."""
        return self.recipe.format_of(self.step)

    def stored(self, total: Any) -> float:
        """Return a value of the step, rounded to its format."""
        value = np.atleast_1d(np.asarray(total))
        return float(self.recipe.round(value if value.dtype.kind == "f" else value.astype(np.float64), self.step)[0])

    def weight(self, name: str) -> Weight:
        """Return a weight by its name relative to the layer."""
        return self.weights.named()[name]


def explained(context: Context, index: dict[str, int], working: Working) -> Explanation:
    """Put a working beside the traced value."""
    traced = float(context.trace[context.step][tuple(index.values())])
    ends = [working.finish(working.total + sign * working.bound) for sign in (-1, 1)]
    return Explanation(
        context.step,
        index,
        working,
        context.trace.formats.get(context.step, context.storage),
        traced,
        working.finish(working.total),
        (min(ends), max(ends)) if working.bound else (math.inf, -math.inf),
    )


def spacing(x: float, format: str) -> float:
    """Return the distance of neighbouring numbers of a format at |x|: 2^(max(exponent, emin) - (p - 1))."""
    if format in WIDE:
        precision, emin = WIDE[format]
    else:
        precision, emin = get_format(format).precision, get_format(format).emin
    exponent = math.frexp(x)[1] - 1 if x and math.isfinite(x) else emin
    return math.ldexp(1.0, max(exponent, emin) - (precision - 1))
