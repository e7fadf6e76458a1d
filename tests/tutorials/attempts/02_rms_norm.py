"""Wrong attempts at tutorial 2: (exercise, attempt, words of its hint)."""

import numpy as np

from blocklab.numerics import round_to


def bf16(x):
    return round_to(x, "bfloat16")


def factor(x, eps):
    return (np.square(x).mean(axis=-1, keepdims=True) + eps) ** -0.5


def once(x, gain, eps):
    return bf16(x * factor(x, eps) * gain)


def first_only(x, gain, eps):
    return bf16(x * factor(x, eps)) * gain


def not_at_all(x, gain, eps):
    return x * factor(x, eps) * gain


def both_after_the_gain(x, gain, eps):
    y = bf16(x * factor(x, eps) * gain)
    return bf16(y)


def eps_outside(x, gain, eps):
    size = np.sqrt(np.square(x).mean(axis=-1, keepdims=True))
    return bf16(gain * bf16(x / (size + eps)))


def no_eps(x, gain, eps):
    return bf16(gain * bf16(x * factor(x, 0)))


def over_everything(x, gain, eps):
    return bf16(gain * bf16(x / np.sqrt((x * x).mean() + eps)))


def sum_of_squares(x, gain, eps):
    return bf16(gain * bf16(x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + eps)))


def no_root(x, gain, eps):
    return bf16(gain * bf16(x / ((x * x).mean(axis=-1, keepdims=True) + eps)))


def layer_norm(x, gain, eps):
    x = x - x.mean(axis=-1, keepdims=True)
    return bf16(gain * bf16(x * factor(x, eps)))


def variance(x, gain, eps):
    return bf16(gain * bf16(x / np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)))


def gain_plus_one(x, gain, eps):
    return bf16((gain + 1) * bf16(x * factor(x, eps)))


def gain_added(x, gain, eps):
    return bf16(gain + bf16(x * factor(x, eps)))


def rounded_factor(x, gain, eps):
    return bf16(gain * bf16(x * bf16(factor(x, eps))))


def no_keepdims(x, gain, eps):
    return bf16(gain * bf16(x / np.sqrt((x * x).mean(axis=-1) + eps)))


def float16(x, gain, eps):
    return (gain * (x * factor(x, eps)).astype(np.float16)).astype(np.float16)


def rows(W, gain):
    return np.diag(gain)[: len(W), : len(W)] @ W


def divided(W, gain):
    return W / gain[None]


def one_vector(W, gain):
    return W.dot(gain)


def transposed(W, gain):
    return np.diag(gain) @ W.T


def column_vector(W, gain):
    return W * gain[:, None]


def in_place(W, gain):
    W *= gain
    return W


def inverse_ratio(rms, a, b):
    return ((rms**2 + a) / (rms**2 + b)) ** 0.5


def ratio_of_squares(rms, a, b):
    return (rms * rms + b) / (rms * rms + a)


def added_to_rms(rms, a, b):
    return (rms + b) / (rms + a)


def rms_not_squared(rms, a, b):
    return np.sqrt(rms + b) / np.sqrt(rms + a)


def limit(rms, a, b):
    return np.sqrt(b / a)


def rounded_input(x, gain, eps):
    x = bf16(x)
    return bf16(gain * bf16(x * factor(x, eps)))


def rounded_after_float32(x, gain, eps):
    return np.float32(gain * np.float32(x * factor(x, eps)))


def median_size(x, gain, eps):
    return bf16(gain * bf16(x / np.sqrt(np.median(x * x, axis=-1, keepdims=True) + eps)))


def gain_of_ones(W, gain):
    return W * np.ones_like(gain)


def on_both_sides(W, gain):
    return gain[: len(W), None] * W * gain


def squared_gain(W, gain):
    return W * gain**2


def mean_gain(W, gain):
    return W * gain.mean()


def sorted_gain(W, gain):
    return W * np.sort(gain)


def eps_alone(rms, a, b):
    return b / a


def difference(rms, a, b):
    return 1 / np.sqrt(rms**2 + a) - 1 / np.sqrt(rms**2 + b)


def first_length(rms, a, b):
    return rms / np.sqrt(rms**2 + a)


def eps_squared(rms, a, b):
    return np.sqrt((rms**2 + b**2) / (rms**2 + a**2))


def one(rms, a, b):
    return 1.0


def twice(x, gain, eps):
    return bf16(gain * bf16(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)))


def twice_by_norm(x, gain, eps):
    size = np.linalg.norm(x, axis=-1, keepdims=True) / np.sqrt(x.shape[-1])
    return bf16(bf16(x / np.hypot(size, np.sqrt(eps))) * gain)


def diagonal(W, gain):
    return W @ np.diag(gain)


def einsum(W, gain):
    return np.einsum("md,d->md", W, gain)


def ratio_of_lengths(rms, a, b):
    return np.hypot(rms, b**0.5) / np.hypot(rms, a**0.5)


WRONG = [
    ("2.1", once, "rounds once"),
    ("2.1", first_only, "second time"),
    ("2.1", not_at_all, "never rounds to bfloat16"),
    ("2.1", both_after_the_gain, "rounds once"),
    ("2.1", eps_outside, "under the root"),
    ("2.1", no_eps, "where is eps"),
    ("2.1", over_everything, "its own rms"),
    ("2.1", sum_of_squares, "not their sum"),
    ("2.1", no_root, "root of the mean square"),
    ("2.1", layer_norm, "does not subtract the mean"),
    ("2.1", variance, "variance subtracts"),
    ("2.1", gain_plus_one, "Gemma"),
    ("2.1", gain_added, "multiplies, it is not added"),
    ("2.1", rounded_factor, "r itself stays wide"),
    ("2.1", no_keepdims, "keepdims=True"),
    ("2.1", float16, "the smallest case that fails"),
    ("2.2", rows, "scales rows"),
    ("2.2", divided, "multiply by the gain"),
    ("2.2", one_vector, "product with one vector"),
    ("2.2", transposed, "No transpose"),
    ("2.2", column_vector, "meets the second axis"),
    ("2.2", in_place, "in place"),
    ("2.3", inverse_ratio, "upside down"),
    ("2.3", ratio_of_squares, "root of the ratio"),
    ("2.3", added_to_rms, "not to the rms"),
    ("2.3", rms_not_squared, "square the rms first"),
    ("2.3", limit, "token's own size"),
    ("2.1", rounded_input, "a third rounding"),
    ("2.1", rounded_after_float32, "never rounds to bfloat16"),
    ("2.1", median_size, "the smallest case that fails"),
    ("2.2", gain_of_ones, "the smallest case that fails"),
    ("2.2", on_both_sides, "the smallest case that fails"),
    ("2.2", squared_gain, "the smallest case that fails"),
    ("2.2", mean_gain, "the smallest case that fails"),
    ("2.2", sorted_gain, "the smallest case that fails"),
    ("2.3", eps_alone, "the smallest case that fails"),
    ("2.3", difference, "the smallest case that fails"),
    ("2.3", first_length, "the smallest case that fails"),
    ("2.3", eps_squared, "the smallest case that fails"),
    ("2.3", one, "the smallest case that fails"),
]

RIGHT = [
    ("2.1", twice),
    ("2.1", twice_by_norm),
    ("2.2", diagonal),
    ("2.2", einsum),
    ("2.3", ratio_of_lengths),
]
