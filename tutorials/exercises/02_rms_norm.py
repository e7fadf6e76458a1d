"""Exercises of tutorial 2: the norm that rounds twice, the folded gain, eps."""

import numpy as np
from checks import Exercise, Turn

from blocklab.numerics import round_to


def bf16(x):
    return round_to(np.asarray(x, np.float64), "bfloat16")


def normed(x, eps, axis=-1, mean=np.mean, root=np.sqrt):
    return x / root(mean(x**2, axis=axis, keepdims=True) + eps)


def twice(x, gain, eps):
    return bf16(gain * bf16(normed(x, eps)))


_rng = np.random.default_rng(2)
_loud = bf16(_rng.standard_normal((3, 5, 24)) * 2.0 ** np.arange(24) / 2**18)
_quiet = bf16(0.002 + 1e-3 * _rng.standard_normal((4, 24)))
_gain = bf16(np.exp(0.3 * _rng.standard_normal(24)))
_square = _rng.standard_normal((24, 24))
_flat = _rng.standard_normal((7, 24))

EXERCISES = [
    Exercise(
        "2.1",
        "rms_norm_twice",
        right=twice,
        cases=[
            (_loud, _gain, 1e-6),
            (_quiet, _gain, 1e-6),
            (_quiet[0], _gain, 1e-5),
            (_flat, np.exp(0.3 * _flat[0]), 1e-6),
            (np.array([[0.3, -0.4], [0.0, 0.0], [0.02, 0.001]]), np.array([0.75, 1.5]), 1e-4),
        ],
        turns=(
            Turn(
                lambda x, g, eps: bf16(g * normed(x, eps)),
                "this is the form that rounds once, after the gain: round x r as well, before the gain.",
            ),
            Turn(lambda x, g, eps: g * bf16(normed(x, eps)), "round a second time, after the gain."),
            Turn(lambda x, g, eps: g * normed(x, eps), "it never rounds to bfloat16: call bf16 twice."),
            Turn(
                lambda x, g, eps: bf16(g * bf16(x / (np.sqrt(np.mean(x**2, axis=-1, keepdims=True)) + eps))),
                "eps belongs under the root, beside the mean of squares.",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(normed(x, 0.0))),
                "where is eps? It goes under the root, beside the mean of squares.",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(normed(x, eps, axis=None))),
                "every token has its own rms: take the mean over the last axis only (axis=-1, keepdims=True).",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(normed(x, eps, mean=np.sum))),
                "take the mean of the squares, not their sum.",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(normed(x, eps, root=np.asarray))),
                "divide by the root of the mean square.",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(normed(x - x.mean(axis=-1, keepdims=True), eps))),
                "this is LayerNorm: RMSNorm does not subtract the mean.",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(x / np.sqrt(x.var(axis=-1, keepdims=True) + eps))),
                "the variance subtracts the mean first: take the mean of x**2.",
            ),
            Turn(
                lambda x, g, eps: bf16((1 + g) * bf16(normed(x, eps))),
                "the gain multiplies as it is: other models (Gemma) store g - 1, this one does not.",
            ),
            Turn(
                lambda x, g, eps: bf16(bf16(normed(x, eps)) + g),
                "the gain multiplies, it is not added.",
            ),
            Turn(
                lambda x, g, eps: bf16(g * bf16(x * bf16(1 / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)))),
                "r itself stays wide: round only the product x r, and the result.",
            ),
            Turn(
                lambda x, g, eps: twice(bf16(x), g, eps),
                "x itself is rounded first: that is a third rounding. Only the product x r and the result are rounded.",
            ),
        ),
        well_done="It is the norm of the recipe `bfloat16`, bit for bit.",
        hint="Three lines: r from the mean of the squares, with keepdims=True; then bf16(x * r); then bf16 of "
        "the gain times that.",
        on_error="Keep the axis of the mean, keepdims=True, so that it divides all channels of its token.",
        tolerance=1e-12,
    ),
    Exercise(
        "2.2",
        "fold_gain",
        right=lambda W, g: W * g,
        cases=[
            (_square, _gain),
            (_flat, _gain),
            (np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([10.0, 0.1])),
        ],
        turns=(
            Turn(
                lambda W, g: W * g[: W.shape[0], None],
                "this scales rows, which scales the outputs. The gain scales inputs, so columns.",
            ),
            Turn(lambda W, g: W / g, "multiply by the gain: what the matrix used to read was larger by g."),
            Turn(lambda W, g: W @ g, "this is the product with one vector. The folded matrix has the shape of W."),
            Turn(lambda W, g: (W * g).T, "the result has the shape of W: [M, D]. No transpose is needed."),
        ),
        well_done="Do it to every matrix behind a norm, and all gains are 1.",
        hint="Write out one number of the output: the sum over j of W[i, j] g[j] x[j]. Which entries of W meet g[j]?",
        on_error="W has shape [M, D] and the gain [D]: it meets the second axis.",
    ),
    Exercise(
        "2.3",
        "eps_ratio",
        right=lambda s, a, b: np.sqrt((s**2 + b) / (s**2 + a)),
        cases=[(1e-3, 1e-6, 1e-5), (0.1, 1e-6, 1e-5), (2e-4, 1e-5, 1e-6)],
        turns=(
            Turn(
                lambda s, a, b: np.sqrt((s**2 + a) / (s**2 + b)),
                "upside down: the larger eps gives the shorter vector.",
            ),
            Turn(lambda s, a, b: (s**2 + b) / (s**2 + a), "the norm divides by a root: take the root of the ratio."),
            Turn(lambda s, a, b: (s + b) / (s + a), "eps is added to the mean square, not to the rms."),
            Turn(lambda s, a, b: np.sqrt((s + b) / (s + a)), "eps is added to the mean square: square the rms first."),
            Turn(
                lambda s, a, b: np.sqrt(b / a),
                "this is the limit for a token of zeros; the token's own size counts too.",
            ),
        ),
        well_done="For loud tokens it is 1, for silent ones the root of the ratio of the two eps.",
        hint="The length of a normed vector goes like 1 / sqrt(rms**2 + eps). Write that down for both eps "
        "and divide one by the other.",
    ),
]
