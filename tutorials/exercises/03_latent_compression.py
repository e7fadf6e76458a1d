"""Exercises of tutorial 3: the size of the cache, the split of keys and values, absorbed scores."""

import numpy as np
from checks import Exercise, Turn

from blocklab import BlockConfig

GIB = 2**30


def gib(numbers, bytes_each=2):
    return lambda config, tokens, layers: numbers(config) * bytes_each * tokens * layers / GIB


def kept(c):
    return c.kv_lora_rank + c.qk_rope_head_dim


def full(c):
    return c.num_attention_heads * (c.qk_head_dim + c.v_head_dim)


def split(kv_up, H, N, V):
    heads = kv_up.reshape(-1, H, N + V)
    return heads[..., :N], heads[..., N:]


def value_first(kv_up, H, N, V):
    heads = kv_up.reshape(-1, H, N + V)
    return heads[..., V:], heads[..., :V]


def all_keys_first(kv_up, H, N, V):
    return kv_up[:, : H * N].reshape(-1, H, N), kv_up[:, H * N :].reshape(-1, H, V)


def interleaved(kv_up, H, N, V):
    heads = kv_up.reshape(-1, N + V, H).swapaxes(1, 2)
    return heads[..., :N], heads[..., N:]


def scores(q_nope, q_rot, c_hat, k_rot, W_UK, *, nope=1.0, rot=1.0, scale=None, absorb="thn,hnc->thc"):
    q = np.einsum(absorb, q_nope, W_UK)
    total = nope * np.einsum("thc,sc->hts", q, c_hat) + rot * np.einsum("thr,sr->hts", q_rot, k_rot)
    if scale is None:
        scale = (q_nope.shape[-1] + q_rot.shape[-1]) ** -0.5
    return scale * total


def with_scale(rule):
    """Return scores with the scale rule(N, R, C)."""
    return lambda *a: scores(*a, scale=rule(a[0].shape[-1], a[1].shape[-1], a[2].shape[-1]))


def over_heads(q_nope, q_rot, c_hat, k_rot, W_UK):
    """All heads share the average matrix."""
    return scores(q_nope, q_rot, c_hat, k_rot, np.broadcast_to(W_UK.sum(axis=0), W_UK.shape))


_rng = np.random.default_rng(3)


def _attention(T, S, H, N, R, C):
    return tuple(_rng.standard_normal(s) for s in ((T, H, N), (T, H, R), (S, C), (S, R), (H, N, C)))


def by_keys(q_nope, q_rot, c_hat, k_rot, W_UK):
    """The plain form: the key of every cached token, first of all."""
    k_nope = np.einsum("sc,hnc->shn", c_hat, W_UK)
    total = np.einsum("thn,shn->hts", q_nope, k_nope) + np.einsum("thr,sr->hts", q_rot, k_rot)
    return (q_nope.shape[-1] + q_rot.shape[-1]) ** -0.5 * total


def _huge_keys():
    """Numbers whose products with the query are ordinary, and whose keys are too large for float64."""
    q_nope, q_rot, c_hat, k_rot, W_UK = (np.abs(part) for part in _attention(2, 3, 2, 4, 2, 3))
    return q_nope * 1e-250, q_rot * 1e75, c_hat * 1e200, k_rot * 1e75, W_UK * 1e200


EXERCISES = [
    Exercise(
        "3.1",
        "cache_gib",
        right=gib(kept),
        cases=[(BlockConfig.preset("kimi-k2"), 131_072, 61), (BlockConfig.preset("kimi-k2-small"), 1000, 3)],
        turns=(
            Turn(gib(full), "these are keys and values of all heads. Kept are the latent and the rotary key only."),
            Turn(gib(lambda c: c.kv_lora_rank), "the rotary key is kept too: it does not come from the latent."),
            Turn(
                gib(lambda c: c.kv_lora_rank + c.num_attention_heads * c.qk_rope_head_dim),
                "the rotary key is one for all heads: it is kept once.",
            ),
            Turn(
                gib(lambda c: 2 * c.kv_lora_rank + c.qk_rope_head_dim),
                "keys and values come from the same latent: it is kept once.",
            ),
            Turn(
                gib(lambda c: 2 * kept(c)),
                "twice as much as it should be: keys and values come from the same latent, and bfloat16 has two bytes.",
            ),
            Turn(gib(kept, 1), "half as much as it should be: bfloat16 has two bytes."),
            Turn(gib(kept, 16), "16 bits are two bytes."),
            Turn(lambda c, n, m: kept(c) * 2 * n * m / 1e9, "a GiB is 2**30 bytes; 10**9 bytes are a GB."),
            Turn(lambda c, n, m: kept(c) * 2 * n * m, "these are bytes: divide by 2**30."),
            Turn(lambda c, n, m: kept(c) * 2 * n / GIB, "every block keeps its own: multiply by the layers."),
        ),
        well_done="8.6 GiB for Kimi K2 at its longest.",
        hint="A token leaves C + R numbers in each block. Multiply by tokens, blocks and bytes, and divide by 2**30.",
    ),
    Exercise(
        "3.2",
        "split_keys_and_values",
        right=split,
        cases=[
            (_rng.standard_normal((5, 3 * (6 + 4))), 3, 6, 4),
            (_rng.standard_normal((2, 4 * (6 + 6))), 4, 6, 6),
            (np.arange(6.0)[None], 2, 2, 1),
        ],
        turns=(
            Turn(value_first, "in each head the key comes first."),
            Turn(
                all_keys_first,
                "this takes the first H * N columns as keys. But the order is head after head, and key and value"
                " within each.",
            ),
            Turn(interleaved, "the heads are the slow axis: reshape to [T, H, N + V], not to [T, N + V, H]."),
            Turn(lambda x, H, N, V: split(x, H, N, V)[::-1], "return the keys first, then the values."),
            Turn(
                lambda x, H, N, V: tuple(part.swapaxes(0, 1) for part in split(x, H, N, V)),
                "the axes are [T, H, .]: positions first.",
            ),
        ),
        well_done="Put a marker into one row of W_UKV and look where it comes out: that is how converters are tested.",
        hint="kv_up.reshape(T, H, N + V) gives the heads an axis of their own. Key and value are slices of "
        "the last axis.",
        on_error="Reshape to [T, H, N + V] first, then cut the last axis.",
    ),
    Exercise(
        "3.3",
        "absorbed_scores",
        right=scores,
        cases=[_attention(5, 7, 3, 8, 4, 16), _attention(1, 6, 2, 6, 2, 5), _attention(1, 2, 2, 2, 1, 3), _huge_keys()],
        turns=(
            Turn(
                with_scale(lambda N, R, C: (C + R) ** -0.5),
                "the scale stays (N + R)**-0.5: the scores are the same numbers as in the plain form, however long the"
                " dot products are.",
            ),
            Turn(with_scale(lambda N, R, C: N**-0.5), "the scale counts the rotary part too: (N + R)**-0.5."),
            Turn(with_scale(lambda N, R, C: 1.0), "multiply by the scale (N + R)**-0.5."),
            Turn(with_scale(lambda N, R, C: 1 / (N + R)), "the scale is a root: (N + R)**-0.5."),
            Turn(lambda *a: scores(*a, rot=0.0), "add the rotary part: q_rot times k_rot."),
            Turn(
                lambda *a: scores(*a, rot=(a[0].shape[-1] + a[1].shape[-1]) ** 0.5),
                "the scale multiplies the rotary part as well.",
            ),
            Turn(lambda *a: scores(*a, nope=0.0), "only the rotary part is there: add q_absorbed times c_hat."),
            Turn(lambda *a: scores(*a).transpose(1, 0, 2), "the axes are [H, T, S]: heads first."),
            Turn(lambda *a: scores(*a).transpose(0, 2, 1), "the axes are [H, T, S]: queries before keys."),
            Turn(
                over_heads,
                "every head has its own W_UK: keep h in the result of the first einsum, and do not sum over the heads"
                " of W_UK alone.",
            ),
            Turn(
                by_keys,
                "the scores are right, but it multiplies W_UK and c_hat, and these are the keys: one case has keys that"
                " are too large for float64. Multiply W_UK and the query first; then no key is needed.",
            ),
            Turn(
                lambda *a: np.nan_to_num(by_keys(*a)),
                "it multiplies W_UK and c_hat, and these are the keys: one case has keys that are too large for"
                " float64, and np.nan_to_num does not bring them back. Multiply W_UK and the query first.",
            ),
        ),
        well_done="No key was ever computed.",
        hint="First the absorbed queries, [T, H, C]: multiply q_nope and W_UK and sum over n. Then their dots "
        "with every c_hat[s]: sum over c.",
        on_error='q_absorbed = np.einsum("thn,hnc->thc", q_nope, W_UK) is a start.',
    ),
]
