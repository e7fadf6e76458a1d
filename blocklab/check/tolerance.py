"""How far a correct implementation may be from ours at each step: derived, element by element.

Let u = 2^-24, half an ulp of float32 relative to the value: what an implementation works in. Every step has

    variance  of what is open before its result is stored: the order of a dot's sum, an ulp of exp, rounding
              differences of values since the last recorded ones
    flips     what one other decision at a rounding inside the step would change: RN(x r) before the gain, the
              dot before the softmax scale

and a recorded value passes where

    |theirs - ours| <= SIGMAS sqrt(variance) + flips + one ulp of the storage format + 2^-126.

The ulp is storage: two numbers that are closer than any bound still fall on two sides of a tie. 2^-126 is the least
normal float32: below it, GPUs and fast-math compilers may give zero. The variances:

    dot of K products      (K / 3) u^2 (sum (w x)^2 + y^2 / 3): each of K additions rounds a partial sum by up to u, a
                           third of which squared is its variance; partial sums wander to about |w x|, and may grow
                           steadily to the value y (k y / K after k products, whose mean square is y^2 / 3)
    dot of uncertain x     sum w^2 var(x)                                      (first order, independent)
    rms_norm               (g r)^2 var(x) + ((1 + sqrt(K / 12)) u y)^2: partial sums of squares are as large as the
                           sum where a loud channel comes first; the root halves their error
    rotation               cos^2, sin^2 of both parts, (1 + angle) u times the pair for the table: two libraries'
                           float32 frequencies differ by an ulp, which moves an angle by about position 2^-24, and by
                           what their exponents, products and YaRN's ramp do to them (`frequency_room`; as flips)
    softmax                p^2 ((1 - 2 p) var(s) + (sum p sd(s))^2) + ((2 + |s - max s| / 2 + sqrt(S / 3)) u p)^2
    silu                   silu'(x)^2 var(x) + ((2 + |x| / 2) u y)^2 + (u x)^2: a sigmoid made of tanh is right to a
                           few u of 1, and so is one whose exponential overflows
    product, sum           g^2 var(u) + u^2 var(g); var(a) + var(b)
    a step not recorded    adds (ulp^2 + flips^2) / 6, the variance of the difference of two roundings
    quantising x to FP8    e max(e, ulp_fp8) with e^2 = var(x): few codes change, each by a whole unit

A recorded value has variance 0: what follows is computed from it. Sources: N. Higham and T. Mary, A new approach to
probabilistic rounding error analysis (2019); Parker, Monte Carlo arithmetic (1997).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from blocklab.block.steps import Kind, steps_of
from blocklab.check import error_attention as attention
from blocklab.check import error_rules as rules
from blocklab.check.case import Case
from blocklab.check.error_rules import Open, Rule, Variance, known
from blocklab.check.graph import inputs_of
from blocklab.check.measures import LEAST_NORMAL, ulp

SIGMAS = 6.0
"""Of ten million normal numbers the largest is at 5.3 standard deviations."""

_COPIES = ("q_nope", "kv_latent", "k_nope", "v", "attn_masked")
"""Steps that take parts of a value or hide some: nothing is rounded."""


RULES: Mapping[Kind, Rule] = {
    "input": rules.given,
    "norm": rules.norm,
    "linear": rules.linear,
    "first part": rules.first_part,
    "last part": rules.last_part,
    "rotation": attention.rotation,
    "scores": attention.scores,
    "mask": attention.masked,
    "softmax": attention.softmax,
    "mix": attention.mixing,
    "absorb": attention.absorbed,
    "unabsorb": attention.absorbed,
    "silu": rules.activation,
    "product": rules.product,
    "sum": rules.residual,
}
"""Kind of step -> how far open it is before it is stored."""


class Uncertainty:
    """The variance of every value of one run, step by step as the values come.

    For each step in order: `before(name, value)`, then `recorded(name, theirs)` or `unrecorded(name, value, open)`.
    """

    def __init__(self, case: Case, their_table: bool) -> None:
        """Take the run whose values come; `their_table`: its rotary table is the dump's own."""
        self.case, self.their_table = case, their_table
        self.storage: str = case.recipe.storage
        self.unit = 2.0**-53 if self.storage == "float64" else 2.0**-24
        self.values: dict[str, np.ndarray] = {}
        self.variance: dict[str, Variance] = {}

    def before(self, name: str, value: np.ndarray) -> Open:
        """Return what is open in a step, from the values and variances of the steps it is computed from."""
        wire = steps_of(self.case.config, self.case.attention)[name]
        with np.errstate(all="ignore"):
            return RULES[wire.kind](self, wire, value)

    def tolerance(self, value: np.ndarray, theirs: np.ndarray, found: Open) -> np.ndarray:
        """Return how far each element of theirs may be from the value."""
        size = np.maximum(np.abs(value), np.abs(theirs))
        bound = SIGMAS * np.sqrt(found.variance) + found.flips + ulp(size, self.storage) + LEAST_NORMAL
        return np.asarray(np.where(np.isfinite(bound), bound, 0))

    def recorded(self, name: str, theirs: np.ndarray) -> None:
        """Continue from a recorded value, which is known exactly."""
        self.values[name], self.variance[name] = _usable(name, theirs), 0.0

    def unrecorded(self, name: str, value: np.ndarray, found: Open) -> None:
        """Continue from our own value, whose roundings may have gone another way on their side."""
        self.values[name] = _usable(name, value)
        if known(found.variance) and known(found.flips):
            self.variance[name] = 0.0
            return
        rounding = 0.0 if name in _COPIES else np.square(ulp(value, self.storage))
        variance = found.variance + (rounding + np.square(found.flips)) / 6
        self.variance[name] = np.where(np.isfinite(variance), variance, 0)

    def from_recorded(self, name: str) -> bool:
        """Whether all that the step is computed from was recorded (or follows from it without rounding)."""
        return all(known(self.variance.get(source, 0.0)) for source in inputs_of(name, self.case))


def _usable(name: str, value: np.ndarray) -> np.ndarray:
    """Return a value without NaN and infinity, which spoil what follows on both sides, but not other tolerances."""
    finite = np.isfinite(value)
    return value if name == "attn_masked" or finite.all() else np.where(finite, value, 0)
