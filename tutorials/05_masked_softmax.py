# %% [markdown]
# # 5. Masked softmax
#
# **What you will do.** You turn scores into shares, safely; hide the future; meet a row in which everything is hidden;
# and compute a softmax piece by piece, as fast GPU kernels do, without ever holding a whole row.
#
# **What you will learn.** Why the maximum is subtracted, what three kinds of masks have in common and where they part,
# what "aligned lower right" means, the running maximum behind FlashAttention, and which token to look at when you
# compare two programs.
#
# **You need** tutorial 3, section "Attention in four lines". 40 minutes.

# %%
from dataclasses import replace

import numpy as np
from checks import check
from pictures import chart, show, with_labels

import blocklab
from blocklab.block.masks import combine_masks, padded_positions, padding_mask
from blocklab.show import plot
from blocklab.synth.weights import synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
text = "the cat sat on the mat"
tokens, labels = text_tokens(text), ["^", *text.replace(" ", "␣")]
T, H = len(tokens), config.num_attention_heads
x = synthetic_embedding(config, seed=0).values()[tokens][None]  # [1, T, D]
rotary, mask = blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T)
trace = with_labels(blocklab.trace(x, rotary, mask, weights, recipe="float64"), labels)
scores = trace["attn_scores"][0]  # [H, T, S]: every query against every key, before the mask

# %% [markdown]
# ## From scores to shares
#
# A head's scores $s_1, \dots, s_n$ for one query can be any numbers. The softmax makes shares of them, positive and
# with sum 1; a score that is larger by 1 gets $e = 2.718$ times the share:
#
# $$p_j = \frac{e^{s_j}}{\sum_k e^{s_k}}$$
#
# Only differences count: adding the same number to all scores multiplies numerator and denominator alike.


# %%
def softmax_plain(s):
    e = np.exp(s)
    return e / e.sum(axis=-1, keepdims=True)


print(softmax_plain(np.array([1.0, 2.0, 3.0])).round(3))
print(softmax_plain(np.array([11.0, 12.0, 13.0])).round(3))
with np.errstate(all="ignore"):
    overflow = softmax_plain(np.array([1001.0, 1002.0, 1003.0]))
print(overflow, "since e^1001 is too large for any float")
assert np.isnan(overflow).all()
assert softmax_plain(np.array([1.0, 2.0, 3.0])).round(3).tolist() == [0.09, 0.245, 0.665]

# %% [markdown]
# So we subtract the maximum first. It changes nothing in exact arithmetic; the largest exponent is then 0, and what
# underflows to 0 would have been a share of nothing anyway:


# %%
def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


print(softmax(np.array([1001.0, 1002.0, 1003.0])).round(3))
print(
    f"the largest score of our block is {scores.max():.0f}: e^{scores.max():.0f} would still fit, in float32 up to e^88"
)
assert np.allclose(softmax(scores), softmax_plain(scores))
assert np.allclose(softmax(np.array([1001.0, 1002.0, 1003.0])), softmax_plain(np.array([1.0, 2.0, 3.0])))

# %% [markdown]
# ## Hiding the future
#
# A model that predicts the next token must not see it. So a *mask* says which query may look at which key: here, query
# $t$ at keys $0 \dots t$. This is the *causal* mask. Hidden scores become $-\infty$, and $e^{-\infty} = 0$.

# %%
masked = np.where(mask, scores, -np.inf)
pattern = softmax(masked)
assert np.array_equal(masked, trace["attn_masked"][0])
assert np.allclose(pattern, trace["pattern"][0], rtol=0, atol=1e-15)
assert np.allclose(pattern.sum(axis=-1), 1)
show(
    plot(trace, "attn_masked", head=1), "masked scores of head 1: equal letters score 16 or so, the future is hatched."
)
show(plot(trace, "pattern", head=1), "its pattern: the share is spread evenly over equal letters so far.")

# %% [markdown]
# Rows are queries. Row 0 is the first token, which can only look at itself: its share is 1, *whatever its score is*.
# Keep this in mind.
#
# There are three common ways to write a mask:
#
# - **boolean**: True where a query may look (in some libraries True means *hidden*: read the manual);
# - **additive with $-\infty$**: a matrix of 0 and $-\infty$ that is added to the scores;
# - **additive with the lowest finite number**: 0 and $-3.4 \cdot 10^{38}$.
#
# They give the same pattern:

# %%
lowest = float(np.finfo(np.float32).min)
infinite = np.where(mask, 0.0, -np.inf)
finite = np.where(mask, 0.0, lowest)
for name, other in (("0 and -inf", infinite), ("0 and lowest finite", finite)):
    run = blocklab.trace(x, rotary, other, weights, recipe="float64")
    print(f"{name:20} same pattern: {np.array_equal(run['pattern'], trace['pattern'])}")
    assert np.array_equal(run["pattern"], trace["pattern"])

# %% [markdown]
# What goes wrong in practice: *adding* a boolean mask. True becomes 1 and False 0, hidden keys get a score that is
# smaller by 1, and everybody sees the future. blocklab refuses such a mask:

# %%
try:
    blocklab.dense_block(x, rotary, mask.astype(np.float32), weights)
except blocklab.InputError as error:
    print(error)

# %% [markdown]
# ## Rows in which everything is hidden
#
# When several texts run together, short ones are filled up, often on the left, with padding tokens. Nobody may look at
# padding. Together with the causal mask, a padding token in front may then look at nothing at all, not even at itself.
# What is the softmax of nothing?

# %%
padding = 3
both = combine_masks(mask, padding_mask(np.array([padding]), T))[0, 0]  # [T, S]
with np.errstate(invalid="ignore"):
    nothing = softmax(np.where(both, scores, -np.inf))
print("rows that may look nowhere:", np.flatnonzero(~both.any(axis=-1)))
print("softmax of a row of -inf:", nothing[0, 0, :4], "since -inf - (-inf) is not a number")
assert np.isnan(nothing[:, :padding]).all()

# %%
hidden_run = blocklab.trace(x, rotary, both, weights, recipe="float64")
lowest_run = blocklab.trace(x, rotary, np.where(both, 0.0, lowest), weights, recipe="float64")
print("blocklab, boolean or -inf:      ", hidden_run["pattern"][0, 3, 0, :4])
print("blocklab, lowest finite number: ", lowest_run["pattern"][0, 3, 0, :4].round(4), f"1/{T} = {1 / T:.4f}")
assert not hidden_run["pattern"][0, :, :padding].any()
assert np.allclose(lowest_run["pattern"][0, :, :padding], 1 / T)
assert np.array_equal(hidden_run["pattern"][0, :, padding:], lowest_run["pattern"][0, :, padding:])

# %% [markdown]
# With $-\infty$ a row of nothing is 0 here, as in fused GPU kernels; the plain formula gives NaN (not a number), and
# a single NaN spreads to the whole text in the next block. With the lowest finite number all scores of the row become
# *equal*, since the score itself is lost in $-3.4 \cdot 10^{38}$, and every key gets $1/S$, the future included.
# Neither is right or wrong, since nobody reads padding, but comparing programs on padded rows is a waste of time.
#
# And two masks of the last kind must never be added: twice the lowest finite number is $-\infty$.

# %%
with np.errstate(over="ignore"):
    twice = np.float32(lowest) + np.float32(lowest)
print("lowest + lowest =", twice)
assert twice == -np.inf

# %% [markdown]
# A text that is padded on the left, with positions counted from its first real token, gives what it gives alone:

# %%
filled = synthetic_embedding(config, seed=0).values()[[0] * padding + tokens][None]  # [1, padding + T, D]
places = padded_positions(np.array([padding]), padding + T)
may_look = combine_masks(blocklab.causal_mask(padding + T), padding_mask(np.array([padding]), padding + T))
padded = blocklab.dense_block(filled, blocklab.rotary_table(config, places), may_look, weights, recipe="float64")
print("real tokens are equal:", np.allclose(padded[:, padding:], trace["resid_post"], rtol=0, atol=1e-12))
assert np.allclose(padded[:, padding:], trace["resid_post"], rtol=0, atol=1e-12)

# %% [markdown]
# ## Aligned lower right
#
# With a cache (tutorial 3), new queries come after many cached keys. Two new tokens after five cached ones: the mask
# has 2 rows and 7 columns, and its triangle sits in the lower *right*:

# %%
print(blocklab.causal_mask(2, 7).astype(int))
print("aligned upper left, a mistake: the new tokens see the first words of the text only")
print(np.tri(2, 7, dtype=int))
assert blocklab.causal_mask(2, 7).tolist() == [[True] * 6 + [False], [True] * 7]

# %% [markdown]
# ## Piece by piece, with a running maximum
#
# A row of 131,072 scores for each of 64 heads and each query does not fit into the fast memory of a GPU.
# FlashAttention never holds a row. It takes the keys in tiles, and keeps three things for each query: the largest
# score so far $m$, the sum so far $\ell = \sum e^{s - m}$, and the values so far, weighted alike, $z = \sum e^{s - m}
# v$. When a tile brings a larger maximum $m'$, what was summed before is too large, all by the same factor, and is
# multiplied by $e^{m - m'}$:


# %%
def attend_in_tiles(scores, values, size):
    """Return softmax(scores) @ values and what was seen on the way; scores [S], values [S, V]."""
    m, total, z, history = -np.inf, 0.0, np.zeros(values.shape[1]), []
    for start in range(0, len(scores), size):
        s, v = scores[start : start + size], values[start : start + size]
        new_m = max(m, s.max())
        if new_m == -np.inf:
            continue  # everything hidden so far
        shrink = np.exp(m - new_m)  # 0 for the first tile, where m is -inf
        weights = np.exp(s - new_m)
        total = total * shrink + weights.sum()
        z = z * shrink + weights @ v
        m = new_m
        history.append((start + len(s), m, total))
    return z / total, np.array(history)


head, query = 3, T - 1
v = trace["v"][0, :, head]  # [S, V]
for size in (1, 4, 7, T):
    z, history = attend_in_tiles(masked[head, query], v, size)
    print(
        f"tiles of {size:2}: equal to the block's z: {np.allclose(z, trace['z'][0, query, head], rtol=0, atol=1e-13)}"
    )
    assert np.allclose(z, trace["z"][0, query, head], rtol=0, atol=1e-13)

# %%
z, history = attend_in_tiles(masked[head, query], v, 1)
figure, axes = chart(f"Running maximum and sum of head {head}, last query", "keys seen", "", "one key at a time")
axes.plot(np.arange(1, T + 1), masked[head, query], ".", label="score", color="#1a1a1a")
axes.step(history[:, 0], history[:, 1], where="post", label="largest score so far", color="#0072b2")
axes.step(
    history[:, 0], history[:, 2], where="post", label="sum of e^(score - largest)", color="#d55e00", linestyle="--"
)
axes.legend(frameon=False)
show(figure, "whenever the maximum rises, the sum so far shrinks; afterwards it grows again.")

# %% [markdown]
# It is the same number in exact arithmetic. In float32, or with shares rounded to bfloat16, it is not the same bits:
# a fast kernel and a plain one differ in the last digit, and none of them is wrong.
#
# ## A surprise: which token tells you the truth?
#
# Two mistakes, one at a time: a softmax scale that is too small (mscale forgotten, tutorial 4), and no mask at all.
# Who would compare the result for a single token would take the first one, or the last one. Here is the error of
# attention's result for each of them:

# %%
no_mscale = replace(weights, config=replace(config, yarn=replace(config.yarn, mscale=0.0, mscale_all_dim=0.0)))
wrong_scale = blocklab.trace(x, rotary, mask, no_mscale, recipe="float64")
no_mask = blocklab.trace(x, rotary, np.ones((T, T), bool), weights, recipe="float64")


def error(run):
    """Return the relative error of attn_out for each query [T]."""
    right = trace["attn_out"][0]
    return np.linalg.norm(run["attn_out"][0] - right, axis=-1) / np.linalg.norm(right, axis=-1)


figure, axes = chart("Error of what attention adds", "query", "error / size")
axes.plot(error(wrong_scale), marker="o", markersize=4, label="wrong scale", color="#0072b2")
axes.plot(error(no_mask), marker="s", markersize=4, label="no mask", color="#d55e00", linestyle="--")
axes.set_xticks(range(T), labels)
axes.legend(frameon=False)
show(figure, "a wrong scale is invisible at the first token, a missing mask at the last one.")
print(f"wrong scale: error {error(wrong_scale)[0]:.2f} at the first token, {error(wrong_scale)[-1]:.2f} at the last")
print(f"no mask:     error {error(no_mask)[0]:.2f} at the first token, {error(no_mask)[-1]:.2f} at the last")
assert error(wrong_scale)[0] < 1e-12 < 0.09 < error(wrong_scale)[-1]
assert error(no_mask)[-1] < 1e-12 < 0.5 < error(no_mask)[0]

# %% [markdown]
# The first query gives share 1 to itself, whatever the scale: it also hides every mistake about positions. The last
# query may look everywhere anyway: it hides a missing mask. Compare all of them, and look at the error *per query*.
#
# ## Exercises
#
# Solutions are in [solutions/05_masked_softmax.py](solutions/05_masked_softmax.py).
#
# **5.1** (10 minutes, medium) Write a softmax over the last axis that is safe in every way: large scores do not
# overflow, and a row of nothing but $-\infty$ gives zeros. A NaN among the scores is a fault of whoever computed them:
# it must not become a row of zeros, in which nobody would see it. `check` passes arrays with any number of axes.


# %%
def safe_softmax(scores):
    raise NotImplementedError


check("5.1", safe_softmax)

# %% [markdown]
# <!-- fold 5.1 -->
#
# **5.2** (10 minutes, medium) Return the boolean mask `[T, S]` for `T` new tokens that follow `S - T` cached ones,
# where every token may look at the last `window` tokens up to itself only (itself included). With `window >= S` it is
# the causal mask. Some models have such *sliding windows*.


# %%
def window_mask(T, S, window):
    raise NotImplementedError


check("5.2", window_mask)

# %% [markdown]
# <!-- fold 5.2 -->
#
# **5.3** (15 minutes, hard) Two halves of the keys have been summed on two different GPUs. Each has, for every query,
# its maximum `m [T]`, its sum `total [T]` and its weighted values `z [T, V]`, not divided by the sum yet. If all keys
# of a half are hidden from a query, `m` is $-\infty$ and the other two are 0. Return the finished result `[T, V]` of
# softmax and values. No query has everything hidden in both halves.


# %%
def merge(m_1, total_1, z_1, m_2, total_2, z_2):
    raise NotImplementedError


check("5.3", merge)

# %% [markdown]
# <!-- fold 5.3 -->
#
# ## Read on
#
# - `softmax` in [blocklab/block/operations.py](../blocklab/block/operations.py),
#   [masks.py](../blocklab/block/masks.py), and `attend` in [attention.py](../blocklab/block/attention.py).
# - FlashAttention: [arXiv 2205.14135](https://arxiv.org/abs/2205.14135); the running maximum:
#   [arXiv 1805.02867](https://arxiv.org/abs/1805.02867).
# - Fully masked rows in the wild: [pytorch#103749](https://github.com/pytorch/pytorch/issues/103749).
#
# Next: [6. SwiGLU](06_swiglu.ipynb).
