# %% [markdown]
# # 2. RMSNorm
#
# **What you will do.** You write the norm in one line, hold it to the one in the block, take it apart (scale, gain,
# eps), and find the two places where implementations round it differently.
#
# **What you will learn.** Why the norm is there, what its gain does to a channel that is much too loud, when the tiny
# constant eps matters, and why two correct programs can disagree in a fifth of all numbers.
#
# **You need** tutorial 1. 30 minutes.
#
# A block adds to the residual stream and never takes anything away, so that vectors may grow from block to block. The
# matrices that read the stream should not care. So each of the block's two halves first divides every vector by its
# own size. That is all a norm is.

# %%
import numpy as np
from checks import check
from pictures import chart, show

import blocklab
from blocklab.synth.weights import synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
tokens = text_tokens("the cat sat on the mat")
T, D = len(tokens), config.hidden_size
x = synthetic_embedding(config, seed=0).values()[tokens][None]  # [1, T, D]
rotary, mask = blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T)
trace = blocklab.trace(x, rotary, mask, weights, recipe="float64")

# %% [markdown]
# ## The formula
#
# For a vector $x$ of $D$ numbers, with one gain $g_i$ for each channel $i$ (a learned parameter):
#
# $$y_i = g_i \, \frac{x_i}{\sqrt{\frac{1}{D} \sum_j x_j^2 + \varepsilon}}$$
#
# The root is the *root mean square* of the vector, rms for short: its typical size. $\varepsilon$ (eps) is a tiny
# constant that keeps the division safe. Every token is normed alone; nothing is shared along the text.


# %%
def rms(x):
    return np.sqrt(np.mean(x**2, axis=-1))


def rms_norm(x, gain, eps):
    return gain * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


gain = weights.input_layernorm.values().astype(np.float64)  # stored as bfloat16, here decoded
x = x.astype(np.float64)
h = rms_norm(x, gain, config.rms_norm_eps)
print("equal to the block's within 1e-14:", np.allclose(h, trace["attn_norm"], rtol=0, atol=1e-14))
assert np.allclose(h, trace["attn_norm"], rtol=0, atol=1e-14)

# %% [markdown]
# Without the gain, every token comes out with rms 1, whatever it was before. Making the input a thousand times larger
# changes next to nothing:

# %%
without_gain = rms_norm(x, 1.0, config.rms_norm_eps)
print("rms of the first four tokens, before:", rms(x)[0, :4].round(4))
print("                               after:", rms(without_gain)[0, :4].round(4))
louder = rms_norm(1000 * x, gain, config.rms_norm_eps)
print(f"input times 1000: the output changes by {np.linalg.norm(louder - h) / np.linalg.norm(h):.0e}")
assert np.allclose(rms(without_gain), 1, atol=1e-4)
assert np.linalg.norm(louder - h) / np.linalg.norm(h) < 1e-4

# %% [markdown]
# So the norm keeps the direction of a vector and throws its length away.
#
# ## What the gain does
#
# In trained models a few channels of the residual stream are enormous, and the same for every token: the model uses
# them as a constant ([arXiv 2402.17762](https://arxiv.org/abs/2402.17762)). Our invented weights have one such channel
# too. Its neighbours have an rms of about 1/16; it has 2:

# %%
loud = 426
size = np.sqrt(np.mean(x**2, axis=(0, 1)))  # [D]: rms of each channel over the tokens
size_after = np.sqrt(np.mean(h**2, axis=(0, 1)))
print(f"before: channel {loud} has {size[loud]:.1f}, the median channel {np.median(size):.3f}")
print(f"after:  channel {loud} has {size_after[loud]:.1f}, the median channel {np.median(size_after):.3f}")
print(f"its gain is {gain[loud]}; the others are between {np.sort(gain)[1]:.2f} and {gain.max():.2f}")
assert gain[loud] == 0.25
assert gain.argmin() == loud == size.argmax()
assert round(size[loud] / np.median(size)) == 36
assert round(size_after[loud] / np.median(size_after)) == 9

# %%
figure, axes = chart(
    "One loud channel", "channel", "rms over the tokens", "before the norm, normed, and after the gain"
)
axes.semilogy(size, ".", markersize=3, label="x", color="#1a1a1a")
axes.semilogy(size / rms(x).mean(), ".", markersize=3, label="x / rms(x)", color="#56b4e9")
axes.semilogy(size_after, ".", markersize=3, label="times the gain", color="#d55e00")
axes.set_ylim(0.015, 150)
axes.annotate(f"channel {loud}", (loud, 20.2), xytext=(loud + 20, 25), fontsize=9)
axes.legend(frameon=False, loc="upper left", markerscale=3)
show(figure, "the norm moves all channels by one factor; the gain brings the loud one down from 36 times to 9 times.")

# %% [markdown]
# (The row of equal dots on the left are channels of hand-made codes; you meet them in tutorial 3. Channels that are
# exactly zero are not drawn.) The gain is where a model says how much it wants to hear of each channel. It could as
# well be multiplied into the columns of the matrix that comes next; exercise 2.2 does that.
#
# ## A surprise: one channel sets the volume of all
#
# The mean of squares is a poor average when one channel is 36 times as loud as the others. Of the 640 squares, how much
# of the sum is this one?

# %%
share = (x[..., loud] ** 2 / np.sum(x**2, axis=-1)).mean()
muted = x.copy()
muted[..., loud] = 0
growth = (rms_norm(muted, gain, config.rms_norm_eps)[..., 0] / h[..., 0]).mean()
print(f"channel {loud} is {share:.0%} of the sum of squares; without it all other channels grow {growth:.2f} times")
assert round(share, 2) == 0.64
assert round(growth, 2) == 1.66

# %% [markdown]
# Whoever sets that channel to zero, to see what it is good for, changes every other channel by a factor of 1.66
# as well. Remember this when you patch activations: behind a norm nothing is local.
#
# ## When eps matters
#
# $\varepsilon$ is $10^{-6}$ here, and our tokens have an rms of 0.1, so a mean square of 0.01: eps changes nothing that
# we would see. But a token of rms 0.001 has a mean square of $10^{-6}$, exactly eps, and then it matters. Older models
# have $10^{-5}$, and programs that assume it instead of reading the config are wrong for quiet tokens only:

# %%
sizes = np.logspace(-5, 0, 101)
figure, axes = chart(
    "What comes out of the norm", "rms of the token", "rms after the norm", "with gains of 1, it should be 1"
)
for eps, color in ((1e-6, "#0072b2"), (1e-5, "#d55e00")):
    axes.semilogx(sizes, sizes / np.sqrt(sizes**2 + eps), label=f"eps {eps:.0e}", color=color)
axes.axvline(rms(x).mean(), color="#6b6b6b", linestyle=":", linewidth=0.8)
axes.text(rms(x).mean() * 1.1, 0.05, "our tokens", fontsize=9)
axes.legend(frameon=False)
show(figure, "loud tokens come out with rms 1; below 0.01 the two values of eps part ways.")

# %%
quiet = np.full((1, D), 1e-3)  # rms 0.001
ratio = (rms_norm(quiet, 1.0, 1e-6) / rms_norm(quiet, 1.0, 1e-5))[0, 0]
print(f"a token of rms 0.001: eps 1e-6 gives {ratio:.2f} times what eps 1e-5 gives")
print("a token of zeros:", rms_norm(np.zeros((1, D)), 1.0, 1e-6).max(), "and without eps it would be 0 / 0")
assert round(ratio, 2) == 2.35

# %% [markdown]
# ## Two places to round
#
# The hardware stores activations as *bfloat16*: the first 8 of float32's 24 significant bits. `round_to` moves numbers
# onto that grid (tutorial 7). A kernel (a program for a GPU) computes the norm in float32 and rounds when it stores the
# result. But published programs do it in two ways:
#
# - **once**: $y = \text{round}(g \cdot x \cdot r)$ with $r = 1 / \sqrt{\text{mean} + \varepsilon}$ (DeepSeek's code);
# - **twice**: $y = \text{round}(g \cdot \text{round}(x \cdot r))$ (Hugging Face transformers).

# %%
from blocklab.numerics import round_to


def bf16(x):
    return round_to(x, "bfloat16")


r = 1 / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.rms_norm_eps)
once = bf16(gain * (x * r))
twice = bf16(gain * bf16(x * r))
print(f"{np.mean(once != twice):.0%} of all numbers differ,")
with_gain, gain_one = (np.mean((once != twice)[..., where]) for where in (gain != 1, gain == 1))
print(f"{with_gain:.0%} where the gain is not 1, and {gain_one:.0%} where it is.")
assert round(np.mean(once != twice), 2) == 0.21
assert (round(with_gain, 2), gain_one) == (0.26, 0)

# %% [markdown]
# A quarter of the numbers differ in their last bit, and a test whose gains are all 1 sees nothing. The block has both,
# as part of its *recipes* (a recipe says where a run rounds), and agrees with our lines in every bit:

# %%
for recipe, ours in (("deepseek-bf16", once), ("bfloat16", twice)):
    theirs = blocklab.trace(x, rotary, mask, weights, recipe=recipe, steps="attn_norm")["attn_norm"]
    error = np.linalg.norm(ours - h) / np.linalg.norm(h)
    print(f"{recipe:14} equal in every bit: {np.array_equal(theirs, ours)}; {error:.4f} away from float64")
    assert np.array_equal(theirs, ours)
assert np.linalg.norm(once - h) < np.linalg.norm(twice - h)

# %% [markdown]
# Neither is a mistake. Rounding once is closer to the truth, but a model that was trained with one of them should be
# run with the same. When you port a model, this is the first place where your numbers differ "in the last digit".
#
# ## How not to add
#
# One thing must not be rounded: the sum of squares while it is being added up. The mean of 7168 ones is 1, isn't it?

# %%
total = np.float64(0)
for _ in range(7168):
    total = bf16(total + 1)
print(f"the sum of 7168 ones in bfloat16 is {total:.0f}, and their mean {total / 7168:.3f}")
assert total == 256
assert round(total / 7168, 3) == 0.036

# %% [markdown]
# With 8 significant bits, 256 + 1 = 257 has no place on the grid and rounds back to 256, for ever. That is why norms
# accumulate in float32 or wider, and why you should do the same with statistics of activations.
#
# ## Exercises
#
# Solutions are in [solutions/02_rms_norm.py](solutions/02_rms_norm.py).
#
# **2.1** (5 minutes, easy) Write the norm in its "twice" form for arrays `x` of shape `[..., D]`: it rounds $x r$ to
# bfloat16, multiplies by the gain, and rounds again. Use `bf16` from above (`check` passes float64 arrays).


# %%
def rms_norm_twice(x, gain, eps):
    raise NotImplementedError


check("2.1", rms_norm_twice)

# %% [markdown]
# <!-- fold 2.1 -->
#
# **2.2** (5 minutes, easy) A norm is followed by a matrix: $W \, (g \cdot \hat{x})$, where $\hat{x} = x r$ is the
# vector normed without gain. Return a matrix $W'$ with $W' \hat{x} = W (g \cdot \hat{x})$ for every $\hat{x}$, so that
# the gain can be dropped. `W` has shape `[M, D]` and `gain` has `[D]`. (People who study models do this first: it
# leaves a stream that is read by matrices only.)


# %%
def fold_gain(W, gain):
    raise NotImplementedError


check("2.2", fold_gain)

# %% [markdown]
# <!-- fold 2.2 -->
#
# **2.3** (5 minutes, easy) Given the rms of a token and two values of eps, by what factor is its normed vector longer
# with the first eps than with the second? (For 0.001, $10^{-6}$ and $10^{-5}$: 2.35.)


# %%
def eps_ratio(token_rms, eps_1, eps_2):
    raise NotImplementedError


check("2.3", eps_ratio)

# %% [markdown]
# <!-- fold 2.3 -->
#
# ## Read on
#
# - `rms_norm` in [blocklab/block/operations.py](../blocklab/block/operations.py): the same formula, any recipe.
# - Zhang and Sennrich, Root Mean Square Layer Normalization: [arXiv 1910.07467](https://arxiv.org/abs/1910.07467).
# - Massive activations in trained models: [arXiv 2402.17762](https://arxiv.org/abs/2402.17762).
#
# Next: [3. Latent compression](03_latent_compression.ipynb).
