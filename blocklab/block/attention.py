"""Multi-head latent attention: queries and keys from compressed latents, one rotary key for all heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.masks import fit_mask
from blocklab.block.operations import linear, product, rms_norm, softmax, store, stored_rows
from blocklab.block.rotary import rotate
from blocklab.block.taps import Tap, listens, see
from blocklab.block.weights import AttentionWeights
from blocklab.errors import InputError
from blocklab.numerics import Recipe
from blocklab.xp import Array, array_module

Mix: TypeAlias = Callable[[Array, Array, Array, int], Array]

TILE_SCORES = 1 << 24
"""Scores that are held at one time when nobody listens to them."""


def latent_attention(
    h: Array,
    R: Array,
    M: Array,
    w: AttentionWeights,
    config: BlockConfig,
    recipe: Recipe,
    attention: str,
    cache: LatentCache | None,
    tap: Tap,
) -> Array:
    """Return W_O z for normed tokens h [B, T, D]: the attention half of the block, up to the residual sum.

    attention "naive" computes keys and values of every head; "absorb" moves W_UK to the query and W_UV to
    the output, and attends to the latents themselves.
    Source: DeepSeek-V3 report, section 2.1.1; DeepSeek-V2 report, section 2.1.2.
    """
    q_nope, q_rot = queries(h, R, w, config, recipe, tap)  # [B, T, H, N], [B, T, H, R]
    kv_latent_norm, k_rot = latent_keys(h, R, w, config, recipe, tap)  # [B, T, C], [B, T, R]
    if cache is not None:
        kv_latent_norm, k_rot = cache.extend(kv_latent_norm, k_rot)  # [B, S, C], [B, S, R]
    B, T, H, _ = q_nope.shape
    M = fit_mask(M, B, H, T, k_rot.shape[1])  # [B or 1, H or 1, T, S]
    if attention == "naive":
        z = attend_naive(q_nope, q_rot, kv_latent_norm, k_rot, M, w, config, recipe, tap)
    elif attention == "absorb":
        z = attend_absorbed(q_nope, q_rot, kv_latent_norm, k_rot, M, w, config, recipe, tap)
    else:
        raise InputError(f"attention must be naive or absorb; found {attention!r}")
    z = z.reshape(B, T, H * config.v_head_dim)  # [B, T, H V]
    return linear(z, w.o_proj, recipe, tap, "attn_out")


def queries(h: Array, R: Array, w: AttentionWeights, c: BlockConfig, recipe: Recipe, tap: Tap) -> tuple[Array, Array]:
    """Return q_nope [B, T, H, N] and the rotated q_rot [B, T, H, R]."""
    if w.q_a_proj is not None and w.q_a_layernorm is not None:
        h = linear(h, w.q_a_proj, recipe, tap, "q_latent")  # [B, T, Q]
        h = see(tap, "q_latent_norm", rms_norm(h, w.q_a_layernorm, latent_eps(c, recipe), recipe))
    heads = (c.num_attention_heads, c.qk_head_dim)
    q = linear(h, w.q_b_proj, recipe, tap, "q", heads)  # [B, T, H, N+R]
    q_nope = see(tap, "q_nope", q[..., : c.qk_nope_head_dim])
    q_rot = see(tap, "q_rot", rotate(q[..., c.qk_nope_head_dim :], R, recipe))
    return q_nope, q_rot


def latent_keys(
    h: Array, R: Array, w: AttentionWeights, c: BlockConfig, recipe: Recipe, tap: Tap
) -> tuple[Array, Array]:
    """Return what a cache keeps: the normed latent [B, T, C] and the rotated shared key [B, T, R]."""
    kv_down = linear(h, w.kv_a_proj_with_mqa, recipe, tap, "kv_down")  # [B, T, C+R]
    kv_latent = see(tap, "kv_latent", kv_down[..., : c.kv_lora_rank])
    kv_latent_norm = rms_norm(kv_latent, w.kv_a_layernorm, latent_eps(c, recipe), recipe)
    kv_latent_norm = see(tap, "kv_latent_norm", kv_latent_norm)
    k_rot = see(tap, "k_rot", rotate(kv_down[..., c.kv_lora_rank :], R, recipe))
    return kv_latent_norm, k_rot


def latent_eps(config: BlockConfig, recipe: Recipe) -> float:
    """Return the eps of the two latent norms: the recipe's, or else the config's."""
    return config.rms_norm_eps if recipe.latent_norm_eps is None else recipe.latent_norm_eps


def attend_naive(
    q_nope: Array,
    q_rot: Array,
    kv_latent_norm: Array,
    k_rot: Array,
    M: Array,
    w: AttentionWeights,
    c: BlockConfig,
    recipe: Recipe,
    tap: Tap,
) -> Array:
    """Attend with keys and values computed for every head: z [B, T, H, V].

    s = RN(q_nope . k_nope + q_rot . k_rot);  z = RN(pattern v)
    """
    heads = (c.num_attention_heads, c.qk_nope_head_dim + c.v_head_dim)
    kv_up = linear(kv_latent_norm, w.kv_b_proj, recipe, tap, "kv_up", heads)  # [B, S, H, N+V]
    k_nope = see(tap, "k_nope", kv_up[..., : c.qk_nope_head_dim])
    v = see(tap, "v", kv_up[..., c.qk_nope_head_dim :])

    k_nope = k_nope.transpose(0, 2, 3, 1)  # [B, H, N, S]
    k_rot = k_rot.transpose(0, 2, 1)[:, None]  # [B, 1, R, S]
    v = v.transpose(0, 2, 1, 3)  # [B, H, S, V]

    def mix(q_nope: Array, q_rot: Array, M: Array, S: int) -> Array:
        scores = product(q_nope, k_nope[..., :S], recipe) + product(q_rot, k_rot[..., :S], recipe)
        pattern = attention_pattern(store(scores, recipe), M[..., :S], c, recipe, tap)
        return store(product(pattern, v[:, :, :S], recipe), recipe)  # [B, H, T, V]

    return see(tap, "z", in_query_tiles(mix, q_nope, q_rot, M, tap))


def attend_absorbed(
    q_nope: Array,
    q_rot: Array,
    kv_latent_norm: Array,
    k_rot: Array,
    M: Array,
    w: AttentionWeights,
    c: BlockConfig,
    recipe: Recipe,
    tap: Tap,
) -> Array:
    """Attend to the latents themselves, W_UK moved to the query and W_UV to the output: z [B, T, H, V].

    q_absorbed = RN(W_UK^T q_nope);  s = RN(RN(q_absorbed . c) + RN(q_rot . k_rot));
    z_latent = RN(pattern c);  z = RN(W_UV z_latent)
    """
    H, N = c.num_attention_heads, c.qk_nope_head_dim
    W = stored_rows(w.kv_b_proj, recipe).reshape(H, N + c.v_head_dim, c.kv_lora_rank)
    W_UK, W_UV = W[:, :N], W[:, N:]  # [H, N, C], [H, V, C]
    q_absorbed = store(product(q_nope.transpose(0, 2, 1, 3), W_UK, recipe), recipe)  # [B, H, T, C]
    q_absorbed = see(tap, "q_absorbed", q_absorbed.transpose(0, 2, 1, 3))  # [B, T, H, C]

    latent = kv_latent_norm[:, None]  # [B, 1, S, C]
    k_rot = k_rot.transpose(0, 2, 1)[:, None]  # [B, 1, R, S]

    def mix(q_absorbed: Array, q_rot: Array, M: Array, S: int) -> Array:
        to_latent = store(product(q_absorbed, latent[:, :, :S].transpose(0, 1, 3, 2), recipe), recipe)
        to_rotary = store(product(q_rot, k_rot[..., :S], recipe), recipe)
        pattern = attention_pattern(store(to_latent + to_rotary, recipe), M[..., :S], c, recipe, tap)
        return store(product(pattern, latent[:, :, :S], recipe), recipe)  # [B, H, T, C]

    z_latent = see(tap, "z_latent", in_query_tiles(mix, q_absorbed, q_rot, M, tap))  # [B, T, H, C]
    z = store(product(z_latent.transpose(0, 2, 1, 3), W_UV.transpose(0, 2, 1), recipe), recipe)  # [B, H, T, V]
    return see(tap, "z", z.transpose(0, 2, 1, 3))  # [B, T, H, V]


def attention_pattern(scores: Array, M: Array, c: BlockConfig, recipe: Recipe, tap: Tap) -> Array:
    """Return each query's shares over the keys from unscaled scores [B, H, T, S].

    pattern = softmax(RN(RN(scores scale) + M));  scale = (N + R)^-1/2 mscale^2
    A boolean M hides with -inf; a row that is hidden everywhere gives zeros under -inf and 1/S under the
    lowest finite number.
    """
    xp = array_module(scores, M)
    scale = scores.dtype.type(c.softmax_scale)
    scores = see(tap, "attn_scores", store(scores * scale, recipe))
    if M.dtype.kind == "b":
        masked = xp.where(M, scores, scores.dtype.type(-float("inf")))
    else:
        masked = store(scores + M.astype(scores.dtype, copy=False), recipe)
    return see(tap, "pattern", softmax(see(tap, "attn_masked", masked), recipe))


def in_query_tiles(mix: Mix, q: Array, q_rot: Array, M: Array, tap: Tap) -> Array:
    """Run mix on all queries at once, or on tiles of them where nobody listens to the scores: [B, T, H, .].

    A tile sees whole rows of keys, so that every rounding is the same; keys that a boolean mask hides from
    the whole tile are left out.
    """
    q, q_rot = q.transpose(0, 2, 1, 3), q_rot.transpose(0, 2, 1, 3)  # [B, H, T, .]
    B, H, T, _ = q.shape
    S = M.shape[-1]
    if T == 0 or any(listens(tap, name) for name in ("attn_scores", "attn_masked", "pattern")):
        return mix(q, q_rot, M, S).transpose(0, 2, 1, 3)
    rows = max(1, TILE_SCORES // max(1, B * H * S))
    tiles = []
    for start in range(0, T, rows):
        tile = slice(start, start + rows)
        M_tile = M if M.shape[2] == 1 else M[:, :, tile]
        tiles.append(mix(q[:, :, tile], q_rot[:, :, tile], M_tile, visible_keys(M_tile)))
    xp = array_module(q)
    return (tiles[0] if len(tiles) == 1 else xp.concatenate(tiles, axis=2)).transpose(0, 2, 1, 3)


def visible_keys(M: Array) -> int:
    """Return how many leading keys a mask lets anybody see; all of them for an additive mask."""
    if M.dtype.kind != "b":
        return int(M.shape[-1])
    seen = M.any(axis=(0, 1, 2)).nonzero()[0]
    return int(seen[-1]) + 1 if len(seen) else int(M.shape[-1])
