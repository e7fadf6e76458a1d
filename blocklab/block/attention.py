"""Multi-head latent attention: queries and keys from compressed latents, one rotary key for all heads."""

from __future__ import annotations

from collections.abc import Callable

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.masks import fit_mask
from blocklab.block.operations import linear, product, rms_norm, softmax, store, stored_values
from blocklab.block.rotary import rotate
from blocklab.block.taps import Tap, listens, see
from blocklab.block.tiling import in_score_tiles
from blocklab.block.weights import AttentionWeights
from blocklab.errors import InputError
from blocklab.numerics import Recipe
from blocklab.xp import Array, array_module


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
    if attention not in ("naive", "absorb"):
        raise InputError(f"attention must be naive or absorb; found {attention!r}")
    B, T, _ = h.shape
    H = config.num_attention_heads
    M = fit_mask(M, B, H, T, T + (0 if cache is None else len(cache)))  # [B or 1, H or 1, T, S]

    q_nope, q_rot = queries(h, R, w, config, recipe, tap)  # [B, T, H, N], [B, T, H, R]
    kv_latent_norm, k_rot = latent_keys(h, R, w, config, recipe, tap)  # [B, T, C], [B, T, R]
    if cache is not None:
        kv_latent_norm, k_rot = cache.extend(kv_latent_norm, k_rot)  # [B, S, C], [B, S, R]
    attend_as = attend_naive if attention == "naive" else attend_absorbed
    z = attend_as(q_nope, q_rot, kv_latent_norm, k_rot, M, w, config, recipe, tap)
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

    q, q_rot, k, v = by_head(q_nope), by_head(q_rot), by_head(k_nope), by_head(v)
    z = attend(naive_scores, q, q_rot, k, k_rot[:, None], v, M, c, recipe, tap)
    return see(tap, "z", by_head(z))  # [B, T, H, V]


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
    N = c.qk_nope_head_dim
    W = stored_values(w.kv_b_proj, recipe).reshape(c.num_attention_heads, N + c.v_head_dim, c.kv_lora_rank)
    W_UK, W_UV = W[:, :N], W[:, N:]  # [H, N, C], [H, V, C]
    q_absorbed = store(product(by_head(q_nope), W_UK.transpose(0, 2, 1), recipe), recipe)  # [B, H, T, C]
    q_absorbed = by_head(see(tap, "q_absorbed", by_head(q_absorbed)))
    latent = kv_latent_norm[:, None]  # [B, 1, S, C]

    z_latent = attend(absorbed_scores, q_absorbed, by_head(q_rot), latent, k_rot[:, None], latent, M, c, recipe, tap)
    z_latent = by_head(see(tap, "z_latent", by_head(z_latent)))  # [B, H, T, C]
    return see(tap, "z", by_head(store(product(z_latent, W_UV, recipe), recipe)))  # [B, T, H, V]


def naive_scores(q_nope: Array, q_rot: Array, k_nope: Array, k_rot: Array, recipe: Recipe) -> Array:
    """Return q . k over all N + R elements, rounded once: [B, H, T, S]."""
    return store(product(q_nope, k_nope, recipe) + product(q_rot, k_rot, recipe), recipe)


def absorbed_scores(q_absorbed: Array, q_rot: Array, latent: Array, k_rot: Array, recipe: Recipe) -> Array:
    """Return the two parts of the scores, each rounded, and their rounded sum: [B, H, T, S]."""
    to_latent = store(product(q_absorbed, latent, recipe), recipe)
    return store(to_latent + store(product(q_rot, k_rot, recipe), recipe), recipe)


def attend(
    scores: Callable[[Array, Array, Array, Array, Recipe], Array],
    q: Array,
    q_rot: Array,
    k: Array,
    k_rot: Array,
    v: Array,
    M: Array,
    c: BlockConfig,
    recipe: Recipe,
    tap: Tap,
) -> Array:
    """Mix values by the softmax of the scores: [B, H, T, width of v].

    q, q_rot  [B, H, T, .];  k, v  [B, H or 1, S, .];  k_rot  [B, 1, S, R];  M  [B or 1, H or 1, T or 1, S]
    Where nobody listens to the scores, they are computed in tiles.
    """

    def mix(q: Array, q_rot: Array, k: Array, k_rot: Array, v: Array, M: Array) -> Array:
        pattern = attention_pattern(scores(q, q_rot, k, k_rot, recipe), M, c, recipe, tap)
        return store(product(pattern, v.swapaxes(-1, -2), recipe), recipe)

    if q.size == 0 or any(listens(tap, name) for name in ("attn_scores", "attn_masked", "pattern")):
        return mix(q, q_rot, k, k_rot, v, M)
    return in_score_tiles(mix, q, q_rot, k, k_rot, v, M, recipe.carrier)


def attention_pattern(scores: Array, M: Array, c: BlockConfig, recipe: Recipe, tap: Tap) -> Array:
    """Return each query's shares over the keys from unscaled scores [B, H, T, S].

    pattern = softmax(RN(RN(scores scale) + M));  scale = (N + R)^-1/2 mscale^2
    A boolean M hides with -inf; a row that is hidden everywhere gives zeros under -inf, and 1/S under the lowest
    finite number of the recipe's storage format (lower ones are stored as -inf).
    """
    xp = array_module(scores, M)
    scale = scores.dtype.type(c.softmax_scale)
    scores = see(tap, "attn_scores", store(scores * scale, recipe))
    if M.dtype.kind == "b":
        masked = xp.where(M, scores, scores.dtype.type(-float("inf")))
    else:
        masked = store(scores + M.astype(scores.dtype, copy=False), recipe)
    return see(tap, "pattern", softmax(see(tap, "attn_masked", masked), recipe))


def by_head(x: Array) -> Array:
    """Swap positions and heads: [B, T, H, .] to [B, H, T, .] and back."""
    return x.swapaxes(1, 2)
