# %% [markdown]
# # 7. FP8 numbers
#
# **What you will do.** You take apart bytes that are numbers, look at all 256 of them, round to them by hand, find out
# what happens to numbers that are too large or too small, and meet a format that is better than FP8 until it is not.
#
# **What you will learn.** How a floating-point number is stored, what rounding to nearest with ties to even is, what
# subnormal numbers are for, what overflow does, and how large the error of FP8 is: about 2.65 %, whatever the size of
# the number.
#
# **You need** binary numbers, and nothing from the tutorials before. 40 minutes.

# %%
import numpy as np
from checks import check
from pictures import chart, show

from blocklab.numerics import FORMATS, decode, encode, round_to

rng = np.random.default_rng(7)

# %% [markdown]
# ## Eight bits
#
# Kimi K2's weights are bytes. A byte has 256 patterns, so it can name 256 numbers, and somebody has to choose which.
# The choice made here is called **e4m3fn**: from the left, 1 bit for the sign, 4 for the exponent, 3 for the fraction
# (the *mantissa*; hence e4m3. `fn` says "finite, with NaN": there are no infinities).
#
# ```
#   0   1 0 1 0   0 1 1        the byte 0x53
#   s   exponent  fraction
#       field E   m
# ```
#
# $$\text{value} = (-1)^s \cdot \Big(1 + \frac{m}{8}\Big) \cdot 2^{E - 7}$$
#
# The factor $1 + m/8$ is the *significand*. It runs from 1 to 1.875 in steps of 1/8; the leading 1 is not stored (the
# *hidden bit*). The field $E$ counts from 0 to 15, and 7, the *bias*, is subtracted so that there are negative
# exponents too. 0x53 has $E = 10$ and $m = 3$: it is $1.375 \cdot 2^3 = 11$.

# %%
byte = 0x53
s, E, m = byte >> 7, byte >> 3 & 0b1111, byte & 0b111
value = (-1) ** s * (1 + m / 8) * 2.0 ** (E - 7)
print(f"0x{byte:02X} = {byte:08b}: s={s} E={E} m={m}, value {value}")
assert (s, E, m, value) == (0, 10, 3, 11.0)
assert decode(np.array([byte], np.uint8), "e4m3fn")[0] == value

# %% [markdown]
# Two patterns are special:
#
# - **E = 0: subnormal numbers.** With the hidden 1 the smallest number would be $2^{-7}$, and there would be no zero.
#   So for $E = 0$ the hidden bit is 0, and the exponent stays what it is for $E = 1$: value $= \frac{m}{8} \cdot 2^{-6}
#   = m \cdot 2^{-9}$. For $m = 0$ this is zero.
# - **0x7F and 0xFF: NaN**, "not a number", the result of 0/0. So the largest number is 0x7E, $1.75 \cdot 2^8 = 448$.
#
# Here are all numbers that are not negative, at three magnifications:

# %%
codes = np.arange(127, dtype=np.uint8)  # 0x00 .. 0x7E
grid = decode(codes, "e4m3fn").astype(np.float64)
print(f"{len(grid)} numbers from {grid[0]} to {grid[-1]}; {np.sum(grid < 1)} of them are below 1")
assert (grid[0], grid[1], grid[8], grid[-1]) == (0, 2.0**-9, 2.0**-6, 448)
assert np.sum(grid < 1) == 56

figure, axes = chart("The numbers of e4m3fn", "", "", "three times the same grid, magnified", height=2.6)
for place, limit in enumerate((448, 16, 2.0**-4)):
    shown = grid[grid <= limit] / limit
    is_small = grid[grid <= limit] < 2.0**-6
    axes.vlines(shown[~is_small], -place - 0.35, -place + 0.35, color="#0072b2", linewidth=1)
    axes.vlines(shown[is_small], -place - 0.35, -place + 0.35, color="#d55e00", linewidth=1)
axes.set_yticks([0, -1, -2], ["0 to 448", "0 to 16", "0 to 1/16"])
axes.set_xticks([])
show(figure, "8 numbers from 1 to 2, 8 from 2 to 4, and so on; below 1/64 (orange) they are evenly spaced down to 0.")

# %% [markdown]
# Every *binade*, the numbers from one power of two to the next, holds 8 numbers: the grid is fine where numbers are
# small and coarse where they are large. Without the subnormal numbers there would be a hole around zero, as wide as the
# whole first binade.
#
# A nice property: the codes are sorted like their values, so the next larger number has the next code.

# %%
assert (np.diff(grid) > 0).all()
print("gap above 1:", grid[np.searchsorted(grid, 1) + 1] - 1, " gap below 448:", grid[-1] - grid[-2])
assert grid[-1] - grid[-2] == 32

# %% [markdown]
# ## Rounding
#
# A number that is not on the grid goes to the nearest one that is. If two are equally near (a *tie*), it goes to the
# one whose last bit is 0, the *even* one. (Always rounding ties up would push sums upwards.)

# %%
for number in (4.2, 4.25, 4.3, 4.75, 100.0):
    print(f"{number:6} -> {round_to(number, 'e4m3fn')}")
assert [round_to(v, "e4m3fn") for v in (4.25, 4.75)] == [4.0, 5.0]

# %% [markdown]
# From 4 to 8 the grid has steps of 1/2. So 4.25 is a tie between 4 (significand 1.000 in binary) and 4.5 (1.001), and
# goes to 4; 4.75 lies between 4.5 (1.001) and 5 (1.010), and goes to 5.
#
# By hand, rounding has three steps: find the binade, divide by the gap in it, round to an integer (`np.rint` takes ties
# to even), and multiply again. `np.frexp` finds the binade:


# %%
def round_by_hand(x):
    exponent = np.frexp(x)[1] - 1  # 2^exponent <= |x| < 2^(exponent + 1)
    exponent = np.maximum(exponent, -6)  # subnormal numbers have the gap of the smallest binade
    gap = 2.0 ** (exponent - 3)  # 8 gaps in a binade
    return np.rint(x / gap) * gap


numbers = rng.standard_normal(100_000) * 2.0 ** rng.uniform(-14, 6, 100_000)
assert np.array_equal(round_by_hand(numbers), round_to(numbers, "e4m3fn"))
print("equal to the library on 100,000 numbers")

# %% [markdown]
# ## How large is the error?
#
# A number is off by at most half a gap. In a binade from $2^e$ to $2^{e+1}$ the gap is $2^e / 8$, so the error is at
# most $2^e / 16$: less than $1/16$ of the number, $1/17$ at worst. For a number that may lie anywhere, the *relative*
# error (error over size) looks like this:

# %%
sizes = 2.0 ** np.linspace(-12, 8.8, 4000)
figure, axes = chart("Error of one rounding", "the number", "relative error", "distance to the grid over the number")
for name, color in (("e5m2", "#e69f00"), ("e4m3fn", "#0072b2"), ("bfloat16", "#1a1a1a")):
    error = np.abs(round_to(sizes, name) - sizes) / sizes
    axes.plot(sizes, error, label=name, color=color, linewidth=0.8)
axes.set_xscale("log", base=2)
axes.set_ylim(0, 0.3)
axes.axvline(2.0**-6, color="#6b6b6b", linestyle=":", linewidth=0.8)
axes.text(2.0**-6 * 1.1, 0.22, "smallest normal\nnumber of e4m3fn", fontsize=9)
axes.legend(frameon=False, loc="upper right")
show(figure, "one saw for all binades from 1/64 to 448; below, the error grows, and 100 % is lost below 2^-10.")

middle = 2.0 ** np.linspace(-6, 8, 100_001)[:-1]
relative = np.abs(round_to(middle, "e4m3fn") - middle) / middle
print(f"e4m3fn: at most {relative.max():.2%}, typically (rms) {np.sqrt(np.mean(relative**2)):.2%}")
assert relative.max() < 1 / 16
assert round(np.sqrt(np.mean(relative**2)), 4) == 0.0265

# %% [markdown]
# 2.65 %, for numbers of any size from 1/64 to 448. Keep this number: it is most of the error of an FP8 model, and you
# will meet it in tutorials 8 and 9. The other 8-bit format, **e5m2**, spends one bit more on the exponent and one less
# on the fraction: twice the error, and a huge range. bfloat16, with 16 bits, has 7 bits for the fraction instead
# of 3: steps that are 16 times finer.

# %%
print(f"{'format':10}{'bits':>5}{'largest':>11}{'smallest':>11}{'error at most':>15}")
for name in ("e4m3fn", "e5m2", "float16", "bfloat16"):
    f = FORMATS[name]
    print(f"{name:10}{f.bits:5}{f.max:11.4g}{f.min_subnormal:11.3g}{2.0**-f.precision:15.2%}")
assert FORMATS["e4m3fn"].max == 448
assert FORMATS["e5m2"].max == 57344
assert FORMATS["bfloat16"].precision - FORMATS["e4m3fn"].precision == 4

# %% [markdown]
# ## Too large
#
# 448 is the largest number. What about 449? It is nearer to 448 than to 480, where the next number would be, so 448.
# 464, in the middle, is a tie and goes to the even one, 448. Everything above **overflows**, and here conventions part:
#
# - **saturate**: it becomes 448, infinity too. GPUs do this, and it is what you want with weights and activations;
# - **nan**: it becomes NaN, as numpy's extension `ml_dtypes` does. One such number spoils a whole text.

# %%
print(f"{'number':>8}{'saturate':>10}{'nan':>6}")
for number in (448.0, 464.0, 464.1, 1e4, np.inf):
    print(f"{number:8}{round_to(number, 'e4m3fn'):10}{round_to(number, 'e4m3fn', overflow='nan'):6}")
assert round_to(464.0, "e4m3fn", overflow="nan") == 448
assert np.isnan(round_to(464.1, "e4m3fn", overflow="nan"))
assert round_to(np.inf, "e4m3fn") == 448

# %% [markdown]
# Saturating is no rescue either: $10^4$ became 448. The range must be moved to where the numbers are, by a *scale*;
# that is tutorial 8.
#
# ## Encode by hand
#
# From a number to its byte. 124.3 as an example:
#
# 1. Binade: $64 \le 124.3 < 128$, so the exponent is 6 and the gap $64 / 8 = 8$.
# 2. In gaps: $124.3 / 8 = 15.54$, rounded 16.
# 3. But the significand must stay below 16 gaps. 16 gaps of 8 are 128, which is the *next* binade: exponent 7, $m = 0$.
# 4. $E = 7 + 7 = 14$: the byte is 0 1110 000, 0x70.
#
# Step 3 is the *carry*, and it is where programs go wrong: one in use today loses it, and turns 124.3 into 64. There is
# a trick that needs no special case. Count from the bottom of the binade, and *add* the fraction to the exponent field
# as integers: a fraction of 8 carries into the exponent by itself. Subnormal numbers come out right too:


# %%
def encode_by_hand(x):
    """Return the code of a positive number up to 448."""
    exponent = max(int(np.frexp(x)[1]) - 1, -6)
    in_gaps = int(np.rint(x / 2.0 ** (exponent - 3)))  # 8 to 16, or 0 to 8 for subnormal numbers
    return (exponent + 6) * 8 + in_gaps  # (E - 1) * 8 + 8 + m


for number in (124.3, 11.3, 0.01, 448.0):
    code = encode_by_hand(number)
    print(f"{number:6} -> 0x{code:02X} = {code:08b} -> {decode(np.uint8([code]), 'e4m3fn')[0]}")
    assert code == encode(number, "e4m3fn")
lost_carry = (6 + 7) * 8 + (16 - 8) % 8  # what the other program does
assert encode_by_hand(124.3) == 0x70
assert decode(np.uint8([lost_carry]), "e4m3fn")[0] == 64

# %% [markdown]
# ## The same byte in another format
#
# A byte does not say what format it is in. AMD's first FP8 chips use **e4m3fnuz**: bias 8 instead of 7, and the only
# NaN is 0x80, which is -0 elsewhere. Read with the wrong format, every weight is half as large, and every -0 is NaN:

# %%
some = encode(np.array([1.0, -2.5, 96.0, -0.0]), "e4m3fn")
print("written as e4m3fn:  ", decode(some, "e4m3fn"))
print("read as e4m3fnuz:   ", decode(some, "e4m3fnuz"))
assert decode(some, "e4m3fnuz")[:3].tolist() == [0.5, -1.25, 48.0]
assert np.isnan(decode(some, "e4m3fnuz")[3])

# %% [markdown]
# All weights half as large is nearly invisible to a measure that looks at directions only, such as the cosine.
#
# ## Rounding twice is not rounding once
#
# A number slightly above a tie should go up. Rounded to a shorter format first, it may land exactly *on* the tie, and
# then goes to even:

# %%
above_tie = 1.0625 + 2.0**-40  # 1.0625 is the tie between 1 and 1.125
once = round_to(above_tie, "e4m3fn")
twice = round_to(round_to(above_tie, "float32"), "e4m3fn")
print(f"just above 1.0625: rounded once {once}, through float32 {twice}")
assert (once, twice) == (1.125, 1.0)

values = (50 * rng.standard_normal(100_000)).astype(np.float32)
through = round_to(round_to(values, "bfloat16"), "e4m3fn")
share = np.mean(through != round_to(values, "e4m3fn"))
print(f"float32 -> bfloat16 -> e4m3fn differs from float32 -> e4m3fn in {share:.1%} of the numbers")
assert round(share, 2) == 0.03

# %% [markdown]
# Two programs that quantise "the same" activations, one from float32 and one from bfloat16, differ in one code of 30,
# each by a whole step, 6 to 12 % of the number. To compare with somebody, you must know what
# format they rounded *from*.
#
# ## A surprise: int8 is better, until it is not
#
# There is a simpler way to spend 8 bits: 255 evenly spaced numbers from -127 to 127, times a scale (**int8**). Take 128
# ordinary numbers, scale each format so that its largest number is the largest of them, round, and compare:


# %%
def error_of_quiet(format, loudness, dots=1000):
    """Return the relative error of 127 normal numbers that share a scale with one `loudness` times as large as 3."""
    x = rng.standard_normal((dots, 128))
    x[:, 0] = 3 * loudness
    amax = np.abs(x).max(axis=1, keepdims=True)
    if format == "int8":
        y = np.rint(x / (amax / 127)) * (amax / 127)
    else:
        scale = amax / FORMATS[format].max
        y = round_to(x / scale, format) * scale
    quiet = slice(1, None)
    return np.linalg.norm((y - x)[:, quiet]) / np.linalg.norm(x[:, quiet])


print(f"no outlier: int8 {error_of_quiet('int8', 1):.2%}, e4m3fn {error_of_quiet('e4m3fn', 1):.2%}")
assert error_of_quiet("int8", 1) < 0.008 < 3 * 0.008 < error_of_quiet("e4m3fn", 1)

# %%
factors = 2.0 ** np.arange(0, 20)
figure, axes = chart(
    "What one outlier does to its neighbours", "size of the outlier (1: as large as the others get)", "relative error"
)
for name, color, style in (("int8", "#d55e00", "--"), ("e5m2", "#e69f00", ":"), ("e4m3fn", "#0072b2", "-")):
    axes.loglog(factors, [error_of_quiet(name, f, 200) for f in factors], style, label=name, color=color)
axes.set_xscale("log", base=2)
axes.legend(frameon=False)
show(
    figure,
    "int8 starts lower and rises at once; e4m3fn stays at 2.65 % until the outlier is thousands of times larger.",
)
assert error_of_quiet("int8", 8) > 0.05
assert abs(error_of_quiet("e4m3fn", 1000) - 0.026) < 0.001
assert error_of_quiet("e4m3fn", 2.0**16) > 0.2

# %% [markdown]
# int8 has almost four times *less* error on well-behaved numbers: its steps are evenly spaced, and well-behaved numbers
# are too. But its error is a share of the *largest* number. With an outlier 8 times as large as everything else the
# others have lost 5 %; FP8's error is a share of *each* number, and does not notice until the outlier pushes the others
# down into the subnormal numbers, more than $448 / 2^{-6} = 28{,}672$ times below. Activations of language models have
# outliers. That is why FP8.
#
# ## Exercises
#
# Solutions are in [solutions/07_fp8_numbers.py](solutions/07_fp8_numbers.py). Please do not use blocklab for these.
#
# **7.1** (10 minutes, medium) Decode a byte (an `int` from 0 to 255) in e4m3fn; NaN is `float("nan")`; -0.0 and 0.0
# count as equal.


# %%
def decode_byte(byte):
    raise NotImplementedError


check("7.1", decode_byte)

# %% [markdown]
# <!-- fold 7.1 -->
#
# **7.2** (10 minutes, medium) Round an array to e4m3fn, any size, saturating: `round_by_hand` above knows no largest
# number. NaN stays NaN.


# %%
def round_e4m3(x):
    raise NotImplementedError


check("7.2", round_e4m3)

# %% [markdown]
# <!-- fold 7.2 -->
#
# **7.3** (15 minutes, hard) Encode one number (a `float`, positive or negative, of any size, not NaN) in e4m3fn,
# saturating. Return an `int` from 0 to 255. -0.0 counts as positive here.


# %%
def encode_number(x):
    raise NotImplementedError


check("7.3", encode_number)

# %% [markdown]
# <!-- fold 7.3 -->
#
# **7.4** (5 minutes, medium) What is the gap *above* a number of the grid: the distance to the next larger number? `x`
# is a positive number of e4m3fn below 448, as a `float`. (This distance is called *ulp*, unit in the last place.
# Differences between two programs are best counted in it.)


# %%
def gap_above(x):
    raise NotImplementedError


check("7.4", gap_above)

# %% [markdown]
# <!-- fold 7.4 -->
#
# ## Read on
#
# - `round_plain` and `decode_plain` in [blocklab/numerics/formats.py](../blocklab/numerics/formats.py): the
#   definitions; [rounding.py](../blocklab/numerics/rounding.py): the same for arrays, fast, by adding and subtracting
#   one number.
# - FP8 formats for deep learning: [arXiv 2209.05433](https://arxiv.org/abs/2209.05433).
# - Overflow to NaN in the wild: [ml_dtypes#400](https://github.com/jax-ml/ml_dtypes/issues/400); the wrong kind of
#   bytes: [vllm#12134](https://github.com/vllm-project/vllm/issues/12134).
#
# Next: [8. Scales and dots](08_scales_and_dots.ipynb).
