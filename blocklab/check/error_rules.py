"""How far open each step is before it is stored: the rules behind `tolerance`, but for attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from blocklab.block.steps import Step
from blocklab.check.case import Case
from blocklab.check.measures import ulp
from blocklab.numerics.tiles import tiled_product
from blocklab.numerics.weight import Weight

Variance: TypeAlias = np.ndarray | float


@dataclass(frozen=True)
class Open:
    """What is open before a step's result is stored; 0.0 where nothing is."""

    variance: Variance
    flips: Variance = 0.0


class State(Protocol):
    """What a rule knows: the run, and the values and variances of the steps before."""

    case: Case
    their_table: bool
    storage: str
    unit: float
    values: dict[str, np.ndarray]
    variance: dict[str, Variance]


Rule: TypeAlias = Callable[[State, Step, np.ndarray], Open]


def known(variance: Variance) -> bool:
    """Whether a value is known exactly."""
    return isinstance(variance, float) and variance == 0.0


def given(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return that nothing is open: the value is given."""
    return Open(0.0)


def norm(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in an rms_norm."""
    source = wire.inputs[0]
    gain, x = weight_of(u, wire).values().astype(np.float64), u.values[source].astype(np.float64)
    K = x.shape[-1]
    r = 1 / np.sqrt(np.square(x).mean(-1, keepdims=True) + u.case.block.eps(wire.name))  # [B, T, 1]
    variance = np.square(gain * r) * u.variance[source] + np.square((1 + (K / 12) ** 0.5) * u.unit * value)
    flips = np.abs(gain) * ulp(x * r, u.storage) if u.case.recipe.norm == "twice" else 0.0
    return Open(variance, flips)


def linear(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in a product with a weight."""
    source, weight = wire.inputs[0], weight_of(u, wire)
    K = weight.shape[1]
    x = all_keys(u, source).reshape(-1, K).astype(np.float64)
    variance = u.variance[source]
    if not known(variance):
        variance = all_keys_variance(u, source).reshape(x.shape)
        if u.case.recipe.fp8_linear:
            variance = _quantised(x, variance)
    products = _through(weight, K / 3 * u.unit**2 * np.square(x) + variance).reshape(value.shape)
    return Open(products + drift(K, value, u.unit))


def weight_of(u: State, wire: Step) -> Weight:
    """Return the parameter that a step uses."""
    return u.case.weights.named()[wire.weight or ""]


def drift(K: int, value: np.ndarray, unit: float) -> np.ndarray:
    """Return the variance of a dot of K products whose partial sums grow to the value steadily."""
    return np.asarray(K / 9 * unit**2 * square(value))


def _quantised(x: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the variance of x once it is quantised to e4m3fn with scales of its own."""
    e, size = np.sqrt(variance), np.abs(x)
    unit = np.maximum(size / 8, size.max(-1, keepdims=True) / 448 * 2.0**-9)
    return np.asarray(e * np.maximum(e, unit))


def _through(weight: Weight, variance: np.ndarray) -> np.ndarray:
    """Return sum w^2 var; var [.., K] is scaled so that float32 holds it."""
    largest = float(variance.max(initial=0)) or 1.0
    flat = (variance / largest).astype(np.float32)

    def squares(rows: slice, columns: slice) -> np.ndarray:
        return np.square(weight.values(rows, columns), dtype=np.float32)

    return np.asarray(tiled_product(flat, weight.shape[0], squares, "float32").astype(np.float64)) * largest


def first_part(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in the first part of a step's last axis."""
    return Open(_cut(u.variance[wire.inputs[0]], slice(None, value.shape[-1])))


def last_part(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in the last part of a step's last axis."""
    return Open(_cut(u.variance[wire.inputs[0]], slice(-value.shape[-1], None)))


def _cut(variance: Variance, part: slice) -> Variance:
    return variance if isinstance(variance, float) else np.asarray(variance)[..., part]


def activation(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in a silu.

    A sigmoid may be right to a few units of 1, not of itself: (1 + tanh(x / 2)) / 2, or 1 / (1 + exp(-x)) where the
    exponential overflows and 0 is left.
    """
    x = u.values[wire.inputs[0]].astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-x))
    slope = sigmoid * (1 + x * (1 - sigmoid))
    own = np.square((2 + np.abs(x) / 2) * u.unit * value) + np.square(u.unit * x)
    return Open(np.square(slope) * u.variance[wire.inputs[0]] + own)


def product(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in the product of two steps, element by element."""
    a, b = wire.inputs
    return _of_both(u, a, b, square(u.values[b]), square(u.values[a]))


def residual(u: State, wire: Step, value: np.ndarray) -> Open:
    """Return what is open in the sum of two steps."""
    a, b = wire.inputs
    return _of_both(u, a, b, 1.0, 1.0)


def _of_both(u: State, a: str, b: str, of_a: Variance, of_b: Variance) -> Open:
    """Return the variances of two steps, each times its factor, added."""
    if known(u.variance[a]) and known(u.variance[b]):
        return Open(0.0)
    return Open(of_a * u.variance[a] + of_b * u.variance[b])


def square(x: np.ndarray) -> np.ndarray:
    """Return x^2 in float64."""
    return np.square(x, dtype=np.float64)


def all_keys(u: State, name: str) -> np.ndarray:
    """Return keys [B, S, ...], those of the cache first where the step holds new ones only."""
    return u.case.with_cached(name, u.values[name])


def all_keys_variance(u: State, name: str) -> np.ndarray:
    """Return the variance of keys [B, S, ...]; cached ones are given."""
    variance = np.asarray(u.variance[name])
    missing = u.case.with_cached(name, u.values[name]).shape[1] - variance.shape[1]
    return np.pad(variance, [(0, 0), (missing, 0), *[(0, 0)] * (variance.ndim - 2)])
