"""Wrong attempts at tutorial 6: (exercise, attempt, words of its hint)."""

import math

import numpy as np


def textbook(g):
    return g / (1 + np.exp(-g))


def exponential_above(g):
    return g * np.exp(g) / (np.exp(g) + 1)


def exponential_above_without_nan(g):
    return np.nan_to_num(exponential_above(g))


def magnitude_everywhere(g):
    return g / (1 + np.exp(-abs(g)))


def safe_sigmoid(g):
    e = np.exp(-abs(g))
    return np.where(g < 0, e, 1) / (1 + e)


def sigmoid(g):
    return 1 / (1 + np.exp(-g))


def clipped(g):
    return g / (1 + np.exp(np.clip(-g, -88, 88)))


def relu(g):
    return np.where(g > 0, g, 0)


def gelu(g):
    return np.array([0.5 * v * (1 + math.erf(v / 2**0.5)) for v in np.ravel(g)]).reshape(np.shape(g))


def with_if(g):
    return g / (1 + np.exp(-g)) if g > 0 else g * np.exp(g) / (1 + np.exp(g))


def halves(W_gate_up):
    return np.split(W_gate_up, 2)


def silu(g):
    return g * safe_sigmoid(g)


def up_first(h, W_gate_up, W_down):
    up, gate = halves(W_gate_up)
    return (silu(h @ gate.T) * (h @ up.T)) @ W_down.T


def every_second(h, W_gate_up, W_down):
    both = h @ W_gate_up.T
    return (silu(both[:, ::2]) * both[:, 1::2]) @ W_down.T


def every_second_swapped(h, W_gate_up, W_down):
    both = h @ W_gate_up.T
    return (silu(both[:, 1::2]) * both[:, ::2]) @ W_down.T


def silu_on_both(h, W_gate_up, W_down):
    gate, up = np.split(silu(h @ W_gate_up.T), 2, axis=1)
    return (gate * up) @ W_down.T


def silu_last(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up.T, 2, axis=1)
    return silu(gate * up) @ W_down.T


def silu_on_nothing(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up.T, 2, axis=1)
    return (gate * up) @ W_down.T


def added(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up.T, 2, axis=1)
    return (silu(gate) + up) @ W_down.T


def geglu(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up.T, 2, axis=1)
    return (gelu(gate) * up) @ W_down.T


def reglu(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up.T, 2, axis=1)
    return (relu(gate) * up) @ W_down.T


def glu(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up.T, 2, axis=1)
    return (sigmoid(gate) * up) @ W_down.T


def without_up(h, W_gate_up, W_down):
    return silu(h @ halves(W_gate_up)[0].T) @ W_down.T


def not_transposed(h, W_gate_up, W_down):
    gate, up = np.split(h @ W_gate_up, 2, axis=1)
    return (silu(gate) * up) @ W_down


def loudest(act, W_down, k):
    return np.argsort(-abs(act))[:k]


def shortest(act, W_down, k):
    return np.argsort(abs(act) * np.linalg.norm(W_down, axis=0))[:k]


def longest_last(act, W_down, k):
    return np.argsort(abs(act) * np.linalg.norm(W_down, axis=0))[-k:]


def signed(act, W_down, k):
    return np.argsort(act * np.linalg.norm(W_down, axis=0))[::-1][:k]


def longest_columns(act, W_down, k):
    return np.argsort(np.linalg.norm(W_down, axis=0))[::-1][:k]


def sums_of_columns(act, W_down, k):
    return np.argsort(abs((act * W_down).sum(axis=0)))[::-1][:k]


def lengths(act, W_down, k):
    return np.sort(np.linalg.norm(act * W_down, axis=0))[::-1][:k]


def rows(act, W_down, k):
    return np.argsort(-abs(act) * np.linalg.norm(W_down, axis=1))[:k]


def widened(g):
    return textbook(g.astype(np.float64))


def widened_and_back(g):
    return textbook(g.astype(np.float64)).astype(g.dtype)


def safe_but_wide(g):
    return silu(g.astype(np.float64))


def by_tanh(g):
    return g / 2 * (1 + np.tanh(g / 2))


def two_digits(g):
    return np.round(silu(g), 2)


def only_single(g):
    return silu(g.astype(np.float32))


def swish_with_a_slope(g):
    return g * safe_sigmoid(g * 1.702)


def smaller_half(h, W_gate_up, W_down):
    F = len(W_gate_up) // 2
    gate, up = h @ W_gate_up[:F].T, h @ W_gate_up[F:].T
    return (up * silu(gate) / 2) @ W_down.T


def squared_relu(act, W_down, k):
    return np.argsort(-np.maximum(act, 0) * np.linalg.norm(W_down, axis=0))[:k]


def as_floats(act, W_down, k):
    return np.argsort(-abs(act) * np.linalg.norm(W_down, axis=0))[:k].astype(float)


def largest_entries(act, W_down, k):
    return np.argsort(-np.abs(act * W_down).max(axis=0))[:k]


def by_logaddexp(g):
    return g * np.exp(-np.logaddexp(0, -g))


def by_where(g):
    e = np.exp(-abs(g))
    return np.where(g < 0, g * e / (1 + e), g / (1 + e))


def by_clipped_halves(g):
    return np.where(
        g >= 0, g / (1 + np.exp(-np.maximum(g, 0))), g * np.exp(np.minimum(g, 0)) / (1 + np.exp(np.minimum(g, 0)))
    )


def one_product(h, W_gate_up, W_down):
    both = h @ W_gate_up.T
    gate, up = both[:, : W_down.shape[1]], both[:, W_down.shape[1] :]
    return (textbook(gate) * up) @ W_down.T


def by_square(act, W_down, k):
    return np.argsort(((act * W_down) ** 2).sum(axis=0))[::-1][:k].tolist()


WRONG = [
    ("6.1", textbook, "loses silu(-89)"),
    ("6.1", exponential_above, "infinity / infinity"),
    ("6.1", exponential_above_without_nan, "hides it"),
    ("6.1", magnitude_everywhere, "right for positive g"),
    ("6.1", safe_sigmoid, "sigmoid alone"),
    ("6.1", sigmoid, "sigmoid alone"),
    ("6.1", clipped, "clipping the exponent"),
    ("6.1", relu, "this is relu"),
    ("6.1", gelu, "this is gelu"),
    ("6.1", with_if, "np.where on arrays"),
    ("6.2", up_first, "changed places"),
    ("6.2", every_second, "every second row"),
    ("6.2", every_second_swapped, "every second row for the up"),
    ("6.2", silu_on_both, "only the gate"),
    ("6.2", silu_last, "before the product"),
    ("6.2", silu_on_nothing, "where is silu"),
    ("6.2", added, "not added"),
    ("6.2", geglu, "this is gelu"),
    ("6.2", reglu, "this is relu"),
    ("6.2", glu, "this is the sigmoid"),
    ("6.2", without_up, "where is up"),
    ("6.2", not_transposed, "h @ W.T"),
    ("6.3", loudest, "these are the loudest"),
    ("6.3", shortest, "shortest first"),
    ("6.3", longest_last, "the longest last"),
    ("6.3", signed, "take its magnitude"),
    ("6.3", longest_columns, "how much of it is written"),
    ("6.3", sums_of_columns, "root of its sum of squares"),
    ("6.3", lengths, "return indices"),
    ("6.3", rows, "one length for each neuron"),
    ("6.1", widened, "moves the trap further out"),
    ("6.1", widened_and_back, "moves the trap further out"),
    ("6.1", safe_but_wide, "they are float64: return float32"),
    ("6.1", by_tanh, "never overflows, but"),
    ("6.1", two_digits, "the smallest case that fails"),
    ("6.1", only_single, "cut to float32"),
    ("6.1", swish_with_a_slope, "the smallest case that fails"),
    ("6.2", smaller_half, "the smallest case that fails"),
    ("6.3", squared_relu, "the smallest case that fails"),
    ("6.3", as_floats, "return int64"),
    ("6.3", largest_entries, "the smallest case that fails"),
]

RIGHT = [
    ("6.1", silu),
    ("6.1", by_logaddexp),
    ("6.1", by_where),
    ("6.1", by_clipped_halves),
    ("6.2", one_product),
    ("6.3", by_square),
]
