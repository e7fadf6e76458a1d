# %% [markdown]
# # 3. Latent compression
#
# **What you will do.** You follow a token from the residual stream through the two *latents*, short vectors that
# queries, keys and values are made from. You count what must be kept for later tokens, and then move a matrix from one
# side of a product to the other, which makes the saving real.
#
# **What you will learn.** What attention stores for each token (576 numbers instead of 20,480), why the *absorbed* form
# computes the same as the plain one, and why it is used although it multiplies more.
#
# **You need** tutorials 1 and 2, and that a product of matrices may be bracketed at will: $A(BC) = (AB)C$. 40 minutes.

# %%
import numpy as np
from checks import check
from pictures import chart, show, with_labels

import blocklab
from blocklab.show.attention_plot import draw_patterns, patterns
from blocklab.synth.weights import synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
text = "the cat sat on the mat"
tokens = text_tokens(text)
T = len(tokens)
x = synthetic_embedding(config, seed=0).values()[tokens][None]  # [1, T, D]
rotary, mask = blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T)
trace = blocklab.trace(x, rotary, mask, weights, recipe="float64")

H, Q, C = config.num_attention_heads, config.q_lora_rank, config.kv_lora_rank
N, R, V = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim

# %% [markdown]
# ## Attention in four lines
#
# Attention is a soft look-up. For each head:
#
# - every token makes a **query** (what am I looking for?), a **key** (what can I be found by?) and a **value** (what do
#   I hand over?);
# - the **score** of a query and a key is their dot product, times a constant: large if they fit;
# - a softmax turns the scores of one query into shares that sum to 1 (tutorial 5): the **pattern**;
# - the result is the average of the values, weighted by the shares.
#
# The weights of this course are invented, but heads 0, 1 and 2 were built by hand to do something that can be seen:

# %%
labels = ["^", *text.replace(" ", "␣")]
figure = draw_patterns(patterns(with_labels(trace, labels), heads=[0, 1, 2, 3]))
show(figure, "head 0 looks at the previous token, head 1 at equal letters, head 2 at the first token; head 3 is noise.")

# %% [markdown]
# Rows are queries, columns are keys, and the hatched part lies in the future, where a token may not look.
#
# ## What has to be kept
#
# When a model writes text, it adds one token at a time. The new token's query meets the keys of all tokens before it,
# so the keys and values of all heads must be kept (*cached*), or computed again. How much is that?

# %%
kimi = blocklab.BlockConfig.preset("kimi-k2")
full = kimi.num_attention_heads * (kimi.qk_nope_head_dim + kimi.qk_rope_head_dim + kimi.v_head_dim)
latent = kimi.kv_lora_rank + kimi.qk_rope_head_dim
GiB, layers, bytes_each = 2**30, 61, 2  # 61 blocks; bfloat16 has two bytes
longest = kimi.max_position_embeddings
print(f"keys and values of all heads: {full:,} numbers a token and block")
print(f"what Kimi K2 keeps:           {latent:,} numbers, {full / latent:.1f} times fewer")
print(f"at {longest:,} tokens: {full * layers * longest * bytes_each / GiB:.0f} GiB", end=" ")
print(f"against {latent * layers * longest * bytes_each / GiB:.1f} GiB")
assert (full, latent, longest) == (20_480, 576, 131_072)
assert round(full / latent, 1) == 35.6
assert round(full * layers * longest * bytes_each / GiB) == 305
assert round(latent * layers * longest * bytes_each / GiB, 1) == 8.6

# %% [markdown]
# 305 GiB for a single conversation fit on none of today's GPUs; 8.6 do.
#
# ## Down and up
#
# The trick: keys and values of all heads are made from one short vector, the *latent*. A matrix squeezes the normed
# residual stream $h$ down, a norm follows, and a second matrix expands it again:
#
# $$\begin{aligned}
# [\,c \mid k_\text{rope}\,] &= W_{DKV}\, h &&\text{latent of } C \text{ numbers, and one rotary key of } R \\
# \hat c &= \text{norm}(c) \\
# [\,k_\text{nope} \mid v\,] &= W_{UKV}\, \hat c &&\text{for each head } N \text{ and } V \text{ numbers}
# \end{aligned}$$
#
# Only $\hat c$ and the rotated $k_\text{rope}$ are kept. By hand, and held to the block's own steps:


# %%
def matrix(weight):
    return weight.values().astype(np.float64)  # decoded from FP8 codes and scales; tutorials 7 and 8


def norm(x, gain):
    return gain * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.rms_norm_eps)


attention = weights.self_attn
h = trace["attn_norm"][0]  # [T, D]
kv_down = h @ matrix(attention.kv_a_proj_with_mqa).T  # [T, C+R]
c, k_rope = kv_down[:, :C], kv_down[:, C:]
c_hat = norm(c, matrix(attention.kv_a_layernorm))  # [T, C]
kv_up = (c_hat @ matrix(attention.kv_b_proj).T).reshape(T, H, N + V)
k_nope, v = kv_up[:, :, :N], kv_up[:, :, N:]  # in each head: first the key, then the value

for name, ours in (("kv_latent_norm", c_hat), ("k_nope", k_nope), ("v", v)):
    print(f"{name:15}{ours.shape!s:14} equals the block's: {np.allclose(ours, trace[name][0])}")
    assert np.allclose(ours, trace[name][0])

# %% [markdown]
# Queries go the same way ($W_{DQ}$, norm, $W_{UQ}$). Nobody caches queries, so this saves no memory, only parameters.
#
# ## What is lost
#
# A key of one head has 96 numbers here, and 8 heads have 768. All of them together depend on 256 numbers. In the
# language of linear algebra: the matrix from the residual stream to all keys has *rank* 256 at most. Its singular
# values (how much it stretches along its best directions, sorted) stop dead there:

# %%
W_UKV = matrix(attention.kv_b_proj).reshape(H, N + V, C)
W_UK, W_UV = W_UKV[:, :N], W_UKV[:, N:]  # [H, N, C] and [H, V, C]
W_DKV = matrix(attention.kv_a_proj_with_mqa)[:C]  # [C, D]
to_keys = W_UK.reshape(H * N, C) @ W_DKV  # [768, 640]; the norm between only rescales each token and channel
stretch = np.linalg.svd(to_keys, compute_uv=False)
figure, axes = chart("From the residual stream to the keys of all heads", "direction", "singular value")
axes.semilogy(np.maximum(stretch, 1e-16), ".", markersize=3, color="#0072b2")
axes.axvline(C - 0.5, color="#6b6b6b", linestyle=":", linewidth=0.8)
axes.text(C + 5, 1e-3, f"{C}: width of the latent", fontsize=9)
show(figure, "the first 256 directions get through; the other 384 of the residual stream's 640 do not exist for keys.")
rank = int((stretch > 1e-9 * stretch[0]).sum())
print("rank", rank, "of", min(to_keys.shape))
assert rank == C == 256

# %% [markdown]
# Training has to find a latent that is good enough for all heads. It turns out to be.
#
# ## The absorbed form
#
# There is a catch. If we keep latents only, we need keys again for every new token: for each earlier token a product
# with $W_{UK}$, which has millions of numbers at full size. That would be far too much work. But look at a score,
# where $q$ is the query of one head and $W_{UK}$ that head's part of the matrix:
#
# $$q \cdot (W_{UK}\, \hat c) = q^\top W_{UK}\, \hat c = (W_{UK}^\top q) \cdot \hat c$$
#
# Both sides are the same number. On the right, the *query* is multiplied, once for each new token, and then meets the
# cached latents as they are. Values likewise: with shares $p_s$ over the keys,
#
# $$\sum_s p_s\, (W_{UV}\, \hat c_s) = W_{UV} \Big(\sum_s p_s\, \hat c_s\Big)$$
#
# The matrix is *absorbed* into the query and the output. Keys and values never exist.

# %%
q_nope, q_rot, k_rot = trace["q_nope"][0], trace["q_rot"][0], trace["k_rot"][0]  # rotated: tutorial 4
scale = config.softmax_scale
by_rotation = np.einsum("thr,sr->hts", q_rot, k_rot)

plain = scale * (np.einsum("thn,shn->hts", q_nope, k_nope) + by_rotation)
q_absorbed = np.einsum("thn,hnc->thc", q_nope, W_UK)  # [T, H, C]
absorbed = scale * (np.einsum("thc,sc->hts", q_absorbed, c_hat) + by_rotation)

shares = trace["pattern"][0]  # [H, T, S]
z_plain = np.einsum("hts,shv->thv", shares, v)
z_latent = np.einsum("hts,sc->thc", shares, c_hat)  # [T, H, C]: an average latent for each head
z_absorbed = np.einsum("thc,hvc->thv", z_latent, W_UV)

assert np.allclose(plain, trace["attn_scores"][0], rtol=0, atol=1e-12)
assert np.allclose(absorbed, plain, rtol=0, atol=1e-12)
assert np.allclose(z_absorbed, z_plain, rtol=0, atol=1e-12)
print("scores and outputs of both forms are equal within 1e-12")

# %% [markdown]
# (`np.einsum("thn,shn->hts", ...)` reads: for every h, t and s, multiply along n and sum.) The block has this form too:

# %%
absorb = blocklab.trace(x, rotary, mask, weights, recipe="float64", attention="absorb")
difference = np.abs(absorb["resid_post"] - trace["resid_post"]).max()
print("steps that only the absorbed form has:", [name for name in absorb if name not in trace])
print("steps that it does not need:          ", [name for name in trace if name not in absorb])
assert difference < 1e-14
assert np.allclose(absorb["q_absorbed"][0], q_absorbed)

# %% [markdown]
# An absorbed query says directly what a head looks for in a latent. For the heads that were built by hand it can be
# read like a wiring diagram:

# %%
loudness = np.sqrt(np.mean(q_absorbed**2, axis=0))  # [H, C]
figure, axes = chart("What each head reads from the latent", "latent channel", "head", "rms of the absorbed query")
image = axes.imshow(
    np.log10(loudness + 0.03), cmap="Blues", aspect="auto", interpolation="nearest", extent=(0, C, H - 0.5, -0.5)
)
bar = figure.colorbar(image, ax=axes, ticks=np.log10(np.array([0.03, 0.1, 0.3, 1, 3, 10]) + 0.03))
bar.ax.set_yticklabels(["0.03", "0.1", "0.3", "1", "3", "10"])
axes.set_yticks(range(H))
axes.grid(False)
axes.set_xticks([0, 64, 128, 192, 256])
show(figure, "head 0 reads nothing here, head 1 the letter's code in channels 0 to 63, head 2 channel 64 alone.")
assert loudness[0].max() == 0  # head 0 works by position only: tutorial 4
assert loudness[1, :64].min() > 1
assert loudness[1, 64:].max() == 0
assert loudness[2].argmax() == 64
assert np.delete(loudness[2], 64).max() == 0

# %% [markdown]
# ## A surprise: fewer numbers, more work
#
# You may expect that the short form saves multiplications. Count for Kimi K2, for each pair of a new token and an
# earlier one:

# %%
k = kimi
keep_all = k.num_attention_heads * (k.qk_nope_head_dim + k.qk_rope_head_dim + k.v_head_dim)
expand = keep_all + k.num_attention_heads * (k.qk_nope_head_dim + k.v_head_dim) * k.kv_lora_rank
absorbing = k.num_attention_heads * (k.kv_lora_rank + k.qk_rope_head_dim + k.kv_lora_rank)
for name, numbers, work in (
    ("keep keys and values", full, keep_all),
    ("keep latents, expand them each time", latent, expand),
    ("keep latents, absorb", latent, absorbing),
):
    print(f"{name:36} reads {numbers:6,} numbers, {work:9,} multiplications, {work / numbers:8,.0f} for each number")
assert absorbing == 69_632
assert round(absorbing / keep_all, 1) == 3.4
assert round(absorbing / latent) == 121

# %% [markdown]
# The absorbed form multiplies 3.4 times as much as the plain one, since a latent (512) is wider than a key (128) or a
# value (128). It wins all the same: a GPU can multiply hundreds of times while it waits for one number from memory, so
# reading 36 times less is what counts.
#
# A second one: now the dot products are 576 numbers long, not 192. Must the scale, $192^{-1/2}$ times a constant,
# become $576^{-1/2}$? No: the scores are the *same numbers* as before, whatever way we bracket them. That mistake has
# been made in real software ([vllm#41569](https://github.com/vllm-project/vllm/issues/41569)).
#
# And a third: equal in exact arithmetic does not mean equal in bits. With results rounded to bfloat16, both forms are
# about equally far from the truth, and differ from each other:

# %%
runs = {form: blocklab.trace(x, rotary, mask, weights, "deepseek-bf16", attention=form) for form in ("naive", "absorb")}
truth = trace["z"]
for form, run in runs.items():
    print(f"{form:7} is {np.linalg.norm(run['z'] - truth) / np.linalg.norm(truth):.1%} away from float64")
unequal = np.mean(runs["naive"]["z"] != runs["absorb"]["z"])
print(f"and {unequal:.1f} of all numbers of z differ between them")
assert 0.35 < unequal < 0.45

# %% [markdown]
# ## The cache at work
#
# One token at a time, with a cache that grows, gives what the whole text at once gave. The first eight tokens:

# %%
cache = blocklab.LatentCache()
rows = []
for t in range(8):
    one = x[:, t : t + 1]
    may_look = blocklab.causal_mask(1, len(cache) + 1)  # the new token may see all cached ones and itself
    rows.append(blocklab.dense_block(one, rotary[t : t + 1], may_look, weights, "float64", "absorb", cache=cache))
kept = cache.kv_latent_norm.shape[-1] + cache.k_rot.shape[-1]
print(f"{len(cache)} tokens cached, {kept} numbers each (keys and values would be {H * (N + R + V):,})")
assert np.allclose(np.concatenate(rows, axis=1), trace["resid_post"][:, :8], rtol=0, atol=1e-12)
assert (kept, H * (N + R + V)) == (320, 2176)

# %% [markdown]
# ## Exercises
#
# Solutions are in [solutions/03_latent_compression.py](solutions/03_latent_compression.py).
#
# **3.1** (5 minutes, easy) How many GiB ($2^{30}$ bytes) does the cache of a whole model take, with what a block of
# this kind keeps, in bfloat16?


# %%
def cache_gib(config, tokens, layers):
    raise NotImplementedError


check("3.1", cache_gib)

# %% [markdown]
# <!-- fold 3.1 -->
#
# **3.2** (5 minutes, medium) Split the output of $W_{UKV}$. `kv_up` has shape `[T, H * (N + V)]`: head after head, and
# in each head first the key, then the value. Return `(k_nope, v)` of shapes `[T, H, N]` and `[T, H, V]`. (Files
# converted for other programs sometimes have another order. With $N = V$ a wrong split raises no error, and the model
# babbles.)


# %%
def split_keys_and_values(kv_up, H, N, V):
    raise NotImplementedError


check("3.2", split_keys_and_values)

# %% [markdown]
# <!-- fold 3.2 -->
#
# **3.3** (10 minutes, medium) Compute scores in the absorbed form, `[H, T, S]`, from what is there when a model writes:
# queries `q_nope [T, H, N]` and `q_rot [T, H, R]`, the cache `c_hat [S, C]` and `k_rot [S, R]`, and `W_UK [H, N, C]`.
# The scale of the softmax is $(N + R)^{-1/2}$ here (no constant). No key may be computed: `check` has a case whose keys
# would be too large for float64.


# %%
def absorbed_scores(q_nope, q_rot, c_hat, k_rot, W_UK):
    raise NotImplementedError


check("3.3", absorbed_scores)

# %% [markdown]
# <!-- fold 3.3 -->
#
# ## Read on
#
# - [blocklab/block/attention.py](../blocklab/block/attention.py): `latent_keys`, `attend_naive`, `attend_absorbed`.
# - [blocklab/synth/circuits.py](../blocklab/synth/circuits.py): how the three heads were built.
# - DeepSeek-V2 report, section 2.1, where this attention was invented:
#   [arXiv 2405.04434](https://arxiv.org/abs/2405.04434).
#
# Next: [4. Decoupled rotary](04_decoupled_rotary.ipynb), which explains `q_rot` and `k_rot`.
