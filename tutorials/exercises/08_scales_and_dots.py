"""Exercises of tutorial 8: quantise in groups, dequantise blocks, powers of two, a promoted dot."""

import numpy as np
from checks import Exercise, Turn

from blocklab.numerics import round_to, tensor_core_dot


def e4m3(x):
    return round_to(np.asarray(x, np.float64), "e4m3fn")


def quantized(x, group, *, floor=np.maximum, least=1e-4, size=np.abs, axis=-1, top=448.0, pick=np.max, invert=False):
    T, K = x.shape
    groups = x.reshape(T, K // group, group).astype(np.float64)
    amax = pick(size(groups), axis=axis, keepdims=True)
    amax = floor(amax, least) if least else amax
    s = np.broadcast_to(amax / top, (T, K // group, 1))
    values = e4m3(groups / s)
    return values.reshape(T, K), 1 / s[..., 0] if invert else s[..., 0]


def not_rounded(x, group):
    _, s = quantized(x, group)
    return x / np.repeat(s, group, axis=1), s


def dequantized_too(x, group):
    values, s = quantized(x, group)
    return values * np.repeat(s, group, axis=1), s


def per_token(x, group, axis=(-2, -1)):
    return quantized(x, group, axis=axis)


def spread(scale, N, K, rows, columns):
    return scale[np.minimum(np.arange(N) // rows, len(scale) - 1)][
        :, np.minimum(np.arange(K) // columns, scale.shape[1] - 1)
    ]


def dequantized(v, s, b):
    return v * spread(s, *v.shape, b, b)


def inferred(v, s, b):
    """Block sizes from the shapes: 576 // 5 = 115."""
    return v * spread(s, *v.shape, v.shape[0] // s.shape[0], v.shape[1] // s.shape[1])


def inferred_up(v, s, b):
    return v * spread(s, *v.shape, -(-v.shape[0] // s.shape[0]), -(-v.shape[1] // s.shape[1]))


def last_row_lost(v, s, b):
    full = spread(s, *v.shape, b, b)
    full[v.shape[0] // b * b :] = 1
    return v * full


def whole_blocks_only(v, s, b):
    N, K = (n // b * b for n in v.shape)
    return v[:N, :K] * spread(s, N, K, b, b)


def tiled(v, s, b):
    full = np.tile(s, (b, b))
    return v * full[: v.shape[0], : v.shape[1]]


def power(s, round_=np.ceil):
    return 2.0 ** round_(np.log2(np.asarray(s, np.float64)))


def power_by_float32(s):
    return 2.0 ** np.ceil(np.log2(np.asarray(s, np.float32))).astype(np.float64)


def next_power(s):
    return 2.0 ** np.frexp(s)[1].astype(np.float64)


def dot(a, w, promote, step, *, promotes=True, carry=False, wide=False, stop=False):
    total, register = 0.0 if wide else np.float32(0), 0.0
    end = len(a) // promote * promote if stop else len(a)
    for start in range(0, end, promote):
        if not carry and promotes:
            register = 0.0
        for k in range(start, min(start + promote, end), 32):
            register = step(register, a[k : k + 32], w[k : k + 32])
        if promotes:
            total = total + register if wide else np.float32(total + np.float32(register))
    return float(total) if promotes else register


def one_step_a_stretch(a, w, promote, step):
    total = np.float32(0)
    for k in range(0, len(a), promote):
        total = np.float32(total + np.float32(step(0.0, a[k : k + promote], w[k : k + promote])))
    return float(total)


def each_step(a, w, promote, step):
    return dot(a, w, 32, step)


def core(register, a, w):
    """The step of Hopper; more than 32 products at once are aligned to one exponent, as `hopper_step` would."""
    if len(a) <= 32:
        return float(tensor_core_dot(a, w, c=register))
    terms = np.append(a * w, register)
    exponents = np.append(
        np.maximum(np.frexp(a)[1] - 1, -6) + np.maximum(np.frexp(w)[1] - 1, -6),
        np.maximum(np.frexp(register)[1] - 1, -126),
    )
    if not terms.any():
        return 0.0
    unit = 2.0 ** (exponents[terms != 0].max() - 13)
    total = np.trunc(terms / unit).sum() * unit
    last = 2.0 ** (np.frexp(total)[1] - 14.0)
    return float(np.trunc(total / last) * last)


_rng = np.random.default_rng(8)


def _activations(T, K, group):
    x = _rng.standard_normal((T, K)) * 2.0 ** _rng.integers(-6, 6, (T, K // group)).repeat(group, axis=1)
    x[0, :group] = 0
    x[1, group : 2 * group] = -1e-6 * np.abs(x[1, group : 2 * group])
    x[2, 0] = -50 * np.abs(x[2, :group]).max()
    return x.astype(np.float32)


def _weights(N, K, b):
    values = e4m3(_rng.standard_normal((N, K)) * 100)
    return values, 2.0 ** _rng.permutation(-(-N // b) * -(-K // b)).reshape(-(-N // b), -1), b


_scales = np.exp(_rng.uniform(-20, 20, 60)).astype(np.float32)
_powers = np.float32(2.0) ** np.arange(-30, 30, dtype=np.float32)
_above = np.nextafter(_powers, np.float32(np.inf))


def _pair(K):
    """Positive numbers that become small, so that float32 sums are rounded and the register swallows products."""
    return tuple(np.abs(e4m3(_rng.standard_normal(K) * 100 * 2.0 ** -(np.arange(K) // 64))) for _ in range(2))


EXERCISES = [
    Exercise(
        "8.1",
        "quantize_groups",
        right=quantized,
        cases=[(_activations(5, 24, 8), 8), (_activations(3, 256, 128), 128), (_activations(3, 4, 2), 2)],
        turns=(
            Turn(
                lambda x, g: quantized(x, g, least=0),
                "a group of zeros gives 0 / 0. Use the larger of amax and 1e-4.",
            ),
            Turn(
                lambda x, g: quantized(x, g, floor=np.minimum),
                "the floor is the least amax: take the larger of the two, np.maximum.",
            ),
            Turn(
                lambda x, g: quantized(x, g, floor=lambda a, b: a + b),
                "the floor replaces a smaller amax. It is not added: np.maximum.",
            ),
            Turn(
                lambda x, g: quantized(x, g, floor=lambda a, b: np.where(a == 0, 448.0, a)),
                "a group of zeros is safe, but very small amax must be replaced by 1e-4 too: np.maximum.",
            ),
            Turn(
                lambda x, g: quantized(x, g, floor=lambda a, b: np.maximum(a, 448 * b)),
                "the floor 1e-4 is that of the amax, before it is divided by 448; here the scale has it.",
            ),
            Turn(
                lambda x, g: quantized(x, g, size=lambda v: v),
                "amax is the largest magnitude: negative numbers count too.",
            ),
            Turn(lambda x, g: per_token(x, g), "this is one scale for each token. Each group of channels has its own."),
            Turn(
                lambda x, g: per_token(x, g, axis=None),
                "this is one scale for everything. Each group of channels of each token has its own.",
            ),
            Turn(
                lambda x, g: per_token(x, g, axis=(0, 2)),
                "tokens do not share scales: take the maximum over the channels of one group only.",
            ),
            Turn(
                lambda x, g: quantized(x, g, invert=True),
                "the scale is what multiplies back: amax / 448, not 448 / amax.",
            ),
            Turn(
                lambda x, g: quantized(x, g, top=240.0),
                "240 is the largest number of e4m3fnuz. Here it is 448.",
            ),
            Turn(lambda x, g: quantized(x, g, top=1.0), "the largest magnitude should land on 448, not on 1."),
            Turn(not_rounded, "the values are not on the grid yet: round_to(..., 'e4m3fn')."),
            Turn(dequantized_too, "return the values before they are multiplied back."),
        ),
        well_done="This is how every input of every linear layer of the model is prepared.",
        hint="x.reshape(T, K // group, group) gives the groups an axis. The amax over it, at least 1e-4, over "
        "448, is the scale.",
        on_error="x.reshape(T, K // group, group) gives the groups an axis; keepdims=True helps.",
        tolerance=1e-6,
    ),
    Exercise(
        "8.2",
        "dequantize_weights",
        right=dequantized,
        cases=[_weights(20, 24, 8), _weights(9, 6, 4), _weights(16, 16, 8), _weights(3, 4, 2)],
        turns=(
            Turn(
                inferred,
                "the block size was computed from the shapes: 576 // 5 = 115. It is an argument; the last block is"
                " just short.",
            ),
            Turn(
                inferred_up,
                "the block size was computed from the shapes: 576 / 5, rounded up, is 116. It is an argument; the last"
                " block is just short.",
            ),
            Turn(last_row_lost, "the last, short block has a scale too."),
            Turn(whole_blocks_only, "the last, short block is missing: the result has as many rows as the values."),
            Turn(tiled, "this repeats the whole grid side by side. Repeat each scale for its block: np.repeat."),
            Turn(
                lambda v, s, b: v / spread(s, *v.shape, b, b),
                "the scale multiplies, although files call it `weight_scale_inv`.",
            ),
            Turn(
                lambda v, s, b: v * spread(s, *v.shape, 1, b),
                "rows share scales too: a block has `block` rows.",
            ),
            Turn(
                lambda v, s, b: v * spread(s, *v.shape, b, 1),
                "columns share scales too: a block has `block` columns.",
            ),
        ),
        well_done="576 rows and 5 scales are no problem.",
        hint="Make an array of scales as large as the weights: repeat each scale `block` times along both "
        "axes, and cut off what is too much.",
        on_error="Repeat each scale `block` times along both axes, and cut what is too much: [:N, :K].",
    ),
    Exercise(
        "8.3",
        "up_to_power_of_two",
        right=power,
        cases=[(_scales,), (_powers,), (_above,), (np.float32([3, 4, 5, 0.25]),), (np.float32([0.1]),)],
        turns=(
            Turn(
                power_by_float32,
                "just above a power of two, the float32 logarithm is rounded to a whole number. Use np.frexp, or"
                " float64 for the logarithm.",
            ),
            Turn(lambda s: power(s, np.floor), "this rounds down: amax / scale could be 895."),
            Turn(lambda s: power(s, np.rint), "this rounds to the nearest power, which may be below. Always up."),
            Turn(next_power, "a power of two must stay what it is; this doubles it. (np.frexp(4) is (0.5, 3).)"),
            Turn(
                lambda s: np.log2(power(s)),
                "these are the exponents: return the powers, 2.0 ** exponent.",
            ),
        ),
        well_done="In e8m0 these are stored as one byte: the exponent plus 127.",
        hint="np.frexp(scale) gives f and e with scale = f * 2^e and f from 1/2 to 1, 1 excluded. Which power "
        "is the next one up, if f is 1/2 and if it is not?",
        on_error="np.frexp(scale) gives fractions from 1/2 to 1 and exponents.",
        tolerance=0.0,
    ),
    Exercise(
        "8.4",
        "promoted_dot",
        right=dot,
        cases=[(*_pair(640), 128, core), (*_pair(352), 64, core), (*_pair(1000), 256, core)],
        turns=(
            Turn(
                lambda *a: dot(*a, promotes=False),
                "the register is never promoted. After every `promote` products add it to the sum and start from 0.",
            ),
            Turn(
                lambda *a: dot(*a, carry=True),
                "the register must start again from 0 after each promotion: its products are counted twice.",
            ),
            Turn(lambda *a: dot(*a, stop=True), "the last stretch is missing: it may be shorter than `promote`."),
            Turn(
                lambda *a: dot(*a, wide=True),
                "the sum outside is float32: round it after every addition, np.float32(total + register).",
            ),
            Turn(
                one_step_a_stretch,
                "a step takes 32 products at most. A stretch of `promote` products is several steps.",
            ),
            Turn(each_step, "this promotes after every step of 32. Promote after `promote` products."),
            Turn(
                lambda a, w, promote, step: float(np.dot(a, w)),
                "this is the exact dot: let `step` add the products up.",
            ),
        ),
        well_done="With promote=128 this is the inner loop of the recipe `hopper-fp8`.",
        hint="Two loops: the outer one over stretches of `promote` products, starting a register at 0.0; the "
        "inner one over steps of 32 within the stretch.",
        on_error="step(register, a[k : k + 32], w[k : k + 32]) returns the new register; start from 0.0.",
        tolerance=0.0,
    ),
]
