# %% [markdown]
# # 6. SwiGLU
#
# **What you will do.** You compute the MLP of the block by hand, watch one of its neurons recognise vowels, take
# neurons out one by one, and swap two matrices by mistake.
#
# **What you will learn.** What a gate is, why silu is written in an odd way, how to read an MLP as a sum over neurons,
# and why the loudest neuron is not the one that matters.
#
# **You need** tutorials 1 and 2. 30 minutes.

# %%
import math
from dataclasses import replace

import numpy as np
from checks import check
from pictures import chart, show

import blocklab
from blocklab.block.taps import Replace
from blocklab.synth.weights import outlier_neurons, synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
text = "the cat sat on the mat"
tokens, labels = text_tokens(text), ["^", *text.replace(" ", "␣")]
T = len(tokens)
x = synthetic_embedding(config, seed=0).values()[tokens][None]  # [1, T, D]
rotary, mask = blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T)
trace = blocklab.trace(x, rotary, mask, weights, recipe="float64")
D, F = config.hidden_size, config.intermediate_size
print(f"D={D}: numbers in the residual stream; F={F}: neurons of the MLP")

# %% [markdown]
# ## The formula
#
# Attention has moved information between tokens. The MLP now works on each token alone. It reads the normed residual
# stream $h$ of the token (tutorial 2) with two matrices, multiplies the two results number by number, and writes back
# with a third matrix:
#
# $$\text{gate} = W_\text{gate}\, h, \qquad \text{up} = W_\text{up}\, h, \qquad
# y = W_\text{down} \big( \text{silu}(\text{gate}) \cdot \text{up} \big)$$
#
# $$\text{silu}(g) = \frac{g}{1 + e^{-g}}$$
#
# $W_\text{gate}$ and $W_\text{up}$ are $[F, D]$, $W_\text{down}$ is $[D, F]$. Each of the $F$ places in the middle is a
# *neuron*. The dot multiplies number by number. In numpy:


# %%
def matrix(weight):
    return weight.values().astype(np.float64)  # decoded from FP8 codes and scales; tutorials 7 and 8


def silu(g):
    return g / (1 + np.exp(-g))


W_gate, W_up, W_down = (matrix(weights.mlp.gate_proj), matrix(weights.mlp.up_proj), matrix(weights.mlp.down_proj))
h = trace["mlp_norm"][0]  # [T, D]
gate, up = h @ W_gate.T, h @ W_up.T  # [T, F] both
act = silu(gate) * up  # [T, F]
y = act @ W_down.T  # [T, D]

for name, ours in (("gate", gate), ("up", up), ("gate_act", silu(gate)), ("act", act), ("mlp_out", y)):
    print(f"{name:9}{ours.shape!s:12} equals the block's: {np.allclose(ours, trace[name][0], rtol=0, atol=1e-12)}")
    assert np.allclose(ours, trace[name][0], rtol=0, atol=1e-12)

# %% [markdown]
# ## What silu does
#
# silu lets large numbers through and stops very negative ones. Between the two it is smooth, and dips below zero. Other
# models use a kink (relu, $\max(g, 0)$) or the bell curve (gelu, $g$ times the share of the normal distribution below
# $g$), which look much the same:

# %%
g = np.linspace(-6, 4, 1001)
gelu = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in g])
figure, axes = chart("Three ways to let positive numbers through", "gate", "what comes out", height=3.2)
axes.plot(g, np.maximum(g, 0), label="relu", color="#6b6b6b", linestyle=":")
axes.plot(g, gelu, label="gelu", color="#d55e00", linestyle="--")
axes.plot(g, silu(g), label="silu", color="#0072b2")
axes.set_ylim(-0.6, 4)
axes.legend(frameon=False)
show(figure, "silu dips to -0.28 at -1.28 and creeps back to 0; gelu is steeper, relu has a kink.")
lowest = g[silu(g).argmin()]
print(f"lowest silu: {silu(g).min():.3f} at {lowest:.2f}")
assert abs(silu(g).min() + 0.278) < 0.001
assert round(lowest, 2) == -1.28

# %% [markdown]
# The plain formula has a trap. At $g = -1000$ it needs $e^{1000}$, which is no float. The result is right by luck,
# $-1000 / \infty = -0$, but with a warning; another way of writing it, $g \, e^g / (1 + e^g)$, gives NaN (not a number)
# at $+1000$. The block never takes the exponential of a positive number (exercise 6.1).

# %%
with np.errstate(all="ignore"):
    print("plain formula at -1000:", silu(np.float64(-1000)))
    other_way = np.float64(1000) * np.exp(np.float64(1000)) / (1 + np.exp(np.float64(1000)))
print("g e^g / (1 + e^g) at 1000:", other_way)
assert np.isnan(other_way)

# %% [markdown]
# ## A neuron that knows vowels
#
# The weights of this course are invented, but neuron 0 was built by hand: its row of $W_\text{gate}$ answers to the
# vowels a, e, i, o, u, and its row of $W_\text{up}$ is nearly the same number for all letters.

# %%
figure, axes = chart("Neuron 0 on each letter", "", "", "gate asks a question, up says how much")
axes.plot(gate[:, 0], marker="s", markersize=4, label="gate", color="#0072b2", linestyle="--")
axes.plot(up[:, 0], marker="^", markersize=4, label="up", color="#e69f00", linestyle=":")
axes.plot(act[:, 0], marker="o", markersize=4, label="act = silu(gate) up", color="#1a1a1a")
axes.set_xticks(range(T), labels)
axes.legend(frameon=False, loc="lower right", ncols=3)
axes.set_ylim(-18, 16)
show(figure, "the gate is positive at vowels only; there act is about 13.5, and it is 0 at all other letters.")
is_vowel = np.array([label in "aeiou" for label in labels])
print("at vowels:", act[is_vowel, 0].round(1))
print(f"elsewhere: at most {np.abs(act[~is_vowel, 0]).max():.3f}, although the gate is near -10")
assert (gate[is_vowel, 0] > 3).all()
assert (gate[~is_vowel, 0] < -9).all()
assert ((act[is_vowel, 0] > 12.5) & (act[is_vowel, 0] < 14)).all()
assert np.abs(act[~is_vowel, 0]).max() < 0.01

# %% [markdown]
# That is what the gate is for: the neuron does not answer "a little less" to other letters, it is shut.
#
# ## The output is a sum over neurons
#
# The last product can be read column by column. Column $f$ of $W_\text{down}$ is the vector that neuron $f$ *writes*,
# and `act` says how much of it:
#
# $$y = \sum_f \text{act}_f \cdot W_\text{down}[:, f]$$
#
# So each neuron has a row that reads (twice) and a column that writes. Neuron 0 writes to channel 129 of the residual
# stream, which the designer of these weights keeps for vowels:

# %%
e = labels.index("e")
parts = act[e][:, None] * W_down.T  # [F, D]: what each neuron writes for the first e
assert np.allclose(parts.sum(axis=0), y[e], rtol=0, atol=1e-12)
print(f"channel 129 of the output: {y[e, 129]:.4f}, from neuron 0 alone: {parts[0, 129]:.4f}")
assert np.isclose(y[e, 129], parts[0, 129])

# %% [markdown]
# How many of the 1,536 neurons does a token need? Sort them by the length of what they write, keep the first few, and
# see how far the output is off:

# %%
lengths = np.abs(act) * np.linalg.norm(W_down, axis=0)  # [T, F]
order = np.argsort(-lengths, axis=1)  # longest first


def error_with(t, keep):
    """Return the relative error of token t's output when only its `keep` longest neurons write."""
    chosen = order[t, :keep]
    return np.linalg.norm(W_down[:, chosen] @ act[t, chosen] - y[t]) / np.linalg.norm(y[t])


counts = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, F]
curves = np.array([[error_with(t, n) for n in counts] for t in range(T)])  # [T, counts]
figure, axes = chart("What is missing when few neurons may write", "neurons kept (0, 1, 2, 4, ...)", "error / size")
for t in range(T):
    axes.plot(curves[t], color="#d55e00" if is_vowel[t] else "#56b4e9", linewidth=0.8)
axes.plot(curves[is_vowel].mean(axis=0), color="#d55e00", linewidth=2.5, label="vowels")
axes.plot(curves[~is_vowel].mean(axis=0), color="#0072b2", linewidth=2.5, label="other letters", linestyle="--")
axes.set_xticks(range(len(counts)), counts)
axes.legend(frameon=False)
show(figure, "a vowel needs one neuron for most of its output; what is noise needs hundreds.")
print(f"one neuron: {curves[is_vowel, 1].mean():.0%} missing at vowels, {curves[~is_vowel, 1].mean():.0%} elsewhere")
assert round(curves[is_vowel, 1].mean(), 2) == 0.53
assert curves[~is_vowel, 1].mean() > 0.9
assert (order[is_vowel, 0] == 0).all()

# %% [markdown]
# (Trained models lie between the two: some neurons are as readable as this one, most are not.)
#
# ## Taking a neuron out
#
# To see what a neuron does *to the block*, replace its activation while the block runs. A **tap** is a function that
# sees every step and may replace it; `Replace(act=f)` puts $f(\text{act})$ in the place of `act`:


# %%
def without_neuron_0(act):
    act = act.copy()
    act[..., 0] = 0
    return act


patched = blocklab.dense_block(x, rotary, mask, weights, recipe="float64", tap=Replace(act=without_neuron_0))
change = np.linalg.norm(patched - trace["resid_post"], axis=-1)[0]
print("change of the block's output:", " ".join(f"{label}:{c:.2f}" for label, c in zip(labels, change, strict=True)))
assert (change[is_vowel] > 0.5).all()
assert (change[~is_vowel] < 1e-3).all()

# %% [markdown]
# Only vowels change. Nothing was trained or copied, and the same works with every step of the block (tutorial 9).
#
# ## A surprise: the loudest neurons hardly matter
#
# Which neurons would you watch? Perhaps those with the largest activations. Here are all of them, by how loud they are
# on average over the text, and by how long a vector they write:

# %%
loudness = np.sqrt(np.mean(act**2, axis=0))  # [F]
written = np.sqrt(np.mean(lengths**2, axis=0))  # [F]
outliers = outlier_neurons(config, seed=0)
figure, axes = chart("Loud is not important", "rms of act over the text", "rms length of what is written", height=3.8)
axes.loglog(loudness, written, ".", markersize=3, color="#56b4e9")
for f in (0, *outliers):
    axes.plot(loudness[f], written[f], "o", color="#d55e00")
    axes.annotate(f"neuron {f}", (loudness[f], written[f]), xytext=(-8, 6), textcoords="offset points", ha="right")
show(figure, "the three outliers are about as loud as the vowel neuron, and write far shorter vectors.")
loudest = np.argsort(-loudness)[:4]
for f in loudest:
    rank = int((written > written[f]).sum()) + 1
    times = loudness[f] / np.median(loudness)
    print(f"neuron {f:3}: {times:3.0f} times the median loudness; number {rank} in what it writes")
assert set(loudest) == {0, *outliers}
assert loudest[0] == 226
assert written.argmax() == 0


# %%
def share_written_by(neurons):
    """Return how long the vectors are that some neurons write together, over the length of the whole output."""
    return np.linalg.norm(act[:, neurons] @ W_down[:, neurons].T) / np.linalg.norm(y)


column = np.linalg.norm(W_down, axis=0) / np.median(np.linalg.norm(W_down, axis=0))
outlier_share, vowel_share = share_written_by(outliers), share_written_by([0])
print(f"the three outliers write {outlier_share:.0%} of the output's length, neuron 0 alone {vowel_share:.0%}")
print("length of their columns, over the median column's:", column[outliers].round(2))
assert outlier_share < 0.16 < 0.6 < vowel_share
assert (column[outliers] < 0.07).all()

# %% [markdown]
# The columns of these three are short: what is loud inside is quiet outside. (They are made like the outliers of
# trained models, where such neurons are common.) So measure what a neuron *writes*, not how loud it is. But loud
# neurons do harm in another way: in FP8 they set the scale for all their neighbours. That is tutorial 8.
#
# ## A mistake: gate and up swapped
#
# $W_\text{gate}$ and $W_\text{up}$ have the same shape, and are often stored as one matrix of $2F$ rows. Some programs
# put the gate first, others the up. Nothing complains when they are swapped:

# %%
swapped_mlp = replace(weights.mlp, gate_proj=weights.mlp.up_proj, up_proj=weights.mlp.gate_proj)
swapped = blocklab.trace(x, rotary, mask, replace(weights, mlp=swapped_mlp), recipe="float64")
for name in ("mlp_norm", "gate", "act", "mlp_out"):
    sizes = [np.sqrt(np.mean(run[name] ** 2)) for run in (trace, swapped)]
    error = np.linalg.norm(swapped[name] - trace[name]) / np.linalg.norm(trace[name])
    print(f"{name:9} rms {sizes[0]:.3f}, swapped {sizes[1]:.3f}; error / size {error:.1f}")
assert np.array_equal(swapped["gate"], trace["up"])
assert np.linalg.norm(swapped["mlp_out"] - trace["mlp_out"]) > 3 * np.linalg.norm(trace["mlp_out"])

# %% [markdown]
# All numbers have plausible sizes, and the result is wrong by three times its size. The tell-tale: their `gate` equals
# your `up`, to the last digit. Tutorial 10 finds this one for you.
#
# ## Exercises
#
# Solutions are in [solutions/06_swiglu.py](solutions/06_swiglu.py).
#
# **6.1** (10 minutes, hard) Write silu so that it never overflows and loses no small result, for arrays of any shape,
# in the type in which they come. `check` passes float32 arrays, where $e^{89}$ is already infinite, but silu(-89) is
# $-2 \cdot 10^{-37}$; and float64 arrays, where the same happens at 710. Hint: $e^{-|g|}$ is never above 1.


# %%
def safe_silu(g):
    raise NotImplementedError


check("6.1", safe_silu)

# %% [markdown]
# <!-- fold 6.1 -->
#
# **6.2** (5 minutes, easy) Write the MLP for a file that stores one matrix `W_gate_up` of shape `[2 F, D]`: the first
# $F$ rows are the gate's. `h` is `[T, D]`, `W_down` is `[D, F]`; return `[T, D]`.


# %%
def fused_mlp(h, W_gate_up, W_down):
    raise NotImplementedError


check("6.2", fused_mlp)

# %% [markdown]
# <!-- fold 6.2 -->
#
# **6.3** (5 minutes, easy) Return the indices of the `k` neurons that write the longest vectors for one token, longest
# first. `act` is `[F]`, `W_down` is `[D, F]`.


# %%
def top_neurons(act, W_down, k):
    raise NotImplementedError


check("6.3", top_neurons)

# %% [markdown]
# <!-- fold 6.3 -->
#
# ## Read on
#
# - [blocklab/block/mlp.py](../blocklab/block/mlp.py): the same lines, for any recipe; `silu` in
#   [operations.py](../blocklab/block/operations.py).
# - [blocklab/block/taps.py](../blocklab/block/taps.py): `Replace`, and taps of your own.
# - GLU variants improve transformer: [arXiv 2002.05202](https://arxiv.org/abs/2002.05202).
# - MLPs as memories that are read by rows and written by columns: [arXiv 2012.14913](https://arxiv.org/abs/2012.14913).
#
# Next: [7. FP8 numbers](07_fp8_numbers.ipynb).
