"""Exercises of tutorial 4: rotation, the order of pairs, YaRN's step, the softmax scale."""

import math

import numpy as np
from checks import Exercise, Turn


def rotated(x, angles, *, sign=1.0, half_split=False, swap=False):
    cos, sin = np.cos(angles), sign * np.sin(angles)
    if swap:
        cos, sin = sin, cos
    half = x.shape[-1] // 2
    first, second = (slice(0, half), slice(half, None)) if half_split else (slice(0, None, 2), slice(1, None, 2))
    a, b = x[..., first], x[..., second]
    y = np.empty_like(x)
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    return y


def halves(x, angles):
    """Rotated right, but the first numbers of all pairs come first."""
    y = rotated(x, angles)
    return np.concatenate([y[..., 0::2], y[..., 1::2]], axis=-1)


def in_steps(x, angles):
    """The second line uses the first line's result instead of a."""
    cos, sin = np.cos(angles), np.sin(angles)
    y = np.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    y[..., 1::2] = y[..., 0::2] * sin + x[..., 1::2] * cos
    return y


def order(R):
    return np.r_[0:R:2, 1:R:2]


def speeds(theta, R, factor, context, *, exponent=2.0, turn=2 * math.pi, slow=None, all_pairs=False, flip=False):
    omega = theta ** (-exponent * np.arange(R // 2) / R)
    fast = context * omega / turn >= 1
    if flip:
        fast = ~fast
    return np.where(fast & (not all_pairs), omega, slow(omega) if slow else omega / factor)


def ntk(theta, R, factor, context):
    return (theta * factor) ** (-2.0 * np.arange(R // 2) / R)


def mscale(factor):
    return 0.1 * math.log(factor) + 1


_rng = np.random.default_rng(4)

EXERCISES = [
    Exercise(
        "4.1",
        "rotate_pairs",
        right=rotated,
        cases=[
            (_rng.standard_normal((5, 12)), _rng.uniform(-4, 4, (5, 6))),
            (np.array([[1.0, 0.0]]), np.array([[1.5]])),
            (np.array([[1.0, 0.0, 0.0, 1.0], [2.0, 3.0, 5.0, 7.0]]), np.array([[0.5, 2.0], [-1.0, 4.0]])),
        ],
        turns=(
            Turn(
                lambda x, a: rotated(x, a, half_split=True),
                "these are half-split pairs, (0, R/2) and so on. Neighbours are x[..., 0::2] and x[..., 1::2].",
            ),
            Turn(lambda x, a: rotated(x, a, sign=-1.0), "this turns clockwise: look at the signs of the sines."),
            Turn(lambda x, a: rotated(x, a, swap=True), "cosine and sine have changed places."),
            Turn(halves, "put the results back where they came from: y[..., 0::2] and y[..., 1::2]."),
            Turn(in_steps, "the second line needs the old a, not the turned one."),
            Turn(
                lambda x, a: rotated(x, np.deg2rad(a)),
                "the angles are radians already, which is what np.cos and np.sin take.",
            ),
        ),
        well_done="Turning back by the same angle gives x again: try it.",
        hint="Let a = x[..., 0::2] and b = x[..., 1::2], compute both turned ones from these two, and write "
        "them into an empty array at the places they came from.",
        on_error="x[..., 0::2] and x[..., 1::2] have the shape of angles.",
    ),
    Exercise(
        "4.2",
        "to_half_split",
        right=lambda W: W[order(len(W))],
        cases=[(_rng.standard_normal((8, 3)),), (_rng.standard_normal((12, 12)),), (np.arange(6.0)[:, None],)],
        turns=(
            Turn(
                lambda W: W[np.argsort(order(len(W)))],
                "this goes the other way, from half-split to interleaved: row 1 of the result must be row 2 of W.",
            ),
            Turn(
                lambda W: W[order(len(W))][order(len(W))],
                "this reorders twice. Once is right, twice is as bad as never.",
            ),
            Turn(lambda W: W, "nothing has moved: the first half must be rows 0, 2, 4, ..."),
            Turn(
                lambda W: W[np.r_[1 : len(W) : 2, 0 : len(W) : 2]],
                "the halves have changed places: first the first ones of all pairs, then the second ones.",
            ),
            Turn(
                lambda W: W[:, order(W.shape[1])],
                "these are the columns. The numbers that are rotated come from rows.",
            ),
        ),
        well_done="Both W_UQ (in every head, its last R rows) and W_DKV (its last R rows) need it, exactly once.",
        hint="Rows 2 i and 2 i + 1 of W make pair i. Half-split code looks for the first of them in row i, "
        "and for the second in row R/2 + i.",
    ),
    Exercise(
        "4.3",
        "stretched_speeds",
        right=speeds,
        cases=[
            (50_000.0, 64, 32.0, 4096),
            (10_000.0, 16, 4.0, 100),
            (500.0, 8, 2.0, 30),
            (256.0, 4, 4.0, 2 * math.pi),  # pair 0 makes one full turn exactly
        ],
        turns=(
            Turn(lambda *a: speeds(*a, all_pairs=True), "fast pairs keep their speed; only the others are slowed."),
            Turn(
                lambda *a: speeds(*a, flip=True), "the other way round: fast pairs keep their speed, slow ones change."
            ),
            Turn(
                lambda t, R, f, c: speeds(t, R, f, c, slow=lambda w: w * f),
                "slowed means that the speed is divided by the factor.",
            ),
            Turn(
                lambda t, R, f, c: speeds(t, R, f, np.nextafter(c, 0)),
                "at least one full turn: a pair that makes exactly one keeps its speed too.",
            ),
            Turn(lambda *a: speeds(*a, turn=1.0), "a full turn is 2 pi radians."),
            Turn(lambda *a: speeds(*a, turn=360.0), "the angles are radians: a full turn is 2 pi."),
            Turn(
                lambda *a: speeds(*a, exponent=1.0),
                "the exponent is -2 i / R: the last pair is nearly theta times slower.",
            ),
            Turn(lambda t, R, f, c: t ** (-2.0 * np.arange(R // 2) / R), "no pair is slowed yet."),
            Turn(ntk, "this raises theta, another way to stretch (NTK). YaRN divides the speeds of slow pairs."),
        ),
        well_done="These are Kimi K2's for (50000, 64, 32, 4096).",
        hint="The speeds are theta ** (-2 i / R), and context * speed / (2 pi) is the number of turns. "
        "np.where chooses.",
        on_error="There are R // 2 pairs.",
    ),
    Exercise(
        "4.4",
        "softmax_scale",
        right=lambda N, R, f: (N + R) ** -0.5 * mscale(f) ** 2,
        cases=[(128, 64, 32.0), (96, 64, 40.0), (20, 8, 2.0), (6, 2, 1.0)],
        turns=(
            Turn(lambda N, R, f: (N + R) ** -0.5, "longer texts need larger scores: where is mscale?"),
            Turn(
                lambda N, R, f: (N + R) ** -0.5 * mscale(f),
                "mscale belongs to the query and to the key: it counts twice.",
            ),
            Turn(lambda N, R, f: N**-0.5 * mscale(f) ** 2, "the dot product runs over all N + R numbers."),
            Turn(lambda N, R, f: R**-0.5 * mscale(f) ** 2, "the dot product runs over all N + R numbers."),
            Turn(lambda N, R, f: mscale(f) ** 2 / (N + R), "the width counts with its square root: (N + R)**-0.5."),
            Turn(lambda N, R, f: (N + R) ** 0.5 * mscale(f) ** 2, "divide by the root of the width."),
            Turn(
                lambda N, R, f: (N + R) ** -0.5 * (0.1 * math.log10(f) + 1) ** 2,
                "the logarithm in mscale is the natural one.",
            ),
            Turn(
                lambda N, R, f: (N + R) ** -0.5 * (0.1 * math.log2(f) + 1) ** 2,
                "the logarithm in mscale is the natural one.",
            ),
        ),
        well_done="0.1309 for Kimi K2.",
        hint="mscale is 0.1 ln(factor) + 1. It multiplies the query and the key, so their product holds it twice.",
    ),
]
