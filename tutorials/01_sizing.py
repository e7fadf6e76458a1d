# %% [markdown]
# # 1. Sizing the block
#
# **What you will do.** You count every number that one block of a large language model is made of, before you run
# anything. You check the count against the published size, find where the numbers are, and then run a small block
# of the same shape and see that every array has the shape you predicted.
#
# **What you will learn.** The names and sizes of all parts of the block, why its MLP is four times as large as its
# attention, and when attention starts to cost more than all matrices together.
#
# **You need** numpy, and the product of a matrix and a vector. 30 minutes.
#
# The model is Kimi K2, a language model of 61 *blocks* stacked on each other. A block (also: a layer) reads one vector
# of numbers for each *token* (a piece of text) and returns one vector for each, of the same length. This course takes
# apart the first block, the only *dense* one: every token uses all of its parameters. (The other 60 choose among
# 384 smaller MLPs for each token.)

# %%
import numpy as np
from checks import check
from pictures import chart, show

import blocklab

kimi = blocklab.BlockConfig.preset("kimi-k2")
kimi

# %% [markdown]
# ## What is in a block
#
# A block does two things to the vector $x$ of each token, and *adds* both results to it:
#
# $$x' = x + \text{attention}(\text{norm}(x)), \qquad y = x' + \text{MLP}(\text{norm}(x'))$$
#
# - **norm** rescales a vector so that its numbers have a standard size (tutorial 2).
# - **attention** lets a token read from earlier tokens. It is the only place where tokens meet (tutorials 3 to 5).
# - **MLP** (multi-layer perceptron) works on each token alone (tutorial 6).
#
# The vector that runs through and is added to is called the *residual stream*.
#
# These are the sizes. The letters are used throughout the course and in the source code:

# %%
D = kimi.hidden_size  # model width: numbers in the residual stream of one token
H = kimi.num_attention_heads  # heads: attention works in H parallel copies, each looking for something else
Q = kimi.q_lora_rank  # query latent: a query (what a token looks for) is first squeezed to Q numbers
C = kimi.kv_lora_rank  # key-value latent: so are keys and values (what a token offers), to C numbers
N = kimi.qk_nope_head_dim  # width of the part of a head's query and key that ignores positions ("no position")
R = kimi.qk_rope_head_dim  # width of the part that knows positions ("rotary")
V = kimi.v_head_dim  # width of a head's value: what is read once a key has been found
F = kimi.intermediate_size  # width of the MLP inside
print(f"D={D} H={H} Q={Q} C={C} N={N} R={R} V={V} F={F}")
assert (D, H, Q, C, N, R, V, F) == (7168, 64, 1536, 512, 128, 64, 128, 18432)

# %% [markdown]
# ## Counting
#
# A matrix that turns a vector of $n$ numbers into one of $m$ numbers has $m \cdot n$ parameters. There are no biases
# (no constant vectors added after a matrix). A norm has one *gain*, a factor, for each *channel* (each place of the
# vector), so $n$ parameters.
#
# So we only need to write down what goes into each matrix and what comes out. By hand:

# %%
shapes = {  # name: (numbers out, numbers in), or (numbers,) for the gain of a norm
    "attention norm": (D,),
    "W_DQ: query down": (Q, D),
    "query norm": (Q,),
    "W_UQ: query up": (H * (N + R), Q),  # for every head a part without position and a part with
    "W_DKV: key-value down": (C + R, D),  # the latent, and one rotary key that all heads share
    "key-value norm": (C,),
    "W_UKV: key-value up": (H * (N + V), C),  # for every head a key (its part without position) and a value
    "W_O: output": (D, H * V),
    "MLP norm": (D,),
    "W_gate": (F, D),
    "W_up": (F, D),
    "W_down": (D, F),
}
count = {name: int(np.prod(shape)) for name, shape in shapes.items()}
for name in shapes:
    print(f"{name:24}{'x'.join(map(str, shapes[name])):>12} {count[name]:>12,}")
print(f"{'together':24}{'':>12} {sum(count.values()):>12,}")
assert sum(count.values()) == 497_500_160

# %% [markdown]
# 497,500,160: almost half a billion numbers in one of 61 blocks. Did we count right? The library has the shapes
# under the names of the published files:

# %%
from blocklab.block.weights import weight_shapes

published = weight_shapes(kimi)
print("\n".join(f"{name:40}{shape}" for name, shape in published.items()))
assert list(published.values()) == list(shapes.values())

# %% [markdown]
# ## Where are they?

# %%
matrices = [name for name in shapes if name.startswith("W_")]
figure, axes = chart("Parameters of one block of Kimi K2", "millions of parameters", "", "norms are too small to draw")
colors = ["#d55e00" if name in ("W_gate", "W_up", "W_down") else "#0072b2" for name in matrices]
axes.barh(matrices, [count[name] / 1e6 for name in matrices], color=colors)
for place, name in enumerate(matrices):
    axes.text(count[name] / 1e6 + 1, place, f"{count[name] / 1e6:.1f}", va="center", fontsize=9)
axes.invert_yaxis()
axes.set_xlim(0, 145)
show(figure, "three matrices of the MLP (orange) hold most parameters; W_O is the largest of attention (blue).")

# %%
mlp = count["W_gate"] + count["W_up"] + count["W_down"]
block_norms = count["attention norm"] + count["MLP norm"]
attention = sum(count.values()) - mlp - block_norms  # the two latent norms count as attention
print(f"MLP       {mlp:>12,}  {mlp / 497_500_160:.1%}")
print(f"attention {attention:>12,}  {attention / 497_500_160:.1%}")
print(f"norms     {block_norms:>12,}")
assert (mlp, attention, block_norms) == (396_361_728, 101_124_096, 14_336)
assert round(mlp / 497_500_160, 3) == 0.797
assert round(attention / 497_500_160, 3) == 0.203

# %% [markdown]
# Four fifths of a block is its MLP. And attention, the famous part, spends 58 % of its fifth on $W_O$, a matrix that
# only carries what the heads found back to the residual stream:

# %%
print(f"{count['W_O: output'] / attention:.0%} of attention is W_O")
assert round(count["W_O: output"] / attention, 2) == 0.58

# %% [markdown]
# ## Bytes
#
# Kimi K2 is published in FP8: one byte for each number of a matrix (tutorial 7). Gains of norms are bfloat16, two
# bytes each. A MiB is $2^{20}$ bytes.

# %%
MiB = 2**20
matrix_bytes = sum(count[name] for name in matrices)
norm_bytes = 2 * sum(count[name] for name in shapes if "norm" in name)
print(
    f"matrices {matrix_bytes / MiB:.2f} MiB, norms {norm_bytes / MiB:.2f} MiB: {(matrix_bytes + norm_bytes) / MiB:.1f}"
)
print(f"of the matrices: attention {(matrix_bytes - mlp) / MiB:.1f} MiB, MLP {mlp / MiB:.0f} MiB")
assert f"{(matrix_bytes + norm_bytes) / MiB:.1f}" == "474.5"
assert f"{(matrix_bytes - mlp) / MiB:.1f}" == "96.4"
assert mlp == 378 * MiB

# %% [markdown]
# Not counted: every square of 128 x 128 FP8 numbers shares a *scale*, a float32 that multiplies them. That is 4 bytes
# for 16,384. Scales say how to read the parameters, and are not parameters themselves.
#
# The same from the command line, and for any file you download (only headers of the files are read):
#
# ```sh
# blocklab params --preset kimi-k2
# ```
#
# ## A surprise: when does attention cost more than all of this?
#
# A matrix of $m \cdot n$ parameters takes $m \cdot n$ multiplications to apply, so a token costs about as many
# multiplications as the block has parameters: 497 million. But attention does something else too: a token's query
# meets the *key* of each token so far ($N + R$ multiplications a head), and collects its *value* ($V$ a head). That
# uses no parameter at all, and grows with the text. Per earlier token:

# %%
per_key = H * (N + R + V)
matrix_parameters = matrix_bytes  # one byte each
crossover = matrix_parameters / per_key
print(f"{per_key:,} multiplications for each earlier token: as much as all matrices from {crossover:,.0f} tokens on")
assert per_key == 20_480
assert round(crossover) == 24_291

# %%
context = np.array([1, 1000, 4096, 8192, 16384, 24291, 32768, 65536, 131072])
figure, axes = chart("Multiplications for one more token", "tokens so far", "millions", "in one block")
axes.plot(context, np.full(len(context), matrix_bytes / 1e6), label="all matrices", color="#d55e00", marker="s")
axes.plot(context, context * per_key / 1e6, label="reading from earlier tokens", color="#0072b2", marker="o")
axes.axvline(crossover, color="#6b6b6b", linewidth=0.8, linestyle=":")
axes.legend(frameon=False)
show(figure, "reading overtakes the matrices at 24,291 tokens, and is five times as much at 131,072.")
assert round(131072 * per_key / matrix_bytes, 1) == 5.4

# %% [markdown]
# In a short chat the block is its matrices. At the longest text that Kimi K2 accepts, 131,072 tokens, reading from
# earlier tokens is 5.4 times as much work as all matrices. Hence all the effort of tutorial 3.
#
# ## Run it
#
# Full size works on a laptop (see the [README](../README.md)), but a small block of the same shape answers at once:
# fewer channels and heads, the same steps. We give it invented weights, made from a seed, and a text. Its tokens are
# bytes; the first token says "a text starts here".

# %%
from blocklab.synth.weights import synthetic_embedding, text_tokens

small = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(small, seed=0)
tokens = text_tokens("the cat sat on the mat")
x = synthetic_embedding(small, seed=0).values()[tokens][None]  # a row for each token; [None] adds the axis of the batch
T = len(tokens)
rotary = blocklab.rotary_table(small, np.arange(T))  # tutorial 4
mask = blocklab.causal_mask(T)  # tutorial 5
print("tokens", tokens)
print("x", x.shape)
assert x.shape == (1, 23, 640)

# %% [markdown]
# `dense_block` returns the result. `trace` returns every step on the way, by name. In a notebook it shows as a table.
# (The *recipe* says how to round; `float64` hardly rounds at all. Tutorial 2 has another one.)

# %%
y = blocklab.dense_block(x, rotary, mask, weights, recipe="float64")
trace = blocklab.trace(x, rotary, mask, weights, recipe="float64")
assert np.array_equal(y, trace["resid_post"])
trace

# %% [markdown]
# Does the count hold for what really lies in memory? And do the arrays have the widths that the letters say?

# %%
stored = sum(weight.raw.size for weight in weights.named().values())
print(f"{stored:,} parameters in the small block")
assert stored == sum(int(np.prod(shape)) for shape in weight_shapes(small).values()) == 4_892_544
assert trace["q_latent"].shape == (1, T, small.q_lora_rank)
assert trace["q"].shape == (1, T, small.num_attention_heads, small.qk_nope_head_dim + small.qk_rope_head_dim)
assert trace["kv_down"].shape == (1, T, small.kv_lora_rank + small.qk_rope_head_dim)
assert trace["pattern"].shape == (1, small.num_attention_heads, T, T)
assert trace["gate"].shape == (1, T, small.intermediate_size)

# %% [markdown]
# ## Exercises
#
# Replace the line `raise NotImplementedError` by your answer and run the cell. `check` tries it on several configs and
# says whether it is right; if it is not, it tells you which way you probably went, or shows you a case in which you are
# wrong. In the notebook a hint and a solution are folded below each exercise; solutions are also in
# [solutions/01_sizing.py](solutions/01_sizing.py).
#
# **1.1** (10 minutes, medium) Write a function that counts the parameters of attention (matrices and the two latent
# norms; not the two norms of the block) for *any* config with the fields used above. Some models, DeepSeek-V2-Lite for
# one, do not compress queries: then `q_lora_rank` is `None`, and a single matrix leads from the residual stream to the
# queries of all heads, without a norm. (In Kimi K2 several widths happen to be equal, $N = V = 128$. Equal widths hide
# mistakes, so `check` uses a config in which all are different.)


# %%
def count_attention(config):
    raise NotImplementedError


check("1.1", count_attention)

# %% [markdown]
# <!-- fold 1.1 -->
#
# **1.2** (5 minutes, easy) Write a function that returns the bytes of all parameters of a block as published: matrices
# one byte a number, gains of all four norms two bytes each, scales not counted. `config.q_lora_rank` may be `None` here
# too.


# %%
def block_bytes(config):
    raise NotImplementedError


check("1.2", block_bytes)

# %% [markdown]
# <!-- fold 1.2 -->
#
# **1.3** (5 minutes, easy) From how many tokens on does reading from them cost more multiplications than all matrices?
# Return a float, for any config with a `q_lora_rank`.


# %%
def crossover_tokens(config):
    raise NotImplementedError


check("1.3", crossover_tokens)

# %% [markdown]
# <!-- fold 1.3 -->
#
# ## Read on
#
# - [blocklab/block/dense.py](../blocklab/block/dense.py): the whole block in a few lines.
# - [blocklab/block/weights.py](../blocklab/block/weights.py) and
#   [accounting.py](../blocklab/store/accounting.py): shapes and counts.
# - DeepSeek-V3 report, section 2.1, which describes this block: [arXiv 2412.19437](https://arxiv.org/abs/2412.19437).
# - Kimi K2 report: [arXiv 2507.20534](https://arxiv.org/abs/2507.20534).
#
# Next: [2. RMSNorm](02_rms_norm.ipynb).
