# %% [markdown]
# # 4. Decoupled rotary
#
# **What you will do.** You turn pairs of numbers by angles, and see how a head that knows nothing but angles finds the
# previous token. You break it the way most ports have broken it, and work out the two numbers with which Kimi K2 was
# stretched from 4,096 to 131,072 tokens.
#
# **What you will learn.** How attention knows positions, what *interleaved* and *half-split* mean, why a part of each
# key is left unrotated, what YaRN does to which pairs, and where the softmax scale 0.1309 comes from.
#
# **You need** tutorial 3, sine and cosine. Complex numbers help: $e^{i\alpha} = \cos\alpha + i \sin\alpha$. 45 minutes.

# %%
from dataclasses import replace

import numpy as np
from checks import check
from pictures import chart, show, with_labels

import blocklab
from blocklab.block.taps import Replace
from blocklab.show import plot
from blocklab.synth.weights import synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
text = "the cat sat on the mat"
tokens, labels = text_tokens(text), ["^", *text.replace(" ", "␣")]
T = len(tokens)
x = synthetic_embedding(config, seed=0).values()[tokens][None]  # [1, T, D]
rotary, mask = blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T)
trace = with_labels(blocklab.trace(x, rotary, mask, weights, recipe="float64"), labels)
N, R, C = config.qk_nope_head_dim, config.qk_rope_head_dim, config.kv_lora_rank

# %% [markdown]
# ## The problem
#
# The score of a query and a key is a dot product. It does not change when tokens change places: "dog bites man" and
# "man bites dog" would be the same. So positions must get into queries and keys.
#
# The rotary way: cut the vector into pairs of numbers, see each pair as a point in the plane, and turn it around the
# origin, by an angle that grows with the position $p$ of the token. Pair $i$ of $R/2$ has its own speed $\omega_i$:
#
# $$\begin{pmatrix} a' \\ b' \end{pmatrix} =
# \begin{pmatrix} \cos p\omega_i & -\sin p\omega_i \\ \sin p\omega_i & \cos p\omega_i \end{pmatrix}
# \begin{pmatrix} a \\ b \end{pmatrix}, \qquad \omega_i = \theta^{-2i/R}, \quad \theta = 50{,}000$$
#
# With complex numbers that is one product: $a' + i b' = (a + i b) \, e^{i p \omega_i}$.

# %%
pairs = np.arange(R // 2)
omega = 50_000.0 ** (-2 * pairs / R)
turn = 2 * np.pi / omega  # positions that a full turn takes
for i in (0, 1, 10, 19, 20, 31):
    print(f"pair {i:2}: {omega[i]:.6f} radians a position, a full turn in {turn[i]:9,.1f} positions")
assert omega[0] == 1
assert (round(turn[19]), round(turn[20])) == (3874, 5433)


# %%
def rotate(x, angles):
    """Turn neighbours (x_0, x_1), (x_2, x_3), ... by angles; x [..., R], angles [..., R/2]."""
    points = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    turned = np.empty_like(x)
    turned[..., 0::2], turned[..., 1::2] = points.real, points.imag
    return turned


q_rope = trace["q"][0, :, :, N:]  # [T, H, R]: the last R numbers of each head's query
k_rope = trace["kv_down"][0, :, C:]  # [T, R]: one for all heads
angles = np.arange(T)[:, None] * np.angle(rotary[1])  # [T, R/2]: position times speed; rotary[1] is one step
q_rot, k_rot = rotate(q_rope, angles[:, None]), rotate(k_rope, angles)
print("equal to the block's:", np.allclose(q_rot, trace["q_rot"][0]), np.allclose(k_rot, trace["k_rot"][0]))
assert np.allclose(q_rot, trace["q_rot"][0])
assert np.allclose(k_rot, trace["k_rot"][0])
assert np.allclose(np.linalg.norm(k_rot, axis=-1), np.linalg.norm(k_rope, axis=-1))  # turning keeps the length
assert np.allclose(np.angle(rotary[1])[:20], omega[:20])  # the other pairs: YaRN, below

# %%
from blocklab.show.rotary_plots import angles as table_of_angles
from blocklab.show.rotary_plots import draw_angles

show(
    draw_angles(table_of_angles(config, np.arange(256))),
    "the first pairs turn within a few positions, the last ones hardly move in 256.",
)

# %% [markdown]
# Fast pairs are second hands, which tell neighbours apart; slow pairs are hour hands, which tell far places apart.
#
# ## Only distances count
#
# Turning the query by $\alpha$ and the key by $\beta$ changes their dot product as if only the difference counted:
# turn both by the same angle, and nothing changes. So a score depends on how far apart the tokens are, not on where:


# %%
def score(q, k, p_query, p_key):
    speeds = np.angle(rotary[1])
    return rotate(q, p_query * speeds) @ rotate(k, p_key * speeds)


q, k = q_rope[20, 3], k_rope[11]  # of head 3, as it happens
near, far = score(q, k, 20, 11), score(q, k, 120_020, 120_011)
print(f"positions 20 and 11: {near:.6f}; positions 120,020 and 120,011: {far:.6f}")
assert abs(near - far) < 1e-9

# %% [markdown]
# The whole block behaves so. If all positions move by 1,000, the rotated keys change completely, and nothing after
# them:

# %%
moved = blocklab.trace(x, blocklab.rotary_table(config, np.arange(T) + 1000), mask, weights, recipe="float64")
for step in ("k_rot", "attn_scores", "resid_post"):
    change = np.linalg.norm(moved[step] - trace[step]) / np.linalg.norm(trace[step])
    print(f"{step:12} changes by {change:.2f} of its length")
assert np.allclose(moved["resid_post"], trace["resid_post"], rtol=0, atol=1e-12)

# %% [markdown]
# ## A head that finds the previous token
#
# Head 0 of our block was built by hand. Its query and the rotary key are (nearly) the same for all tokens: it does not
# know *what* the tokens are. The query is turned back by one position beforehand, so that it fits a key one position
# earlier. Here is its score, with the query of token 20 and the key of token 19, for other distances:

# %%
distance = np.arange(0, 61)
scores = np.array([config.softmax_scale * score(q_rope[20, 0], k_rope[19], 100, 100 - d) for d in distance])
figure, axes = chart("Score of head 0", "distance from query to key", "score")
axes.plot(distance, scores, marker="o", markersize=3, color="#0072b2")
axes.annotate("the previous token", (1, scores[1]), xytext=(4, scores[1] - 1), fontsize=9)
show(figure, "a sum of cosines, one for each pair, that are all 1 at distance 1 and nowhere else.")
assert scores.argmax() == 1
assert scores[1] - np.delete(scores, 1).max() > 5

# %% [markdown]
# After the softmax ($e^5$ is 148) hardly anything is left for other tokens.
#
# ## Interleaved and half-split
#
# Which numbers form a pair? There are two habits:
#
# - **interleaved**: neighbours, (0, 1), (2, 3), ... These are the weights of DeepSeek and Kimi.
# - **half-split**: number $i$ of the first half with number $i$ of the second, (0, 32), (1, 33), ... This is quicker on
#   some hardware, and much code does it.
#
# If the weights are one and the code the other, the numbers must change places first:


# %%
def rotate_half_split(x, angles):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def all_scores(q, k):
    return np.einsum("thr,sr->hts", q, k)


order = np.r_[0:R:2, 1:R:2]  # first the first ones of all pairs, then the second ones
right = all_scores(q_rot, k_rot)
reordered = all_scores(
    rotate_half_split(q_rope[..., order], angles[:, None]), rotate_half_split(k_rope[..., order], angles)
)
assert np.allclose(reordered, right, rtol=0, atol=1e-11)
print("half-split code on reordered numbers gives the same scores")

# %% [markdown]
# And if somebody forgets to reorder? We put wrongly rotated queries and keys into the block. A *tap* sees every step of
# a run, and `Replace` is a tap that replaces some:

# %%
tap = Replace(
    q_rot=rotate_half_split(q_rope, angles[:, None])[None],
    k_rot=rotate_half_split(k_rope, angles)[None],
)
wrong = with_labels(blocklab.trace(x, rotary, mask, weights, recipe="float64", tap=tap), labels)


def previous(trace):
    """Return the share that head 0 gives to the previous token, on average."""
    return np.mean([trace["pattern"][0, 0, t, t - 1] for t in range(1, T)])


def changed(trace_2, step):
    return np.linalg.norm(trace_2[step] - trace[step]) / np.linalg.norm(trace[step])


print(f"head 0 gives {previous(trace):.2f} to the previous token, and {previous(wrong):.2f} with the wrong pairs")
for step in ("pattern", "attn_out", "resid_post"):
    print(f"{step:10} changes by {changed(wrong, step):.0%}")
assert (round(previous(trace), 2), round(previous(wrong), 2)) == (1.0, 0.96)
assert round(changed(wrong, "pattern"), 2) == 0.42
assert round(changed(wrong, "attn_out"), 2) == 0.23
assert round(changed(wrong, "resid_post"), 2) == 0.07

# %%
from blocklab.show.style import figure as new_figure

figure = new_figure(8, 4.4)
for place, (run, name) in enumerate(((trace, "right"), (wrong, "wrong pairs"))):
    for column, head in enumerate((0, 3, 7)):
        axes = figure.add_subplot(2, 3, 3 * place + column + 1)
        axes.imshow(run["pattern"][0, head], cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(f"head {head}, {name}", fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
show(figure, "patterns with right pairs (above) and with wrong ones (below): head 0 looks the same, others do not.")

# %% [markdown]
# This is the surprise of this tutorial. The program runs without an error, the scores still depend on distances only,
# the head that one would look at still works, and what attention adds is wrong by a quarter. Ports of this block have
# shipped this mistake more than once. Compare with a reference, step by step; it shows in `q_rot` and `k_rot`.
#
# ## Why decoupled
#
# In tutorial 3 the matrix $W_{UK}$ moved from the key to the query. If keys made by $W_{UK}$ were rotated, a rotation,
# different for each position, would stand between the query and $W_{UK}$, and there would be no single matrix to move:
#
# $$q^\top \, \text{Rot}(s - t) \, W_{UK} \, \hat c$$
#
# So this attention keeps the two apart ("decoupled"): $N$ numbers of each head are never rotated, come from the latent
# and know only *what*; $R$ numbers are rotated, come straight from $h$, and know *where*. Their scores are added. The
# rotary key is one for all heads, so that the cache grows by just $R$ numbers.

# %%
what = np.einsum("thn,shn->hts", trace["q_nope"][0], trace["k_nope"][0])
where = right
assert np.allclose(config.softmax_scale * (what + where), trace["attn_scores"][0])
for head in (0, 1, 2, 3):
    print(f"head {head}: standard deviation of what {what[head].std():5.1f}, of where {where[head].std():5.1f}")
assert not what[0].any()
assert not where[1].any()
assert not where[2].any()

# %% [markdown]
# Heads 0 to 2 use one part each; the noise of head 3 has both.
#
# ## YaRN: from 4,096 to 131,072
#
# Kimi K2 was trained on texts of 4,096 tokens first. Pairs 0 to 19 turn at least once within 4,096 positions: the model
# has seen every angle of them. Pairs 20 to 31 are slower: at position 100,000 they would reach angles that the model
# has never seen. YaRN slows them down 32 times, so that 131,072 positions span the angles of 4,096. (In general YaRN
# blends the two over a range of pairs, from one with `beta_fast` turns to one with `beta_slow`. Kimi sets both to 1,
# and the range shrinks to a step between pairs 19 and 20.)

# %%
from blocklab.block.rotary import correction_range, inverse_frequencies

factor, context = 32, 4096
turns = context * omega / (2 * np.pi)
yarn = np.where(turns >= 1, omega, omega / factor)
assert np.allclose(yarn, inverse_frequencies(config), rtol=1e-15)
assert correction_range(config) == (19, 20)
usual = replace(config, yarn=replace(config.yarn, beta_fast=32.0))
print(
    "pairs where the step happens:",
    correction_range(config),
    "and with the usual beta_fast of 32:",
    correction_range(usual),
)
assert correction_range(usual) == (8, 20)
show(plot(trace, "q_rot", "ramp"), "YaRN leaves pairs 0 to 19 alone and slows pairs 20 to 31 by 32, in one step.")

# %% [markdown]
# The usual default is `beta_fast = 32`, and code that assumes it changes pairs 9 to 19 as well.
#
# ## mscale, and the number 0.1309
#
# Longer texts have more keys, and a softmax over more keys is flatter. The authors of YaRN found that stretched models
# do better if all scores are made larger: queries and keys are both multiplied by
#
# $$\text{mscale} = 0.1 \ln 32 + 1$$
#
# This block puts the product of the two, the square, into the softmax scale and leaves the rotation alone:

# %%
mscale = 0.1 * np.log(32) + 1
scale = (128 + 64) ** -0.5 * mscale**2
kimi = blocklab.BlockConfig.preset("kimi-k2")
print(f"mscale {mscale:.4f}, its square {mscale**2:.4f}, scale {scale:.4f} instead of {192**-0.5:.4f}")
assert np.isclose(scale, 0.13086079996295005, rtol=1e-15)
assert np.isclose(scale, kimi.softmax_scale, rtol=1e-15)

# %% [markdown]
# ## Which mistake would you notice?
#
# Leave out each of the two, and compare the result of the block. For scale: rounding everything to FP8, as the model is
# meant to be run, changes it too.

# %%
no_stretch = blocklab.rotary_table(replace(config, yarn=None), np.arange(T))
without_yarn = blocklab.trace(x, no_stretch, mask, weights, recipe="float64")
no_mscale = replace(weights, config=replace(config, yarn=replace(config.yarn, mscale=0.0, mscale_all_dim=0.0)))
without_mscale = blocklab.trace(x, rotary, mask, no_mscale, recipe="float64")
fp8 = blocklab.trace(x, rotary, mask, weights, recipe="deepseek-fp8")
changes = {}
for name, run in (("YaRN's step left out", without_yarn), ("mscale left out", without_mscale), ("right, in FP8", fp8)):
    changes[name] = changed(run, "resid_post")
    print(f"{name:22} changes the output by {changes[name]:.2%}")
assert round(changes["YaRN's step left out"], 4) == 0.0002
assert round(changes["mscale left out"], 3) == 0.034
assert 0.015 < changes["right, in FP8"] < 0.021

# %% [markdown]
# On 23 tokens, forgetting YaRN's step is a hundred times smaller than the ordinary error of FP8: no comparison of
# outputs will find it. (At position 100,000 it is a disaster.) Compare `k_rot` instead, and at large positions.
#
# ## Exercises
#
# Solutions are in [solutions/04_decoupled_rotary.py](solutions/04_decoupled_rotary.py).
#
# **4.1** (10 minutes, medium) Write `rotate` without complex numbers: neighbours form pairs, `x [T, R]`, `angles [T,
# R/2]`. Positive angles turn counter-clockwise: (1, 0) by 90 degrees becomes (0, 1).


# %%
def rotate_pairs(x, angles):
    raise NotImplementedError


check("4.1", rotate_pairs)

# %% [markdown]
# <!-- fold 4.1 -->
#
# **4.2** (5 minutes, medium) You convert interleaved weights for half-split code. `W` has shape `[R, D]`, and its rows
# make the numbers that are rotated. Return the matrix with its rows in the order that half-split code needs.


# %%
def to_half_split(W):
    raise NotImplementedError


check("4.2", to_half_split)

# %% [markdown]
# <!-- fold 4.2 -->
#
# **4.3** (10 minutes, medium) Return the speeds of all pairs, `[R / 2]`, with the step: pairs that make at least one
# full turn within `context` positions keep theirs, the others are slowed by `factor`.


# %%
def stretched_speeds(theta, R, factor, context):
    raise NotImplementedError


check("4.3", stretched_speeds)

# %% [markdown]
# <!-- fold 4.3 -->
#
# **4.4** (5 minutes, easy) Return the softmax scale for a head with `N` unrotated and `R` rotated numbers, stretched by
# `factor`.


# %%
def softmax_scale(N, R, factor):
    raise NotImplementedError


check("4.4", softmax_scale)

# %% [markdown]
# <!-- fold 4.4 -->
#
# ## Read on
#
# - [blocklab/block/rotary.py](../blocklab/block/rotary.py): the table, the general ramp, the rotation.
# - RoFormer, which invented rotary positions: [arXiv 2104.09864](https://arxiv.org/abs/2104.09864).
# - YaRN: [arXiv 2309.00071](https://arxiv.org/abs/2309.00071).
# - Half-split code on interleaved weights, in the wild:
#   [transformers#39687](https://github.com/huggingface/transformers/issues/39687).
#
# Next: [5. Masked softmax](05_masked_softmax.ipynb).
