# %% [markdown]
# # 10. Validate your own
#
# **What you will do.** You write the whole block in plain numpy, forty lines; let `validate` compare it with blocklab;
# break it in ways in which real programs have been broken; and see the mistake named. Then you look at all mistakes of
# the catalogue in one picture.
#
# **What you will learn.** What to record of your own implementation, how to read the report, why each step is compared
# twice, and why the output of a block is a poor witness.
#
# **You need** tutorials 2 to 6; 9 helps. 45 minutes.

# %%
import tempfile
import warnings
from pathlib import Path

import numpy as np
from checks import check
from pictures import chart, show

import blocklab
from blocklab.check import MISTAKES, inject, validate
from blocklab.check.case import Case
from blocklab.synth.weights import synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
text = "the cat sat"
tokens = text_tokens(text)
T = len(tokens)
x = synthetic_embedding(config, seed=0).values()[tokens]  # [T, D], float32
H, C, eps = config.num_attention_heads, config.kv_lora_rank, np.float32(config.rms_norm_eps)
N, R, V = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim

# %% [markdown]
# ## The block in forty lines
#
# This is everything from tutorials 2 to 6, in float32. It is *your* program: of blocklab it uses the weights, and the
# speed of each rotary pair. The dictionary `seen` records what comes along; the names are those of blocklab's steps,
# but those of transformers
# (`self_attn.q_b_proj`), DeepSeek's code (`attn.wq_b`) or llama.cpp (`q-0`) would do as well. `broken` holds the
# mistakes that we shall make:

# %%
W = {name.removesuffix(".weight").split(".")[-1]: w.values() for name, w in weights.named().items()}
omega = blocklab.rotary_table(config, np.array([1]))  # e^{i omega} of each pair, [1, R / 2]
angles = np.arange(T)[:, None] * np.angle(omega)  # tutorial 4; [T, R / 2]
cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
softmax_scale = np.float32((N + R) ** -0.5 * (0.1 * np.log(32) + 1) ** 2)


def norm(x, gain):  # tutorial 2
    return gain * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rotate(x, cos, sin, half_split=False):  # tutorial 4
    pairs = (slice(0, R // 2), slice(R // 2, R)) if half_split else (slice(0, R, 2), slice(1, R, 2))
    a, b = x[..., pairs[0]], x[..., pairs[1]]
    y = np.empty_like(x)
    y[..., pairs[0]], y[..., pairs[1]] = a * cos - b * sin, a * sin + b * cos
    return y


def my_block(x, broken=()):
    seen = {"input": x}
    h = seen["attn_norm"] = norm(x, W["input_layernorm"])
    c_q = seen["q_latent"] = h @ W["q_a_proj"].T  # tutorial 3
    q = seen["q"] = (norm(c_q, W["q_a_layernorm"]) @ W["q_b_proj"].T).reshape(T, H, N + R)
    kv = seen["kv_down"] = h @ W["kv_a_proj_with_mqa"].T
    kv_up = seen["kv_up"] = (norm(kv[:, :C], W["kv_a_layernorm"]) @ W["kv_b_proj"].T).reshape(T, H, N + V)
    k_nope, v = kv_up[..., :N], kv_up[..., N:]
    half = "half-split pairs" in broken
    q_rot = seen["q_rot"] = rotate(q[..., N:], cos[:, None], sin[:, None], half)
    k_rot = seen["k_rot"] = rotate(kv[:, C:], cos, sin, half)
    scores = np.einsum("thn,shn->hts", q[..., :N], k_nope) + np.einsum("thr,sr->hts", q_rot, k_rot)
    scores *= np.float32((N + R) ** -0.5) if "no mscale" in broken else softmax_scale
    if "no mask" not in broken:  # tutorial 5
        scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = seen["pattern"] = p / p.sum(axis=-1, keepdims=True)
    z = np.einsum("hts,shv->thv", p, v).reshape(T, H * V)
    attn_out = seen["attn_out"] = z @ W["o_proj"].T
    x = seen["resid_mid"] = x + attn_out
    h = seen["mlp_norm"] = norm(x, W["post_attention_layernorm"])
    gate, up = h @ W["gate_proj"].T, h @ W["up_proj"].T  # tutorial 6
    if "swapped" in broken:
        gate, up = up, gate
    seen["gate"], seen["up"] = gate, up
    act = seen["act"] = gate / (1 + np.exp(-gate)) * up
    mlp_out = seen["mlp_out"] = act @ W["down_proj"].T
    seen["resid_post"] = x + mlp_out
    return {name: value[None] for name, value in seen.items()}  # a batch of one text


dump = my_block(x)
right = blocklab.trace(
    x[None], blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T), weights, recipe="float64"
)


def error(dump, step):
    return np.linalg.norm(dump[step] - right[step]) / np.linalg.norm(right[step])


print(f"recorded {len(dump)} arrays")
print("the output differs from float64 by less than 1e-6:", error(dump, "resid_post") < 1e-6)
assert error(dump, "resid_post") < 1e-6

# %% [markdown]
# ## Validate
#
# A dump is a mapping of names to arrays, or a file with them, with at least `input`. `validate` finds out by itself
# which arithmetic was used, matches the names, and compares:


# %%
def summary(report):
    """Print what a report says of each step: the step itself, from your values, and what arrives, end to end."""
    print(f"recipe {report.recipe}, verdict: {report.verdict}")
    print(f"{'step':12}{'itself':>10}{'end to end':>14}")
    for r in report.steps:
        numbers = [f"{e:.1%}" if e > 1e-5 else "< 0.001%" for e in (r.local.measures.relative, r.end_to_end.relative)]
        print(f"{r.step:12}{numbers[0]:>10}{numbers[1]:>14}{'' if r.local.passed else '   FAILS'}")


report = validate(dump, weights)
summary(report)
assert report.verdict == "pass"
assert report.recipe == "float32"

# %% [markdown]
# It passes. (`print(report.table())` shows more: how many elements are equal in every bit, the largest error in units
# of the last place, the worst token and head, the best-fit ratio. They differ a little from computer to computer, since
# float32 sums depend on the order in which a machine adds.)
#
# With a file it is the same, in Python or from the command line. A seeded checkpoint stands for the one you ported:
#
# ```sh
# blocklab synth small --preset kimi-k2-small
# blocklab validate dump.npz --checkpoint small
# ```

# %%
with tempfile.TemporaryDirectory() as folder:
    np.savez(Path(folder) / "dump.npz", **dump)
    from_file = validate(Path(folder) / "dump.npz", weights, recipe="float32")
print("from a file:", from_file.verdict)
assert from_file.verdict == "pass"

# %% [markdown]
# ## Break it
#
# The commonest mistake of all: pairs of the rotation (tutorial 4).

# %%
dump = my_block(x, broken=["half-split pairs"])
report = validate(dump, weights)
summary(report)
print(report.sentence)
assert report.verdict == "diverged"
assert report.first_divergence == "q_rot"
assert (report.diagnosis[0].mistake, report.diagnosis[0].explains) == ("rope-half-split", True)

# %%
names = [r.step for r in report.steps]
figure, axes = chart(
    "A wrong rotation, seen twice", "", "relative error", "each step from your own inputs, and end to end"
)
floor = 1e-8  # what is equal in every bit has no place on this axis
axes.semilogy([max(r.end_to_end.relative, floor) for r in report.steps], "s--", label="end to end", color="#0072b2")
axes.semilogy(
    [max(r.local.measures.relative, floor) for r in report.steps], "o", label="the step itself", color="#d55e00"
)
axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
axes.legend(frameon=False)
show(figure, "end to end, everything behind the mistake is wrong; of the steps themselves, only q_rot and k_rot are.")
failing = [r.step for r in report.steps if not r.local.passed]
assert failing == ["q_rot", "k_rot"]

# %% [markdown]
# This is why every step is compared twice, as in tutorial 9:
#
# - **end to end**: blocklab's block from your `input`. It shows what arrives. Behind a mistake everything is wrong, and
#   you learn that there is one;
# - **the step itself** (*local*): blocklab computes each step from *your* recorded inputs of that step. It shows what
#   the step adds. The first one that fails is the culprit.
#
# How close is close enough is computed for each element: from the recipe, the length of the dot and the size of its
# terms. No number was tuned.
#
# Then `validate` tries the mistakes of its catalogue on the failing step, one after the other, and names the one after
# which your value is right. So it can also find a second mistake behind the first:

# %%
dump = my_block(x, broken=["no mask", "swapped"])
report = validate(dump, weights)
print(report.sentence)
found = [f.mistake for f in report.diagnosis if f.explains]
assert found == ["missing-mask", "gate-up-swapped"]

# %% [markdown]
# It helps to record much. From `q`, `attn_out` and `mlp_out` alone it usually still finds the mistake, but must try out
# more; from the output alone it takes a minute. If a tensor cannot be matched, the report says so (`not_compared`).
#
# ## A gallery of mistakes
#
# `MISTAKES` holds 38 mistakes, each of which somebody has shipped. `blocklab mistakes` lists them. `inject` makes one
# in a run; here in FP8, the way the model is meant to be run, at late positions, and against a right run in FP8:

# %%
recipe = blocklab.RECIPES["deepseek-fp8"]
positions = (5000 + 37 * np.arange(T))[None]  # [1, T]: far into a long text, with gaps
table = blocklab.rotary_table(config, positions, recipe.rotary_table)
clean = Case(x[None], positions, table, blocklab.causal_mask(T), weights, recipe)
exact = Case(x[None], positions, table, blocklab.causal_mask(T), weights, blocklab.RECIPES["float64"])


def distance(found, right):
    """Return the relative error, infinite where numbers have become NaN or infinite on one side only."""
    seen = np.isfinite(right)
    if not np.array_equal(seen, np.isfinite(found)):
        return np.inf
    found, right = found[seen].astype(np.float64), right[seen].astype(np.float64)
    return np.linalg.norm(found - right) / np.linalg.norm(right)


right_fp8 = clean.record()
noise = {step: distance(right_fp8[step], value) for step, value in exact.record().items()}
gallery = {}
with warnings.catch_warnings(), np.errstate(all="ignore"):
    warnings.simplefilter("ignore")
    for mistake in MISTAKES:
        try:
            wrong = inject(clean, mistake).record()
        except blocklab.InputError:
            continue  # needs a cache, or another recipe
        gallery[mistake] = [distance(wrong[step], right_fp8[step]) for step in right_fp8]
print(f"{len(MISTAKES)} mistakes, {len(gallery)} of them possible in this run")
assert len(MISTAKES) == 38
assert len(gallery) == 36

# %%
steps = list(right_fp8)
values = np.log10(np.clip(np.array(list(gallery.values()), float), 1e-4, 1e1))
figure, axes = chart(
    "What each mistake does to each step", "", "", "relative error against a right run in FP8", 10.0, 8.4
)
axes.grid(False)
image = axes.imshow(values, aspect="auto", cmap="Blues", vmin=-4, vmax=1)
axes.set_xticks(range(len(steps)), steps, rotation=60, ha="right", rotation_mode="anchor", fontsize=7.5)
axes.set_yticks(range(len(gallery)), list(gallery), fontsize=7.5)
bar = figure.colorbar(image, ax=axes, ticks=[-4, -3, -2, -1, 0, 1], pad=0.01)
bar.ax.set_yticklabels(["0.01 % or less", "0.1 %", "1 %", "10 %", "100 %", "more, or NaN"], fontsize=7.5)
show(figure, "each mistake is white before its step; most are darkest there and fade towards the output.")

# %% [markdown]
# Read a row from left to right: nothing, then the step where the mistake is made, then what is left of it. (One curious
# row: `fp8-read-as-fnuz` halves all weights, but is white at the latent norms. A norm throws scales away, tutorial 2.)

# %%
fnuz = dict(zip(steps, gallery["fp8-read-as-fnuz"], strict=True))
print(f"fp8-read-as-fnuz: {fnuz['q_latent']:.0%} at q_latent, {fnuz['q_latent_norm']:.3%} at q_latent_norm")
assert round(fnuz["q_latent"], 2) == 0.5
assert fnuz["q_latent_norm"] < 1e-4

# %% [markdown]
#
# ## A surprise: the output hides them
#
# Rounding to FP8 itself, with no mistake at all, changes the output by more than a percent. Which mistakes change it by
# less than twice that?

# %%
last = steps.index("resid_post")
print(f"FP8 alone: {noise['resid_post']:.1%} at resid_post")
hidden = {m: errors for m, errors in gallery.items() if errors[last] < 2 * noise["resid_post"]}
for mistake, errors in sorted(hidden.items(), key=lambda item: item[1][last]):
    changed = [i for i, e in enumerate(errors) if e > 0]
    where = (
        f"{errors[changed[0]]:6.1%} at {steps[changed[0]]}, where it is made" if changed else "no effect on this text"
    )
    print(f"{mistake:26}{errors[last]:6.1%} at the output; {where}")
print(f"{len(hidden)} of {len(gallery)}")
assert 0.01 < noise["resid_post"] < 0.02
assert 9 <= len(hidden) <= 13
assert gallery["missing-yarn"][last] < noise["resid_post"] < 0.2 < gallery["missing-yarn"][steps.index("q_rot")]
assert not any(gallery["amax-floor"])

# %% [markdown]
# Almost a third. YaRN left out, a rotary table in bfloat16, a wrong softmax scale: each is plain where it is made, some
# of them by more than 100 %, and at the output you cannot tell them from ordinary rounding. A test that compares
# outputs with a tolerance of a few percent passes them all, and the model is a little worse, for ever. (`amax-floor`
# does nothing on this text: it needs channels that are nearly silent. A test finds only what its input shows.)
#
# So: record the steps, compare each from its own inputs, and use inputs with late positions, quiet tokens and loud
# channels.
#
# ## Exercises
#
# Solutions are in [solutions/10_validate_your_own.py](solutions/10_validate_your_own.py).
#
# **10.1** (10 minutes, medium) The cosine of two vectors is 1 when one is a multiple of the other: it cannot see a
# forgotten scale. Return the *best-fit ratio* instead, the number $r$ for which $r \cdot \text{ours}$ is nearest to
# theirs (least squares). Arrays of any equal shape.


# %%
def best_fit_ratio(theirs, ours):
    raise NotImplementedError


check("10.1", best_fit_ratio)

# %% [markdown]
# <!-- fold 10.1 -->
#
# **10.2** (5 minutes, easy) Where is it worst? `theirs` and `ours` are `[T, D]`; return the position whose error is
# largest *relative to the size of ours there*. (Quiet tokens show a wrong eps, late ones a wrong rotation.) No token of
# ours is all zeros.


# %%
def worst_position(theirs, ours):
    raise NotImplementedError


check("10.2", worst_position)

# %% [markdown]
# <!-- fold 10.2 -->
#
# **10.3** (15 minutes, hard) How many bfloat16 numbers apart? `a` and `b` are float32 arrays of numbers that bfloat16
# can hold. Return how many steps along the grid lead from one to the other, as integers $\geq 0$: neighbours have
# distance 1, and so have 0 and the smallest number above it. Hint: positive codes are sorted like their values
# (tutorial 7), and `a.view(np.int32) >> 16` is the code.


# %%
def steps_apart(a, b):
    raise NotImplementedError


check("10.3", steps_apart)

# %% [markdown]
# <!-- fold 10.3 -->
#
# ## Read on
#
# - [blocklab/check/validation.py](../blocklab/check/validation.py), and
#   [stepwise.py](../blocklab/check/stepwise.py) for the two comparisons;
#   [tolerance.py](../blocklab/check/tolerance.py): how close is close enough, derived.
# - [blocklab/check/mistakes.py](../blocklab/check/mistakes.py) and its neighbours: all 38, as short functions. If yours
#   is missing, add it.
# - Why sums of rounding errors grow like the root of their number: Higham and Mary, a probabilistic approach to
#   rounding error analysis ([doi 10.1137/18M1226312](https://doi.org/10.1137/18M1226312)).
# - The report of the model that all this is about: [arXiv 2507.20534](https://arxiv.org/abs/2507.20534).
#
# That was the last tutorial. Now take your own implementation, record its steps, and run `blocklab validate`.
