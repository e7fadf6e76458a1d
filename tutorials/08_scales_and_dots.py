# %% [markdown]
# # 8. Scales and dots
#
# **What you will do.** You quantise activations and weights with one scale for many, for some, and for few numbers; you
# watch what an outlier does to its neighbours; and you add up products as a GPU does, in a register of fourteen bits.
#
# **What you will learn.** What 1 x 128 and 128 x 128 mean, when they help and when they do not, why the dot of 128 FP8
# products has no rounding error at all, what Hopper's tensor cores lose, and what *promotion* gets back.
#
# **You need** tutorial 7. 50 minutes.

# %%
import numpy as np
from checks import check
from pictures import chart, show, with_labels

import blocklab
from blocklab.numerics import decode, dequantize, fp8_matmul, quantize, round_to, tensor_core_dot
from blocklab.show import plot
from blocklab.show.accumulator import accumulation, draw_accumulation
from blocklab.synth.weights import synthetic_embedding, text_tokens

config = blocklab.BlockConfig.preset("kimi-k2-small")
weights = blocklab.synthetic_weights(config, seed=0)
text = "the cat sat on the mat"
tokens, labels = text_tokens(text), ["^", *text.replace(" ", "␣")]
T = len(tokens)
x = synthetic_embedding(config, seed=0).values()[tokens][None]  # [1, T, D]
rotary, mask = blocklab.rotary_table(config, np.arange(T)), blocklab.causal_mask(T)
trace = with_labels(blocklab.trace(x, rotary, mask, weights, recipe="float64"), labels)
rng = np.random.default_rng(8)

# %% [markdown]
# ## A scale
#
# e4m3 ends at 448 and is at its best above 1/64 (tutorial 7). Activations and weights are somewhere else: the weights
# here are near 0.05. So numbers that belong together are divided by a common **scale** $s$, chosen such that the
# largest magnitude among them, the **amax**, lands on 448:
#
# $$s = \frac{\text{amax}}{448}, \qquad \text{code} = \text{round}(x / s), \qquad x \approx \text{code} \cdot s$$
#
# Codes are stored as bytes and $s$ as float32. Which numbers share one?
#
# - **activations: 1 x 128**. Each token has one scale for 128 neighbouring channels;
# - **weights: 128 x 128**. A square of the matrix has one.
#
# By hand, for the input of the MLP:

# %%
h = trace["mlp_norm"][0].astype(np.float32)  # [T, 640]
groups = h.reshape(T, 5, 128)
amax = np.abs(groups).max(axis=-1, keepdims=True)  # [T, 5, 1]
scale = np.maximum(amax, np.float32(1e-4)) / np.float32(448)
values = round_to(groups / scale, "e4m3fn")  # on the grid of e4m3
back = (values * scale).reshape(T, 640)

codes, theirs = quantize(h, block=(1, 128))
print(f"codes {codes.dtype} {codes.shape}, scales {theirs.dtype} {theirs.shape}")
print(f"error: {np.linalg.norm(back - h) / np.linalg.norm(h):.2%} of the norm")
assert np.array_equal(decode(codes).reshape(T, 5, 128), values)
assert np.array_equal(theirs, scale[..., 0])
assert np.array_equal(dequantize(codes, theirs, block=(1, 128)), back)
assert 0.02 < np.linalg.norm(back - h) / np.linalg.norm(h) < 0.0265

# %% [markdown]
# The maximum with 1e-4 is a *floor*: 128 zeros would otherwise have the scale 0, and 0 / 0 is NaN.
#
# What does it cost? A float32 scale has 32 bits:

# %%
for name, numbers in (("1 x 128", 128), ("128 x 128", 128 * 128)):
    print(f"{name:10} {32 / numbers:.4f} bits more for each number of 8 bits")
assert 32 / 128 == 0.25

# %% [markdown]
# The weights' scales as stored, one square for each block of `up_proj`, the matrix that makes `up`:

# %%
show(
    plot(trace, "up", "scales", weights=weights),
    "one square for 128 x 128 weights; neighbours differ by factors of 2, rows with loud neurons have larger scales.",
)
up = weights.mlp.up_proj
print("weights", up.shape, "scales", up.scale.shape)
assert up.scale.shape == (12, 5)

# %% [markdown]
# Sizes that are no multiple of 128 have a short last block. `kv_a_proj_with_mqa` of Kimi K2 has 576 rows, and
# $\lceil 576 / 128 \rceil = 5$ rows of scales; the fifth covers 64 rows only. Programs that compute the block size as
# 576 // 5 = 115 are wrong from row 115 on, and programs that drop the last row spoil exactly the 64 rotary channels.
# Both have been shipped.
#
# ## What an outlier does
#
# Say channel 700 of 1,024 is loud, $f$ times as loud as the others. With one scale for the whole tensor, it pushes
# everybody else down towards the subnormal numbers. With 1 x 128, only the 127 channels beside it. How large is the
# error of the *other* channels? FP4 (e2m1: the numbers 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives) beside it, since
# newer GPUs have that too:

# %%
ordinary = rng.standard_normal((32, 1024)).astype(np.float32)
KINDS = {"per tensor": (None, None), "per token": (1, None), "1 x 128": (1, 128)}


def error_of_others(factor, format, block):
    x = ordinary.copy()
    x[:, 700] *= factor
    codes, scale = quantize(x, format, block=block)
    error = dequantize(codes, scale, block=block, format=format) - x
    return np.linalg.norm(np.delete(error, 700, axis=1)) / np.linalg.norm(np.delete(x, 700, axis=1))


factors = 2.0 ** np.arange(0, 21)
figure, axes = chart("Error of the other channels", "how loud channel 700 is", "error / size", height=4.0)
for format, marker in (("e2m1", "--"), ("e4m3fn", "-")):
    for kind, color in zip(KINDS, ("#d55e00", "#e69f00", "#0072b2"), strict=True):
        curve = [error_of_others(f, format, KINDS[kind]) for f in factors]
        axes.loglog(factors, curve, marker, label=f"{'FP4' if format == 'e2m1' else 'FP8'} {kind}", color=color)
axes.set_xscale("log", base=2)
axes.legend(frameon=False, ncols=2, loc="lower right")
axes.set_ylim(0.008, 1.3)
show(figure, "FP4 suffers at once; FP8 not before the outlier is 4,000 times as loud, and with 1 x 128 much later.")

# %%
for factor in (1, 2.0**10, 2.0**16):
    errors = {kind: error_of_others(factor, "e4m3fn", block) for kind, block in KINDS.items()}
    print(f"channel 700 times {factor:7,.0f}: " + ", ".join(f"{kind} {e:.1%}" for kind, e in errors.items()))
assert all(0.025 < error_of_others(f, "e4m3fn", b) < 0.027 for f in (1, 2.0**10) for b in KINDS.values())
assert error_of_others(2.0**16, "e4m3fn", (None, None)) > 5 * error_of_others(2.0**16, "e4m3fn", (1, 128))
assert error_of_others(4.0, "e2m1", (None, None)) > 2 * error_of_others(4.0, "e2m1", (1, 128))

# %% [markdown]
# So is 1 x 128 needed at all? An honest answer: for outliers of a factor of 1,000, FP8 does not need it, because the
# error of FP8 is a share of each number. The loudest activations of trained models are 1,000 to 100,000 times the
# median ([arXiv 2402.17762](https://arxiv.org/abs/2402.17762)), so now and then it does, and nobody wants to find out
# when. In our small block, whose loud channel is 9 times as loud as the others (tutorial 2), all three give the same
# error:

# %%
for kind, block in KINDS.items():
    codes, scale = quantize(h, block=block)
    error = np.linalg.norm(dequantize(codes, scale, block=block) - h) / np.linalg.norm(h)
    print(f"mlp_norm, {kind:10}: {error:.2%}")
    assert 0.02 < error < 0.027

# %% [markdown]
# ## Powers of two
#
# A scale that is a power of two changes only the exponent of a number, so multiplying by it never rounds, and it fits
# in one byte (e8m0: only an exponent). It must be rounded *up*, or amax would land above 448. Up from the exponent
# bits, not by a logarithm:

# %%
just_above = np.nextafter(np.float32(2.0**20), np.float32(np.inf))  # the next float32 after 2^20
by_logarithm = 2.0 ** np.ceil(np.log2(just_above))
fraction, exponent = np.frexp(just_above)  # fraction in [1/2, 1)
by_bits = 2.0 ** (exponent - 1 if fraction == 0.5 else exponent)
print(f"just above 2^20: the logarithm says 2^{np.log2(by_logarithm):.0f}, the exponent 2^{np.log2(by_bits):.0f}")
assert (by_logarithm, by_bits) == (2.0**20, 2.0**21)

for scale in ("float32", "ue8m0"):
    codes, s = quantize(ordinary, scale=scale)
    error = np.linalg.norm(dequantize(codes, s, block=(1, 128)) - ordinary) / np.linalg.norm(ordinary)
    print(f"scales as {scale}: error {error:.2%}")
    assert 0.025 < error < 0.0275

# %% [markdown]
# The amax now lands anywhere from 224 to 448, and the error stays what it was: FP8 has room below. The order matters,
# though: first round the scale, then divide by it. To divide by one scale and multiply by another is a plain mistake:

# %%
codes, exact_scale = quantize(ordinary)
_, rounded_scale = quantize(ordinary, scale="ue8m0")
late = dequantize(codes, rounded_scale, block=(1, 128))
print(f"rounded too late: error {np.linalg.norm(late - ordinary) / np.linalg.norm(ordinary):.0%}")
assert np.linalg.norm(late - ordinary) / np.linalg.norm(ordinary) > 0.3

# %% [markdown]
# ## A dot without error
#
# Now multiply. A **dot** is a sum of products $\sum_k a_k w_k$. In floating point the result of a sum depends on the
# order of its terms, because every partial sum is rounded. With FP8 there is a way out. All numbers of e4m3 are
# multiples of $2^{-9}$, so all products are multiples of $2^{-18}$, and at most $448^2$. The sum of 128 of them needs
#
# $$\log_2(128 \cdot 448^2 \cdot 2^{18}) = 42.6 \text{ bits.}$$
#
# float64 has 53. So *nothing is ever rounded*, and every order gives the same bits:


# %%
def numbers_of_all_sizes():
    """Return 128 numbers on the grid of e4m3, from large to small, as float64."""
    return round_to(100 * rng.standard_normal(128) * 2.0 ** rng.uniform(-12, 0, 128), "e4m3fn")


a, w = numbers_of_all_sizes(), numbers_of_all_sizes()
for dtype in (np.float32, np.float64):
    products = (a * w).astype(dtype)
    sums = {float(np.cumsum(products[rng.permutation(128)], dtype=dtype)[-1]) for _ in range(100)}
    print(f"{dtype.__name__}: {len(sums)} different sums in 100 orders")
    assert (len(sums) == 1) == (dtype is np.float64)
assert np.log2(128 * 448**2 * 2.0**18) < 43

# %% [markdown]
# That is why the recipe `deepseek-fp8` gives the same bits on every machine. A longer dot is made of groups of 128.
# Each has its own scales, $s_a$ of the token's group and $s_w$ of the weights' block, and the groups are added in
# float32, in order:
#
# $$y = \sum_g \big((\textstyle\sum_{k \in g} a_k w_k) \cdot s_a[g]\big) \cdot s_w[g]$$

# %%
codes, s_a = quantize(h)  # [T, 640] and [T, 5]
by_hand = np.zeros((T, 1536), np.float32)
for g in range(5):
    part = slice(128 * g, 128 * g + 128)
    dot = decode(codes[:, part]).astype(np.float64) @ decode(up.raw[:, part]).astype(np.float64).T  # exact
    s_w = np.repeat(up.scale[:, g], 128)  # [1536]: 12 blocks of 128 rows
    by_hand += (dot.astype(np.float32) * s_a[:, g : g + 1]) * s_w
assert np.array_equal(by_hand, fp8_matmul(codes, s_a, up.raw, up.scale, "exact"))
error = np.linalg.norm(by_hand - trace["up"][0]) / np.linalg.norm(trace["up"][0])
print(f"equal to fp8_matmul in every bit; {error:.2%} away from float64")
W, quantised = up.values().astype(np.float64), dequantize(codes, s_a, block=(1, 128)).astype(np.float64)
rest = np.linalg.norm(by_hand - quantised @ W.T) / np.linalg.norm(by_hand)
print("of this, quantising h is all but 1e-6:", rest < 1e-6)
assert 0.02 < error < 0.03
assert rest < 1e-6

# %% [markdown]
# ## Fourteen bits
#
# NVIDIA's Hopper GPUs add FP8 products in a *tensor core*. It is not exact, and not float32 either. One step takes 32
# products and what is in the **register** so far, and
#
# 1. finds the largest exponent among the 33 terms, $E$ (of a product: the exponents of its factors, added);
# 2. cuts off every term below $2^{E - 13}$, toward zero;
# 3. adds what is left, exactly, and cuts the sum off after 13 bits of fraction.
#
# With the leading 1 these are 14 bits, where float32 has 24. The smallest example:

# %%
a, w = np.array([448.0, 2.0**-6]), np.array([448.0, 1.0])
print(f"exact {a @ w}, Hopper {tensor_core_dot(a, w)}")
assert (a @ w, tensor_core_dot(a, w)) == (200704.015625, 200704)


def exponent(v, least):
    """Return floor(log2 |v|), but at least the exponent of the smallest normal number."""
    return np.maximum(np.frexp(v)[1] - 1, least)


def hopper_step(register, a, w):
    """Return the register after a step; a and w have up to 32 numbers of e4m3."""
    terms = np.append(a * w, register)
    exponents = np.append(exponent(a, -6) + exponent(w, -6), exponent(register, -126))
    if not terms.any():
        return 0.0
    unit = 2.0 ** (exponents[terms != 0].max() - 13)
    total = np.trunc(terms / unit).sum() * unit
    last_place = 2.0 ** (exponent(total, -126) - 13)
    return float(np.trunc(total / last_place) * last_place)


a, w = (round_to(100 * rng.standard_normal(7168), "e4m3fn") for _ in range(2))
register = 0.0
for k in range(0, 7168, 32):
    register = hopper_step(register, a[k : k + 32], w[k : k + 32])
print(f"7,168 products by hand {register}, by the library {tensor_core_dot(a, w)}, exact {a @ w}")
assert register == tensor_core_dot(a, w)

# %% [markdown]
# These rules are not in NVIDIA's manuals. People found them by feeding numbers to the hardware
# ([arXiv 2511.10909](https://arxiv.org/abs/2511.10909), [arXiv 2512.07004](https://arxiv.org/abs/2512.07004)); blocklab
# agrees with every one of 20,000 recorded results of an H100.
#
# ## What promotion does
#
# As the sum in the register grows, so does what is cut off from each new product. DeepSeek therefore takes the register
# out after 128 products, adds it to a float32 sum outside, and starts again from 0. They call this **promotion**. (It
# fits well: after 128 products the scales change anyway.)

# %%
data = accumulation(seed=0, dots=64)
show(
    draw_accumulation(data, "rms over 64 dots of normal values on the e4m3 grid"),
    "without promotion the error grows along the dot; with it, it stays ten times smaller.",
)
print(f"after 7,168 products: {data.register[-1]:.1e} without promotion, {data.promoted[-1]:.1e} with")
assert 1e-3 < data.register[-1] < 4e-3
assert 1e-4 < data.promoted[-1] < 2e-4

# %% [markdown]
# For comparison: quantising the inputs to FP8 costs 2.6e-2, two hundred times what the promoted register costs.
#
# ## A surprise: when all products are positive
#
# A few times $10^{-3}$ does not sound bad. But in the picture positive and negative products cancel, and the sum stays
# small. Take numbers that are all positive, so that the sum only grows, and nothing else is changed:

# %%
a, w = (np.abs(round_to(100 * rng.standard_normal((16, 7168)), "e4m3fn")) for _ in range(2))
exact = (a * w).sum(axis=1)
for promote in (None, 128):
    missing = 1 - tensor_core_dot(a, w, promote=promote) / exact
    print(f"promote={promote!s:5} {missing.mean():7.3%} of the sum is missing, in every one of 16 dots")
    assert (missing > 0).all()
    assert (0.10 < missing.mean() < 0.14) if promote is None else (missing.mean() < 0.001)

# %% [markdown]
# An eighth of the sum is gone. Cutting *toward zero* always makes a positive product smaller, so the losses do not
# cancel: they add up, 7,168 times. Promotion makes the loss almost 200 times smaller. If you measure an implementation
# with random numbers of both signs only, you will never see this.
#
# ## Exercises
#
# Solutions are in [solutions/08_scales_and_dots.py](solutions/08_scales_and_dots.py).
#
# **8.1** (10 minutes, medium) Quantise activations `x [T, K]` in groups of `group` channels ($K$ is a multiple of it).
# Return the values on the grid of e4m3 `[T, K]`, and the scales `[T, K / group]`. Use `round_to` for rounding, and the
# floor 1e-4 for the amax.


# %%
def quantize_groups(x, group):
    raise NotImplementedError


check("8.1", quantize_groups)

# %% [markdown]
# <!-- fold 8.1 -->
#
# **8.2** (10 minutes, medium) Turn weights back: `values [N, K]` on the grid, `scale [ceil(N / block), ceil(K /
# block)]`, one scale for a square of `block` x `block` weights; the last squares may be short. Return `[N, K]`.


# %%
def dequantize_weights(values, scale, block):
    raise NotImplementedError


check("8.2", dequantize_weights)

# %% [markdown]
# <!-- fold 8.2 -->
#
# **8.3** (10 minutes, hard) Round float32 scales (an array of positive numbers) up to powers of two. A power of two
# stays what it is.


# %%
def up_to_power_of_two(scale):
    raise NotImplementedError


check("8.3", up_to_power_of_two)

# %% [markdown]
# <!-- fold 8.3 -->
#
# **8.4** (15 minutes, hard) Compute a dot with promotion: `a [K]` and `w [K]` are numbers of e4m3, `step(register, a,
# w)` adds up to 32 products to a register (`check` passes `hopper_step`), and after every `promote` products (a
# multiple of 32) the register is added to a float32 sum. The last stretch may be shorter. Return the sum.


# %%
def promoted_dot(a, w, promote, step):
    raise NotImplementedError


check("8.4", promoted_dot)

# %% [markdown]
# <!-- fold 8.4 -->
#
# ## Read on
#
# - [blocklab/numerics/scaling.py](../blocklab/numerics/scaling.py): `quantize`, all granularities;
#   [microscaling.py](../blocklab/numerics/microscaling.py): groups of 32 and 16 with scales of 8 bits.
# - [blocklab/numerics/dots.py](../blocklab/numerics/dots.py) and
#   [tensor_core.py](../blocklab/numerics/tensor_core.py): the dots; `step_plain` is `hopper_step`, other chips too.
# - DeepSeek-V3 report, section 3.3: [arXiv 2412.19437](https://arxiv.org/abs/2412.19437).
# - 576 rows in the wild: [ms-swift#6851](https://github.com/modelscope/ms-swift/issues/6851).
#
# Next: [9. Where the error comes from](09_where_the_error_comes_from.ipynb).
