"""Mistakes in the heads: the softmax scale, the parts of queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from blocklab.block.config import yarn_mscale
from blocklab.check.case import Case, Rewrite, Seen
from blocklab.check.variation import Mistake, Variation, with_softmax_scale, with_weights
from blocklab.numerics.weight import Weight


def missing_mscale(case: Case) -> Iterator[Variation]:
    """Scale by (N + R)^-1/2 alone."""
    yield from _scaled(
        case, case.config.qk_head_dim**-0.5, "the mscale factor, squared, is missing from the softmax scale"
    )


def mscale_once(case: Case) -> Iterator[Variation]:
    """Multiply the scale by mscale, not by its square."""
    yarn = case.config.yarn
    mscale = yarn_mscale(yarn.factor, yarn.mscale_all_dim) if yarn is not None and yarn.mscale_all_dim else 1.0
    yield from _scaled(
        case, case.config.qk_head_dim**-0.5 * mscale, "mscale enters the softmax scale once, not squared"
    )


def scale_from_nope_width(case: Case) -> Iterator[Variation]:
    """Scale by N^-1/2, the width without the rotary part."""
    c = case.config
    ratio = (c.qk_head_dim / c.qk_nope_head_dim) ** 0.5
    yield from _scaled(case, c.softmax_scale * ratio, "the softmax scale is made from the nope width")


def scale_from_latent_width(case: Case) -> Iterator[Variation]:
    """Scale by (C + R)^-1/2, the width of an absorbed key."""
    c = case.config
    ratio = (c.qk_head_dim / (c.kv_lora_rank + c.qk_rope_head_dim)) ** 0.5
    yield from _scaled(case, c.softmax_scale * ratio, "the softmax scale is made from the latent width")


def _scaled(case: Case, scale: float, why: str) -> Iterator[Variation]:
    ratio = scale / case.config.softmax_scale
    if abs(ratio - 1) > 1e-9:
        yield Variation(f"the scores are {ratio:.4f} times ours: {why}", with_softmax_scale(case, scale))


def q_rope_first(case: Case) -> Iterator[Variation]:
    """Take the rotary part of a query from the front of the head."""
    N, R = case.config.qk_nope_head_dim, case.config.qk_rope_head_dim

    def q_nope(seen: Seen, value: np.ndarray, _: Case) -> np.ndarray:
        return seen["q"][..., R:]

    def q_rot(seen: Seen, value: np.ndarray, case: Case) -> np.ndarray:
        return np.asarray(case.block.rotate("q_rot", seen["q"][..., :R], case.R))

    taken = case.rewriting(q_nope=q_nope, q_rot=q_rot)
    yield Variation(
        "the first elements of each head's query are rotated instead of the last", taken, ("q_nope", "q_rot")
    )

    def q(seen: Seen, value: np.ndarray, _: Case) -> np.ndarray:
        return np.concatenate([value[..., N:], value[..., :N]], axis=-1)

    yield Variation("each head's query holds the rotary part first", case.rewriting(q=q), ("q",))


Order = Callable[[np.ndarray, int, int, int], np.ndarray]
"""(rows in the last axis, heads, N, V) -> the rows in another order."""


def kv_b_value_first(case: Case) -> Iterator[Variation]:
    """Read each head of the up-projection as value, then key."""

    def order(rows: np.ndarray, H: int, N: int, V: int) -> np.ndarray:
        heads = rows.reshape(*rows.shape[:-1], H, N + V)
        return np.concatenate([heads[..., N:], heads[..., :N]], axis=-1).reshape(rows.shape)

    def swap(rows: np.ndarray, H: int, N: int, V: int) -> np.ndarray:
        return order(rows, H, V, N)

    yield from _up_projection(case, "each head of the up-projection holds value first, then key", order, swap)


def kv_b_all_keys_first(case: Case) -> Iterator[Variation]:
    """Read the up-projection as the keys of all heads, then the values of all heads."""

    def order(rows: np.ndarray, H: int, N: int, V: int) -> np.ndarray:
        heads = rows.reshape(*rows.shape[:-1], H, N + V)
        parts = (heads[..., :N].reshape(*rows.shape[:-1], -1), heads[..., N:].reshape(*rows.shape[:-1], -1))
        return np.concatenate(parts, axis=-1)

    def swap(rows: np.ndarray, H: int, N: int, V: int) -> np.ndarray:
        keys = rows[..., : H * N].reshape(*rows.shape[:-1], H, N)
        values = rows[..., H * N :].reshape(*rows.shape[:-1], H, V)
        return np.concatenate([keys, values], axis=-1).reshape(rows.shape)

    if case.config.num_attention_heads > 1:
        detail = "the up-projection holds the keys of all heads first, then all values"
        yield from _up_projection(case, detail, order, swap)


def _up_projection(case: Case, detail: str, stored: Order, read: Order) -> Iterator[Variation]:
    """Yield two forms: right rows read in the order `read` into (key, value), and rows that are in order `stored`."""
    c = case.config
    H, N, V = c.num_attention_heads, c.qk_nope_head_dim, c.v_head_dim
    if case.attention == "absorb":
        for order, acts in ((read, ("q_absorbed", "z")), (stored, ("q_absorbed", "z"))):
            rows = order(case.weights.self_attn.kv_b_proj.values().T, H, N, V).T
            weight = Weight(np.ascontiguousarray(rows), "float32")
            yield Variation(detail, with_weights(case, self_attn__kv_b_proj__weight=weight), acts)
        return

    def part(cut: slice) -> Rewrite:
        def rewrite(seen: Seen, value: np.ndarray, _: Case) -> np.ndarray:
            kv_up = seen["kv_up"]
            return read(kv_up.reshape(*kv_up.shape[:2], -1), H, N, V).reshape(kv_up.shape)[..., cut]

        return rewrite

    split = case.rewriting(k_nope=part(slice(None, N)), v=part(slice(N, None)))
    yield Variation(f"read as if {detail}", split, ("k_nope", "v"))

    def kv_up(seen: Seen, value: np.ndarray, _: Case) -> np.ndarray:
        return stored(value.reshape(*value.shape[:2], -1), H, N, V).reshape(value.shape)

    yield Variation(detail, case.rewriting(kv_up=kv_up), ("kv_up",))


_KEYS_VALUES = ("kv_up", "k_nope", "v", "q_absorbed", "z")

HEADS = (
    Mistake(
        "missing-mscale",
        "leaves YaRN's mscale, squared, out of the softmax scale",
        "attn_scores, by a constant ratio that cosine does not see",
        ("attn_scores",),
        missing_mscale,
    ),
    Mistake(
        "mscale-once",
        "multiplies the softmax scale by mscale instead of its square",
        "attn_scores, by a constant ratio",
        ("attn_scores",),
        mscale_once,
    ),
    Mistake(
        "scale-from-nope-width",
        "scales scores by the width without the rotary part",
        "attn_scores, by a constant ratio",
        ("attn_scores",),
        scale_from_nope_width,
    ),
    Mistake(
        "scale-from-latent-width",
        "scales scores by the width of the absorbed keys, latent and rotary part",
        "attn_scores, by a constant ratio",
        ("attn_scores",),
        scale_from_latent_width,
    ),
    Mistake(
        "q-rope-first",
        "takes the rotary part from the front of each head's query",
        "q_nope, q_rot, then the pattern",
        ("q", "q_nope", "q_rot"),
        q_rope_first,
    ),
    Mistake(
        "kv-b-value-first",
        "reads each head of the up-projection as value, then key",
        "kv_up or k_nope and v",
        _KEYS_VALUES,
        kv_b_value_first,
    ),
    Mistake(
        "kv-b-all-keys-first",
        "reads the up-projection as the keys of all heads, then the values of all heads",
        "kv_up or k_nope and v; not in a block with one head",
        _KEYS_VALUES,
        kv_b_all_keys_first,
    ),
)
"""This module's part of the catalogue."""
