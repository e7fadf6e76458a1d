"""Multi-head latent attention: queries and keys from compressed latents, one rotary key for all heads."""

from __future__ import annotations

from blocklab.block.masks import fit_mask, hide
from blocklab.block.operations import dots, head_by_head, mix, softmax
from blocklab.block.run import Run
from blocklab.block.tiling import in_score_tiles
from blocklab.block.weights import AttentionWeights
from blocklab.numerics.linears import stored_values
from blocklab.xp import Array


def latent_attention(run: Run, h: Array, R: Array, M: Array, w: AttentionWeights) -> Array:
    """Return W^O z for normed tokens h [B, T, D]: the attention half of the block, up to the residual sum.

    Attention "naive" computes keys and values of every head; "absorb" moves W^UK to the query and W^UV to
    the output, and attends to the latents themselves.
    Source: DeepSeek-V3 report, section 2.1.1; DeepSeek-V2 report, section 2.1.2.
    """
    q_nope, q_rot = queries(run, h, R, w)  # [B, T, H, N], [B, T, H, R]
    c, k_rot = latent_keys(run, h, R, w)  # [B, T, C], [B, T, R]
    if run.cache is not None:
        c, k_rot = run.cache.extend(c, k_rot)  # [B, S, C], [B, S, R]
    B, T, H, _ = q_rot.shape
    M = fit_mask(M, B, H, T, c.shape[1])  # [B or 1, H or 1, T or 1, S]
    attend_as = attend_absorbed if run.attention == "absorb" else attend_naive
    z = attend_as(run, q_nope, q_rot, c, k_rot, M, w)  # [B, T, H, V]
    return run.linear("attn_out", z, w.o_proj)  # [B, T, D]


def queries(run: Run, h: Array, R: Array, w: AttentionWeights) -> tuple[Array, Array]:
    """Return q^N = W^UQ c^Q and the rotated q^R of all heads, c^Q = RMSNorm(W^DQ h)."""
    if w.q_a_proj is not None and w.q_a_layernorm is not None:
        c_q = run.linear("q_latent", h, w.q_a_proj)  # [B, T, Q]
        h = run.norm("q_latent_norm", c_q, w.q_a_layernorm)
    q = run.linear("q", h, w.q_b_proj)  # [B, T, H, N+R]
    N = run.config.qk_nope_head_dim
    return run.show("q_nope", q[..., :N]), run.rotate("q_rot", q[..., N:], R)


def latent_keys(run: Run, h: Array, R: Array, w: AttentionWeights) -> tuple[Array, Array]:
    """Return what a cache keeps of [c; k^R] = W^DKV h: the normed latent and the rotated key."""
    kv_down = run.linear("kv_down", h, w.kv_a_proj_with_mqa)  # [B, T, C+R]
    C = run.config.kv_lora_rank
    c = run.norm("kv_latent_norm", run.show("kv_latent", kv_down[..., :C]), w.kv_a_layernorm)
    return c, run.rotate("k_rot", kv_down[..., C:], R)


def attend_naive(run: Run, q_nope: Array, q_rot: Array, c: Array, k_rot: Array, M: Array, w: AttentionWeights) -> Array:
    """Attend with keys and values of every head, [k^N; v] = W^UKV c: z [B, T, H, V]."""
    kv_up = run.linear("kv_up", c, w.kv_b_proj)  # [B, S, H, N+V]
    N = run.config.qk_nope_head_dim
    k_nope, v = run.show("k_nope", kv_up[..., :N]), run.show("v", kv_up[..., N:])
    return run.show("z", in_score_tiles(run, attend, (q_nope, q_rot), (k_nope, k_rot, v), M))


def attend_absorbed(
    run: Run, q_nope: Array, q_rot: Array, c: Array, k_rot: Array, M: Array, w: AttentionWeights
) -> Array:
    """Attend to the latents: z = W^UV (p c), where p comes from the queries (W^UK)^T q^N: z [B, T, H, V]."""
    H, N, C = run.config.num_attention_heads, run.config.qk_nope_head_dim, run.config.kv_lora_rank
    W = stored_values(w.kv_b_proj, run.recipe).reshape(H, -1, C)
    W_UK, W_UV = W[:, :N], W[:, N:]  # [H, N, C], [H, V, C]
    q_c = run.store("q_absorbed", head_by_head(q_nope, W_UK.transpose(0, 2, 1), run.recipe))  # [B, T, H, C]
    z_c = run.show("z_latent", in_score_tiles(run, attend, (q_c, q_rot), (c, k_rot, c), M))  # [B, T, H, C]
    return run.store("z", head_by_head(z_c, W_UV, run.recipe))


def attend(run: Run, q: Array, q_rot: Array, k: Array, k_rot: Array, v: Array, M: Array) -> Array:
    """Return softmax(scale (q . k + q^R . k^R) + M) v.

    q  [B, T, H, .];  k, v  [B, S, H, .], or [B, S, .] where the heads share them;  k^R  [B, S, R];  M  [B, H, T, S]
    """
    s = scores(run, q, q_rot, k, k_rot)  # [B, H, T, S]
    s = run.store("attn_scores", s * s.dtype.type(run.config.softmax_scale))
    s = run.store("attn_masked", hide(s, M))
    p = run.store("pattern", softmax(run.work(s)))
    return run.round("z_latent" if run.attention == "absorb" else "z", mix(p, v, run.recipe))  # [B, T, H, .]


def scores(run: Run, q: Array, q_rot: Array, k: Array, k_rot: Array) -> Array:
    """Return q . k + q^R . k^R, rounded as a whole; absorbed attention rounds both dots and then their sum."""
    nope, rotary = dots(q, k, run.recipe), dots(q_rot, k_rot, run.recipe)
    if run.attention == "absorb":
        nope, rotary = run.round("attn_scores", nope), run.round("attn_scores", rotary)
    return run.round("attn_scores", nope + rotary)
