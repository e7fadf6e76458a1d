"""Wrong attempts at tutorial 8: (exercise, attempt, words of its hint)."""

import numpy as np

from blocklab.numerics import round_to


def grouped(x, group):
    return x.reshape(len(x), -1, group)


def finish(x, group, scale):
    values = round_to(grouped(x, group) / scale, "e4m3fn")
    return values.reshape(x.shape), np.broadcast_to(scale, (*grouped(x, group).shape[:2], 1))[..., 0]


def largest(x, group):
    return np.abs(grouped(x, group)).max(-1, keepdims=True)


def no_floor(x, group):
    return finish(x, group, largest(x, group) / 448)


def floor_upside_down(x, group):
    return finish(x, group, np.minimum(largest(x, group), 1e-4) / 448)


def floor_added(x, group):
    return finish(x, group, (largest(x, group) + 1e-4) / 448)


def zeros_only(x, group):
    scale = largest(x, group) / 448
    scale[scale == 0] = 1
    return finish(x, group, scale)


def largest_number(x, group):
    return finish(x, group, np.maximum(grouped(x, group).max(-1, keepdims=True), 1e-4) / 448)


def one_for_a_token(x, group):
    return finish(x, group, np.maximum(np.abs(x).max(-1)[:, None, None], 1e-4) / 448)


def one_for_all(x, group):
    return finish(x, group, np.full((1, 1, 1), max(np.abs(x).max(), 1e-4) / 448))


def one_for_a_column(x, group):
    return finish(x, group, np.maximum(largest(x, group).max(0, keepdims=True), 1e-4) / 448)


def inverse(x, group):
    factor = 448 / np.maximum(largest(x, group), 1e-4)
    return round_to(grouped(x, group) * factor, "e4m3fn").reshape(x.shape), factor[..., 0]


def to_240(x, group):
    return finish(x, group, np.maximum(largest(x, group), 1e-4) / 240)


def to_one(x, group):
    return finish(x, group, np.maximum(largest(x, group), 1e-4))


def unrounded(x, group):
    scale = np.maximum(largest(x, group), 1e-4) / 448
    return (grouped(x, group) / scale).reshape(x.shape), scale[..., 0]


def multiplied_back(x, group):
    scale = np.maximum(largest(x, group), 1e-4) / 448
    return (round_to(grouped(x, group) / scale, "e4m3fn") * scale).reshape(x.shape), scale[..., 0]


def without_an_axis(x, group):
    scale = np.maximum(np.abs(x.reshape(-1, group)).max(-1), 1e-4) / 448
    return round_to(x / scale, "e4m3fn"), scale


def repeated(scale, rows, columns):
    return scale.repeat(rows, 0).repeat(columns, 1)


def rows_over_scales(values, scale, block):
    (N, K), (n, k) = values.shape, scale.shape
    i, j = np.minimum(np.arange(N) // (N // n), n - 1), np.minimum(np.arange(K) // (K // k), k - 1)
    return values * scale[np.ix_(i, j)]


def rows_over_scales_rounded_up(values, scale, block):
    (N, K), (n, k) = values.shape, scale.shape
    return values * repeated(scale, -(-N // n), -(-K // k))[:N, :K]


def whole_blocks(values, scale, block):
    out = values.copy()
    for i in range(len(values) // block):
        for j in range(scale.shape[1]):
            out[i * block : (i + 1) * block, j * block : (j + 1) * block] *= scale[i, j]
    return out


def only_whole_blocks(values, scale, block):
    N, K = values.shape[0] // block, values.shape[1] // block
    return values[: N * block, : K * block] * repeated(scale[:N, :K], block, block)


def tiles(values, scale, block):
    return values * np.tile(scale, (block, block))[: values.shape[0], : values.shape[1]]


def divided(values, scale, block):
    return values / repeated(scale, block, block)[: values.shape[0], : values.shape[1]]


def a_row_each(values, scale, block):
    i = np.minimum(np.arange(len(values)), len(scale) - 1)
    return values * repeated(scale[i], 1, block)[:, : values.shape[1]]


def a_column_each(values, scale, block):
    j = np.minimum(np.arange(values.shape[1]), scale.shape[1] - 1)
    return values * repeated(scale[:, j], block, 1)[: len(values)]


def not_cut(values, scale, block):
    return values * repeated(scale, block, block)


def logarithm(scale):
    return np.exp2(np.ceil(np.log2(scale)))


def down(scale):
    return 2.0 ** np.floor(np.log2(scale.astype(float)))


def nearest(scale):
    return 2.0 ** np.round(np.log2(scale.astype(float)))


def frexp_alone(scale):
    return 2.0 ** np.frexp(scale)[1]


def exponents(scale):
    return np.ceil(np.log2(scale.astype(float)))


def one_at_a_time(scale):
    power = 1.0
    while power < scale:
        power *= 2
    return power


def no_promotion(a, w, promote, step):
    register = 0.0
    for k in range(0, len(a), 32):
        register = step(register, a[k : k + 32], w[k : k + 32])
    return register


def register_kept(a, w, promote, step):
    total, register = np.float32(0), 0.0
    for k in range(0, len(a), 32):
        register = step(register, a[k : k + 32], w[k : k + 32])
        if (k + 32) % promote == 0 or k + 32 >= len(a):
            total += np.float32(register)
    return total


def last_stretch_lost(a, w, promote, step):
    total, register = np.float32(0), 0.0
    for k in range(0, len(a), 32):
        register = step(register, a[k : k + 32], w[k : k + 32])
        if (k + 32) % promote == 0 and k + 32 <= len(a):
            total, register = total + np.float32(register), 0.0
    return total


def float64_outside(a, w, promote, step):
    total = 0.0
    for k in range(0, len(a), promote):
        total += no_promotion(a[k : k + promote], w[k : k + promote], promote, step)
    return total


def all_at_once(a, w, promote, step):
    total = np.float32(0)
    for k in range(0, len(a), promote):
        total += np.float32(step(0.0, a[k : k + promote], w[k : k + promote]))
    return total


def after_every_step(a, w, promote, step):
    total = np.float32(0)
    for k in range(0, len(a), 32):
        total += np.float32(step(0.0, a[k : k + 32], w[k : k + 32]))
    return total


def exact(a, w, promote, step):
    return (a * w).sum()


def step_without_register(a, w, promote, step):
    return sum(step(a[k : k + 32], w[k : k + 32]) for k in range(0, len(a), 32))


def floor_of_the_scale(x, group):
    return finish(x, group, np.maximum(largest(x, group) / 448, 1e-4))


def rms_for_amax(x, group):
    size = np.sqrt(np.mean(grouped(x, group) ** 2, -1, keepdims=True))
    return finish(x, group, np.maximum(size, 1e-4) / 448)


def scales_the_other_way(values, scale, block):
    return values * repeated(scale.T, block, block)[: values.shape[0], : values.shape[1]]


def first_scale(values, scale, block):
    return values * scale[0, 0]


def twice_multiplied(values, scale, block):
    full = repeated(scale, block, block)[: values.shape[0], : values.shape[1]]
    return values * full * full


def always_doubled(scale):
    return 2.0 ** (np.floor(np.log2(scale.astype(float))) + 1)


def rounded_scale(scale):
    return np.round(scale)


def power_of_ten(scale):
    return 10.0 ** np.ceil(np.log10(scale.astype(float)))


def the_scale(scale):
    return scale * 1.0


def inverse_power(scale):
    return 2.0 ** -np.ceil(np.log2(scale.astype(float)))


def halved_stretches(a, w, promote, step):
    return promoted(a, w, promote // 2, step)


def backwards(a, w, promote, step):
    return promoted(a[::-1], w[::-1], promote, step)


def magnitude_of_scales(a, w, promote, step):
    return 2 * promoted(a, w, promote, step)


def promoted(a, w, promote, step):
    total = np.float32(0)
    while len(a):
        total += np.float32(no_promotion(a[:promote], w[:promote], promote, step))
        a, w = a[promote:], w[promote:]
    return total


def in_float64(x, group):
    values, scale = finish(x.astype(float), group, np.maximum(largest(x.astype(float), group), 1e-4) / 448)
    return values, scale


def by_kron(values, scale, block):
    return values * np.kron(scale, np.ones((block, block)))[: values.shape[0], : values.shape[1]]


def by_loops(values, scale, block):
    out = np.empty_like(values)
    for i, j in np.ndindex(*values.shape):
        out[i, j] = values[i, j] * scale[i // block, j // block]
    return out


def by_float64_logarithm(scale):
    return np.exp2(np.ceil(np.log2(scale.astype(np.float64))))


def by_bits(scale):
    return ((scale.view(np.int32) + 0x7FFFFF) & 0x7F800000).view(np.float32)


WRONG = [
    ("8.1", no_floor, "0 / 0"),
    ("8.1", floor_upside_down, "the least amax"),
    ("8.1", floor_added, "not added"),
    ("8.1", zeros_only, "very small amax"),
    ("8.1", largest_number, "negative numbers count"),
    ("8.1", one_for_a_token, "one scale for each token"),
    ("8.1", one_for_all, "one scale for everything"),
    ("8.1", one_for_a_column, "tokens do not share"),
    ("8.1", inverse, "what multiplies back"),
    ("8.1", to_240, "e4m3fnuz"),
    ("8.1", to_one, "not on 1"),
    ("8.1", unrounded, "not on the grid"),
    ("8.1", multiplied_back, "before they are multiplied back"),
    ("8.1", without_an_axis, "keepdims=True"),
    ("8.2", rows_over_scales, "576 // 5"),
    ("8.2", rows_over_scales_rounded_up, "is 116"),
    ("8.2", whole_blocks, "has a scale too"),
    ("8.2", only_whole_blocks, "as many rows as the values"),
    ("8.2", tiles, "side by side"),
    ("8.2", divided, "the scale multiplies"),
    ("8.2", a_row_each, "rows share scales"),
    ("8.2", a_column_each, "columns share scales"),
    ("8.2", not_cut, "cut what is too much"),
    ("8.3", logarithm, "the float32 logarithm"),
    ("8.3", down, "rounds down"),
    ("8.3", nearest, "nearest power"),
    ("8.3", frexp_alone, "this doubles it"),
    ("8.3", exponents, "return the powers"),
    ("8.3", one_at_a_time, "np.frexp(scale) gives"),
    ("8.4", no_promotion, "never promoted"),
    ("8.4", register_kept, "counted twice"),
    ("8.4", last_stretch_lost, "the last stretch is missing"),
    ("8.4", float64_outside, "the sum outside is float32"),
    ("8.4", all_at_once, "32 products at most"),
    ("8.4", after_every_step, "after every step of 32"),
    ("8.4", exact, "the exact dot"),
    ("8.4", step_without_register, "returns the new register"),
    ("8.1", floor_of_the_scale, "before it is divided by 448"),
    ("8.1", rms_for_amax, "the smallest case that fails"),
    ("8.2", scales_the_other_way, "could not be broadcast together"),
    ("8.2", first_scale, "the smallest case that fails"),
    ("8.2", twice_multiplied, "the smallest case that fails"),
    ("8.3", always_doubled, "this doubles it"),
    ("8.3", rounded_scale, "the smallest case that fails"),
    ("8.3", power_of_ten, "the smallest case that fails"),
    ("8.3", the_scale, "the smallest case that fails"),
    ("8.3", inverse_power, "the smallest case that fails"),
    ("8.4", halved_stretches, "the smallest case that fails"),
    ("8.4", backwards, "the smallest case that fails"),
    ("8.4", magnitude_of_scales, "the smallest case that fails"),
]

RIGHT = [
    ("8.1", in_float64),
    ("8.2", by_kron),
    ("8.2", by_loops),
    ("8.3", by_float64_logarithm),
    ("8.3", by_bits),
    ("8.4", promoted),
]
