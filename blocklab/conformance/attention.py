"""Conformance parts about attention: rotation, the softmax scale, heads, masks, softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.conformance.part import (
    Answer,
    Deviation,
    Part,
    deviation,
    exact,
    noise,
    within,
)

F32 = np.float32


def attention_parts() -> Iterator[Part]:
    """Yield the parts about attention."""
    yield _rotate()
    yield _softmax_scale()
    yield _split_heads()
    yield _causal_mask()
    yield _softmax_boolean()
    yield _softmax_additive()


def _rotate() -> Part:
    R, half = 64, 32
    angles = 3 * 50000.0 ** -(np.arange(half) / half)
    cos, sin = np.cos(angles).astype(F32), np.sin(angles).astype(F32)

    def rotated(pairs: list[tuple[int, int]], places: list[tuple[int, int]], sign: int = 1) -> np.ndarray:
        """Rotate one-hot rows: `pairs` of channels go to `places`."""
        out = np.zeros((R, R), np.float32)
        for (i, j), (to_i, to_j), c, s in zip(pairs, places, cos, sign * sin, strict=True):
            out[i, to_i], out[i, to_j], out[j, to_i], out[j, to_j] = c, s, -s, c
        return out

    neighbours = [(i, i + 1) for i in range(0, R, 2)]
    halves = [(i, i + half) for i in range(half)]
    return Part(
        "rotate",
        "one-hot rows x [64 rows, 64 channels], all rotated by one table: (a, b) -> (a cos - b sin, a sin + b cos)"
        " for neighbours (x_2i, x_2i+1)",
        {"rotate.x": np.eye(R, dtype=np.float32), "rotate.cos": cos, "rotate.sin": sin},
        exact(rotated(neighbours, neighbours)),
        deviations=[
            deviation("rope-half-split", "pairs are (x_i, x_i+32), not neighbours", rotated(halves, halves)),
            deviation(
                "output-half-split",
                "pairs are neighbours, and come out as (y_i, y_i+32): transformers' order",
                rotated(neighbours, halves),
            ),
            deviation("other-direction", "rotated by minus the angle", rotated(neighbours, neighbours, -1)),
            deviation("half-split-other-direction", "half-split, and by minus the angle", rotated(halves, halves, -1)),
        ],
        labels=[f"channel {i}" for i in range(R)],
    )


def _softmax_scale() -> Part:
    names = ("kimi-k2", "kimi-k2-0905", "deepseek-v3")
    configs = [BlockConfig.preset(name) for name in names]
    factors = np.array([c.yarn.factor if c.yarn else 1.0 for c in configs])
    mscale = 0.1 * np.log(factors) + 1
    inputs = {"softmax_scale.factor": factors}
    known = [
        ("missing-mscale", "mscale is left out", 192**-0.5 + 0 * mscale),
        ("mscale-once", "multiplied by mscale once, not twice", 192**-0.5 * mscale),
        ("scale-from-nope-width", "from the nope width 128, not 192", 128**-0.5 * mscale**2),
        ("scale-from-latent-width", "from the latent width 576, not 192", 576**-0.5 * mscale**2),
        ("nope-width-without-mscale", "from the nope width 128, and without mscale", 128**-0.5 + 0 * mscale),
    ]
    return Part(
        "softmax_scale",
        "the factor on q.k for a rope factor of 32, 64 and 40, nope width 128, rotary width 64, mscale_all_dim 1:"
        " (128 + 64)^-1/2 mscale^2, mscale = 0.1 ln(factor) + 1",
        inputs,
        within(np.array([c.softmax_scale for c in configs]), 1e-7),
        output="float32 or float64",
        tolerance="1e-7",
        deviations=[Deviation(name, sentence, within(value, 1e-7)) for name, sentence, value in known],
        labels=names,
        elementwise="softmax_scale.factor",
    )


def _split_heads() -> Part:
    H, N, V = 3, 4, 2
    x = np.arange(H * (N + V), dtype=np.float32)
    return Part(
        "kv_b.k_nope",
        "one row of W_UKV's output, 3 heads of 4 nope and 2 value channels: k_nope [3, 4], each head's first 4",
        {"kv_b.row": x},
        exact(x.reshape(H, N + V)[:, :N]),
        deviations=[
            deviation("kv-b-value-first", "values come first in each head", x.reshape(H, N + V)[:, V:]),
            deviation("kv-b-all-keys-first", "the keys of all heads come first", x[: H * N].reshape(H, N)),
            deviation("heads-last", "heads vary fastest", x.reshape(N + V, H)[:N].T),
        ],
    )


def _causal_mask() -> Part:
    T, S = 3, 7
    i, j = np.arange(T)[:, None], np.arange(S)
    right = j <= S - T + i
    return Part(
        "causal_mask",
        "the mask of 3 new tokens after 4 cached ones: query i may look at keys 0 .. 4 + i (aligned lower right)",
        {"causal_mask.T": np.array([T]), "causal_mask.S": np.array([S])},
        exact(right),
        output="bool [T, S], true = may look",
        deviations=[
            deviation("mask-upper-left", "aligned upper left: the cache is forgotten", j <= i),
            deviation("mask-off-by-one", "a token does not see itself", j < S - T + i),
            deviation("mask-off-by-one-more", "a token sees its successor", j <= S - T + i + 1),
            deviation("inverted", "true means hidden", ~right),
            deviation("missing-mask", "everything is visible", np.ones((T, S), bool)),
        ],
        labels=[f"query {n}" for n in range(T)],
    )


def _softmax(scores: np.ndarray, empty: float = 0.0) -> np.ndarray:
    """Return softmax over rows in float64; `empty` is what rows of -inf give."""
    top = scores.max(-1, keepdims=True)
    hidden = np.isneginf(top)
    weights = np.exp(scores - np.where(hidden, 0, top))
    return np.where(hidden, empty, weights / np.where(hidden, 1, weights.sum(-1, keepdims=True)))


def _shares(value: np.ndarray) -> Answer:
    """Allow what float32 exponentials and sums lose; zero is zero."""
    return within(value, np.where(np.isfinite(value), 2.0**-20 * value, 0.0))


def _softmax_boolean() -> Part:
    scores = 4 * noise("conformance scores", 6, 7).astype(np.float64)
    scores[3], scores[4, 1:] = scores[3] * 2000, scores[4, 1:] - 30000
    mask = np.ones((6, 7), bool)
    mask[1, 1:] = mask[2] = mask[3, ::2] = mask[4, 0] = False
    scores[4, 0] = scores[5, 0] + 500
    scores = scores.astype(F32).astype(np.float64)
    masked = np.where(mask, scores, -np.inf)
    with np.errstate(all="ignore"):
        added, unhidden = scores + mask, np.exp(masked.astype(F32))
        overflown = (unhidden / unhidden.sum(-1, keepdims=True)).astype(np.float64)
    known = [
        ("fully-masked-nan", "a fully masked row gives NaN: plain softmax", _softmax(masked, np.nan)),
        ("fully-masked-uniform", "a fully masked row gives 1/S: a large finite number hides", _softmax(masked, 1 / 7)),
        ("mask-added-as-bool", "the mask is added as 0 and 1", _softmax(added)),
        ("inverted", "true is taken for hidden", _softmax(np.where(mask, -np.inf, scores))),
        ("missing-mask", "the mask is ignored", _softmax(scores)),
        (
            "hidden-by-1e4",
            "hidden scores are set to -10000, which is not low enough",
            _softmax(np.where(mask, scores, -1e4)),
        ),
        ("no-maximum", "the row's maximum is not taken off: exp overflows", overflown),
    ]
    return Part(
        "softmax.boolean",
        "softmax over each row of scores [6, 7] where mask is true (true = may look); hidden keys and fully masked rows"
        " give zeros",
        {"softmax.boolean.scores": scores.astype(F32), "softmax.boolean.mask": mask},
        _shares(_softmax(masked)),
        tolerance="2^-20 of each value",
        deviations=[Deviation(name, sentence, _shares(value)) for name, sentence, value in known],
        labels=["all visible", "one visible", "fully masked", "scores of 20000", "scores of -30000", "one far ahead"],
    )


def _softmax_additive() -> Part:
    lowest = float(np.finfo(np.float32).min)
    scores = noise("conformance additive scores", 4, 5)
    mask = np.zeros((4, 5), np.float32)
    mask[0, 3:], mask[1, 3:] = -np.inf, lowest
    mask[2], mask[3] = lowest, -np.inf
    masked = (scores + mask).astype(np.float64)
    known = [
        ("fully-masked-nan", "a row of -inf gives NaN: plain softmax", _softmax(masked, np.nan)),
        ("fully-masked-uniform", "a row of -inf gives 1/S", _softmax(masked, 0.2)),
        ("lowest-as-boolean", "a row of lowest numbers gives zeros", _softmax(np.where(mask == 0, masked, -np.inf))),
        ("missing-mask", "the mask is ignored", _softmax(scores.astype(np.float64))),
    ]
    return Part(
        "softmax.additive",
        "softmax over each row of scores + mask [4, 5]; a row that is -inf everywhere gives zeros, a row of the lowest"
        " finite float32 numbers gives 1/S",
        {"softmax.additive.scores": scores, "softmax.additive.mask": mask},
        _shares(_softmax(masked)),
        tolerance="2^-20 of each value",
        deviations=[Deviation(name, sentence, _shares(value)) for name, sentence, value in known],
        labels=["-inf hides two", "the lowest number hides two", "the lowest number everywhere", "-inf everywhere"],
    )
