"""Exercises of tutorial 6: a safe silu, a fused MLP, the neurons that matter."""

import math

import numpy as np
from checks import Exercise, Turn


def silu(g):
    decay = np.exp(-np.abs(g))
    return g * np.where(g >= 0, 1, decay) / (1 + decay)


def plain(g):
    return g / (1 + np.exp(-g))


def gelu(g):
    return np.vectorize(lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2, otypes=[float])(g)


def mlp(h, W, W_down, *, act=silu, swap=False, interleaved=False, on="gate", combine=np.multiply):
    F = W_down.shape[1]
    gate, up = (W[0::2], W[1::2]) if interleaved else (W[:F], W[F:])
    if swap:
        gate, up = up, gate
    g, u = h @ gate.T, h @ up.T
    if on == "both":
        g, u = act(g), act(u)
    elif on == "product":
        g, u = act(g * u), 1.0
    elif on == "gate":
        g = act(g)
    return combine(g, u) @ W_down.T


def top(act, W_down, k, *, size=np.abs, columns=True, longest=True):
    length = size(act) * (np.linalg.norm(W_down, axis=0) if columns else 1)
    return np.argsort(-length if longest else length)[:k]


_rng = np.random.default_rng(6)
_gates = np.concatenate([_rng.standard_normal(6) * 3, [0.0, -20.0, 20.0, -1000.0, 1000.0]])
_F, _D = 10, 7


def _neurons(F, D):
    act = _rng.standard_normal(F) * 2.0 ** _rng.permutation(F)
    W_down = _rng.standard_normal((D, F)) * 4.0 ** -_rng.permutation(F)
    return act, W_down


def _few():
    return np.array([0.5, -3.0, 2.0]), np.array([[4.0, 1.0, 0.0], [3.0, 0.5, 1.5]])


_SWAPPED = "the halves have changed places: the first F rows of W_gate_up are the gate's."

EXERCISES = [
    Exercise(
        "6.1",
        "safe_silu",
        right=silu,
        cases=[
            (_gates.reshape(1, -1),),
            (np.array([-89.0, -90.0, -92.0], np.float32),),
            (np.array([-1000.0, 1000.0, 0.0, -1.0, 2.0, -20.0], np.float32),),
            (np.array([-709.9, -715.0, -720.0]),),
            (np.array([[-0.5, 0.25]], np.float32),),
        ],
        turns=(
            Turn(
                plain,
                "in float32 this loses silu(-89): e^89 is infinite there. Use np.exp(-np.abs(g)); for negative g,"
                " numerator and denominator times e^g give g e^g / (1 + e^g).",
            ),
            Turn(
                lambda g: plain(g.astype(np.float64)).astype(g.dtype),
                "this widens float32 to float64 and moves the trap further out: silu(-720) is lost now, since e^720 is"
                " infinite in float64 as well. Use np.exp(-np.abs(g)), in g's own type.",
            ),
            Turn(
                lambda g: plain(g.astype(np.float64)),
                "this widens float32 to float64 and moves the trap further out: silu(-720) is lost now, since e^720 is"
                " infinite in float64 as well. Use np.exp(-np.abs(g)), in g's own type.",
            ),
            Turn(
                lambda g: silu(g.astype(np.float32)),
                "float64 came in and was cut to float32, where silu(-720) is 0: compute in g's own type.",
            ),
            Turn(
                lambda g: g * 0.5 * (1 + np.tanh(g * 0.5)),
                "this never overflows, but 1 + tanh(g / 2) is a difference of nearly equal numbers for negative g:"
                " silu(-20) becomes 0 in float32, and is -4e-8. Add a small exponential instead: np.exp(-np.abs(g)).",
            ),
            Turn(
                lambda g: g * np.exp(g) / (1 + np.exp(g)),
                "this overflows for large positive g: infinity / infinity is NaN. Use this form for negative g only.",
            ),
            Turn(
                lambda g: np.nan_to_num(g * np.exp(g) / (1 + np.exp(g))),
                "replacing NaN afterwards hides it: silu(1000) is 1000, not 0.",
            ),
            Turn(
                lambda g: g / (1 + np.exp(-np.abs(g))),
                "right for positive g. For negative g multiply numerator and denominator by e^g: the numerator becomes"
                " g e^g.",
            ),
            Turn(
                lambda g: np.where(g >= 0, 1, np.exp(-np.abs(g))) / (1 + np.exp(-np.abs(g))),
                "times g: this is the sigmoid alone.",
            ),
            Turn(lambda g: 1 / (1 + np.exp(-g)), "times g: this is the sigmoid alone."),
            Turn(
                lambda g: g / (1 + np.exp(-np.clip(g, -88, 88))),
                "clipping the exponent gives wrong values beyond it: silu(-1000) becomes about -6e-36 instead of 0.",
            ),
            Turn(lambda g: np.maximum(g, 0), "this is relu: silu is smooth, and a little below 0 for negative g."),
            Turn(gelu, "this is gelu, with the normal distribution. silu has g / (1 + e^-g)."),
        ),
        well_done="Nothing is lost at -89, and nothing overflows at 1000.",
        hint="With d = e^-|g|: silu is g / (1 + d) where g >= 0. Where g < 0 multiply numerator and "
        "denominator of g / (1 + e^-g) by e^g, which is d there.",
        on_error="`if` works on one number: use np.where on arrays.",
        tolerance=1e-12,
        same_type=True,
    ),
    Exercise(
        "6.2",
        "fused_mlp",
        right=mlp,
        cases=[
            (_rng.standard_normal((4, _D)), _rng.standard_normal((2 * _F, _D)), _rng.standard_normal((_D, _F))),
            (_rng.standard_normal((1, 6)), _rng.standard_normal((6, 6)), _rng.standard_normal((6, 3))),
            (
                np.array([[1.0, -2.0]]),
                np.array([[1.0, 0.5], [-1.0, 2.0], [0.5, 3.0], [2.0, 1.0]]),
                np.array([[1.0, 10.0]]),
            ),
        ],
        turns=(
            Turn(lambda *a: mlp(*a, swap=True), _SWAPPED),
            Turn(
                lambda *a: mlp(*a, interleaved=True),
                "this takes every second row for the gate. The first F rows are the gate's, the last F the up's.",
            ),
            Turn(
                lambda *a: mlp(*a, interleaved=True, swap=True),
                "this takes every second row for the up. The first F rows are the gate's.",
            ),
            Turn(lambda *a: mlp(*a, on="both"), "only the gate goes through silu; up stays as it is."),
            Turn(lambda *a: mlp(*a, on="product"), "silu comes before the product: silu(gate) * up."),
            Turn(lambda *a: mlp(*a, on="none"), "where is silu? Apply it to the gate."),
            Turn(lambda *a: mlp(*a, combine=np.add), "gate and up are multiplied, not added."),
            Turn(lambda *a: mlp(*a, act=gelu), "this is gelu: other models have it, this one has silu."),
            Turn(lambda *a: mlp(*a, act=lambda g: np.maximum(g, 0)), "this is relu: use silu."),
            Turn(
                lambda *a: mlp(*a, act=lambda g: 1 / (1 + np.exp(-g))),
                "this is the sigmoid (the first gated units had it): silu is g times the sigmoid of g.",
            ),
            Turn(lambda h, W, W_down: silu(h @ W.T)[:, : W_down.shape[1]] @ W_down.T, "where is up?"),
        ),
        well_done="One product instead of two: GPUs like that, and most programs store it so.",
        hint="Cut W_gate_up into two matrices of F rows, and follow the formula at the head of the tutorial. "
        "Rows of a matrix make outputs: h @ W.T.",
        on_error="F is W_down.shape[1]; rows of W are outputs, so the product is h @ W.T.",
    ),
    Exercise(
        "6.3",
        "top_neurons",
        right=top,
        cases=[
            (*_neurons(12, 5), 4),
            (*_neurons(12, 20), 12),
            (*_neurons(9, 9), 1),
            (*_neurons(30, 8), 10),
            (*_few(), 2),
        ],
        turns=(
            Turn(
                lambda *a: top(*a, columns=False),
                "these are the loudest. A neuron writes act times its column: its length counts too.",
            ),
            Turn(lambda *a: top(*a, longest=False), "shortest first: np.argsort goes up. Sort the negative lengths."),
            Turn(
                lambda act, W, k: top(act, W, len(act), longest=False)[-k:],
                "these are the right neurons, the longest last: turn the order round.",
            ),
            Turn(
                lambda *a: top(*a, size=lambda v: v),
                "an activation of -5 writes as much as one of 5: take its magnitude.",
            ),
            Turn(
                lambda act, W, k: top(np.ones_like(act), W, k),
                "these have the longest columns, but how much of it is written is act.",
            ),
            Turn(
                lambda act, W, k: np.argsort(-np.abs(W.sum(axis=0) * act))[:k],
                "the length of a column is the root of its sum of squares: np.linalg.norm(W_down, axis=0).",
            ),
            Turn(
                lambda act, W, k: np.sort(-np.abs(act) * np.linalg.norm(W, axis=0))[:k] * -1,
                "these are the lengths: return indices (np.argsort).",
            ),
        ),
        well_done="For the first e of the text it finds neuron 0.",
        hint="The vector that neuron f writes is act[f] times column f of W_down. Its length is |act[f]| "
        "times the column's length. np.argsort of the negative lengths does the rest.",
        on_error="np.linalg.norm(W_down, axis=0) has one length for each neuron, [F].",
        same_type=True,
    ),
]
