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


def no_turn(x, angles):
    return np.array(x)


def pairs_reversed(x, angles):
    return neighbours(*turned(x, angles[:, ::-1]))


def ends_swapped(x, angles):
    a, b = turned(x, angles)
    return neighbours(b, a)


def rows_turned_round(W):
    return W[::-1]


def halves_of_halves(W):
    return np.concatenate([W[0::4], W[1::4], W[2::4], W[3::4]])


def halves_swapped(W):
    return np.roll(W, len(W) // 2, axis=0)


def zeros_between(W):
    out = np.zeros_like(W)
    out[: len(W) // 2] = W[0::2]
    return out


def turned_over(W):
    return right_order(W).T


def more_than_one_turn(theta, R, factor, context):
    w = omega(theta, R)
    return np.where(w * context > 2 * np.pi, w, w / factor)


def first_half_kept(theta, R, factor, context):
    w = omega(theta, R)
    return np.where(np.arange(R // 2) < R // 4, w, w / factor)


def scale_over_root_of_factor(N, R, factor):
    return mscale(factor) ** 2 / np.sqrt(N + R) / np.sqrt(factor)


def without_the_one(N, R, factor):
    return (0.1 * np.log(factor)) ** 2 / np.sqrt(N + R)


def mscale_squared_twice(N, R, factor):
    return mscale(factor) ** 4 / np.sqrt(N + R)


def by_complex(x, angles):
    z = x.view(np.complex128) * np.exp(1j * angles)
    return z.view(np.float64)


def by_matrices(x, angles):
    c, s = np.cos(angles), np.sin(angles)
    M = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], -2)
    return np.einsum("tpij,tpj->tpi", M, x.reshape(len(x), -1, 2)).reshape(x.shape)


def by_reshape(W):
    return W.reshape(-1, 2, W.shape[1]).swapaxes(0, 1).reshape(W.shape)


def by_wavelength(theta, R, factor, context):
    w = np.exp(-np.arange(0, R, 2) / R * np.log(theta))
    return np.where(2 * np.pi / w <= context, w, w / factor)


def mscale_on_both(N, R, factor):
    return mscale(factor) * mscale(factor) / (N + R) ** 0.5


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
    ("4.1", no_turn, "the smallest case that fails"),
    ("4.1", pairs_reversed, "the smallest case that fails"),
    ("4.1", ends_swapped, "the smallest case that fails"),
    ("4.2", rows_turned_round, "the smallest case that fails"),
    ("4.2", halves_of_halves, "the smallest case that fails"),
    ("4.2", halves_swapped, "the smallest case that fails"),
    ("4.2", zeros_between, "the smallest case that fails"),
    ("4.2", turned_over, "expected shape"),
    ("4.3", more_than_one_turn, "at least one full turn"),
    ("4.3", first_half_kept, "the smallest case that fails"),
    ("4.4", scale_over_root_of_factor, "the smallest case that fails"),
    ("4.4", without_the_one, "the smallest case that fails"),
    ("4.4", mscale_squared_twice, "the smallest case that fails"),
]

RIGHT = [
    ("4.1", by_complex),
    ("4.1", by_matrices),
    ("4.2", right_order),
    ("4.2", by_reshape),
    ("4.3", by_wavelength),
    ("4.4", mscale_on_both),
]
