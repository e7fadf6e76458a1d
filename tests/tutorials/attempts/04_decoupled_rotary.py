"""Wrong attempts at tutorial 4: (exercise, attempt, words of its hint)."""

import numpy as np


def turned(x, angles, half_split=False):
    """Return the turned first and second numbers of all pairs, by complex numbers."""
    half = x.shape[-1] // 2
    a, b = (x[:, :half], x[:, half:]) if half_split else (x[:, ::2], x[:, 1::2])
    z = (a + 1j * b) * np.exp(1j * angles)
    return z.real, z.imag


def neighbours(a, b):
    return np.stack([a, b], axis=-1).reshape(len(a), -1)


def half_split(x, angles):
    return np.hstack(turned(x, angles, half_split=True))


def clockwise(x, angles):
    return neighbours(*turned(x, -angles))


def sine_for_cosine(x, angles):
    a, b = x[:, ::2], x[:, 1::2]
    return neighbours(a * np.sin(angles) - b * np.cos(angles), a * np.cos(angles) + b * np.sin(angles))


def put_in_halves(x, angles):
    return np.hstack(turned(x, angles))


def one_after_the_other(x, angles):
    x = x.copy()
    x[:, ::2] = x[:, ::2] * np.cos(angles) - x[:, 1::2] * np.sin(angles)
    x[:, 1::2] = x[:, ::2] * np.sin(angles) + x[:, 1::2] * np.cos(angles)
    return x


def degrees(x, angles):
    return neighbours(*turned(x, angles / 180 * np.pi))


def all_at_once(x, angles):
    return x * np.cos(angles)


def overwriting(x, angles):
    x[:, ::2] = x[:, ::2] * np.cos(angles)
    return x


def other_way(W):
    half = len(W) // 2
    return np.stack([W[:half], W[half:]], axis=1).reshape(W.shape)


def right_order(W):
    return np.concatenate([W[0::2], W[1::2]])


def twice(W):
    return right_order(right_order(W))


def untouched(W):
    return W


def second_first(W):
    return np.concatenate([W[1::2], W[0::2]])


def columns(W):
    return np.concatenate([W[:, 0::2], W[:, 1::2]], axis=1)


def omega(theta, R):
    return 1 / theta ** (np.arange(0, R, 2) / R)


def slow(theta, R, context):
    return omega(theta, R) * context < 2 * np.pi


def all_slowed(theta, R, factor, context):
    return omega(theta, R) / factor


def fast_slowed(theta, R, factor, context):
    w = omega(theta, R)
    return np.where(slow(theta, R, context), w, w / factor)


def hastened(theta, R, factor, context):
    w = omega(theta, R)
    return np.where(slow(theta, R, context), w * factor, w)


def radians_for_turns(theta, R, factor, context):
    w = omega(theta, R)
    return np.where(w * context < 1, w / factor, w)


def degrees_for_turns(theta, R, factor, context):
    w = omega(theta, R)
    return np.where(w * context < 360, w / factor, w)


def half_the_exponent(theta, R, factor, context):
    w = theta ** (-np.arange(R / 2) / R)
    return np.where(w * context < 2 * np.pi, w / factor, w)


def not_slowed(theta, R, factor, context):
    return omega(theta, R)


def larger_theta(theta, R, factor, context):
    return omega(theta * factor, R)


def all_numbers(theta, R, factor, context):
    return theta ** (-2 * np.arange(R) / R)


def mscale(factor, log=np.log):
    return 1 + log(factor) / 10


def no_mscale(N, R, factor):
    return 1 / np.sqrt(N + R)


def mscale_once(N, R, factor):
    return mscale(factor) / np.sqrt(N + R)


def nope_width(N, R, factor):
    return mscale(factor) ** 2 / np.sqrt(N)


def rotary_width(N, R, factor):
    return mscale(factor) ** 2 / np.sqrt(R)


def no_root(N, R, factor):
    return mscale(factor) ** 2 / (N + R)


def times_the_root(N, R, factor):
    return mscale(factor) ** 2 * np.sqrt(N + R)


def decimal_logarithm(N, R, factor):
    return mscale(factor, np.log10) ** 2 / np.sqrt(N + R)


def binary_logarithm(N, R, factor):
    return mscale(factor, np.log2) ** 2 / np.sqrt(N + R)


WRONG = [
    ("4.1", half_split, "half-split pairs"),
    ("4.1", clockwise, "clockwise"),
    ("4.1", sine_for_cosine, "changed places"),
    ("4.1", put_in_halves, "put the results back"),
    ("4.1", one_after_the_other, "the old a"),
    ("4.1", degrees, "radians already"),
    ("4.1", all_at_once, "have the shape of angles"),
    ("4.1", overwriting, "in place"),
    ("4.2", other_way, "the other way"),
    ("4.2", twice, "reorders twice"),
    ("4.2", untouched, "nothing has moved"),
    ("4.2", second_first, "halves have changed places"),
    ("4.2", columns, "these are the columns"),
    ("4.3", all_slowed, "fast pairs keep their speed; only"),
    ("4.3", fast_slowed, "the other way round"),
    ("4.3", hastened, "divided by the factor"),
    ("4.3", radians_for_turns, "2 pi radians"),
    ("4.3", degrees_for_turns, "the angles are radians"),
    ("4.3", half_the_exponent, "-2 i / R"),
    ("4.3", not_slowed, "no pair is slowed"),
    ("4.3", larger_theta, "NTK"),
    ("4.3", all_numbers, "expected shape [32], found [64]"),
    ("4.4", no_mscale, "where is mscale"),
    ("4.4", mscale_once, "counts twice"),
    ("4.4", nope_width, "all N + R numbers"),
    ("4.4", rotary_width, "all N + R numbers"),
    ("4.4", no_root, "square root"),
    ("4.4", times_the_root, "divide by the root"),
    ("4.4", decimal_logarithm, "natural"),
    ("4.4", binary_logarithm, "natural"),
]
