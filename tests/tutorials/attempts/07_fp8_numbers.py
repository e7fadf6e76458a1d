"""Wrong attempts at tutorial 7: (exercise, attempt, words of its hint)."""

import math

import numpy as np

NAN = math.nan


def parts(byte):
    return byte >> 7, (byte >> 3) & 15, byte & 7


def always_hidden(byte):
    s, E, m = parts(byte)
    if (E, m) == (15, 7):
        return NAN
    return (-1) ** s * (1 + m / 8) * 2.0 ** (E - 7)


def subnormal_too_low(byte):
    s, E, m = parts(byte)
    if (E, m) == (15, 7):
        return NAN
    return (-1) ** s * ((1 if E else 0) + m / 8) * 2.0 ** (E - 7)


def no_nan(byte):
    s, E, m = parts(byte)
    return (-1) ** s * (m * 2.0**-9 if E == 0 else (8 + m) * 2.0 ** (E - 10))


def no_sign(byte):
    return abs(no_nan(byte)) if byte & 127 != 127 else NAN


def bias_8(byte):
    return no_nan(byte) / 2 if byte & 127 != 127 else NAN


def no_bias(byte):
    return no_nan(byte) * 128 if byte & 127 != 127 else NAN


def five_bits(byte):
    s, E, m = byte >> 7, (byte >> 2) & 31, byte & 3
    if byte & 127 == 127:
        return NAN
    return (-1) ** s * (m / 4 * 2.0**-14 if E == 0 else (1 + m / 4) * 2.0 ** (E - 15))


def ieee(byte):
    return NAN if parts(byte)[1] == 15 else no_nan(byte)


def a_list(byte):
    return byte[0] >> 7


def on_grid(x, integer=np.rint, gaps=8, least=-6):
    e = np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-30))), least)
    return integer(x / 2.0**e * gaps) / gaps * 2.0**e


def no_largest(x):
    return np.where(np.isinf(x), x, on_grid(np.where(np.isinf(x), 1, x)))


def nan_above(x):
    y = no_largest(x)
    y[np.abs(y) > 448] = NAN
    return y


def no_subnormal(x):
    return on_grid(np.clip(x, -448, 448), least=-100)


def flushed(x):
    y = on_grid(np.clip(x, -448, 448))
    return y * (np.abs(y) >= 1 / 64)


def ties_away(x):
    return on_grid(np.clip(x, -448, 448), lambda v: np.copysign(np.floor(np.abs(v) + 0.5), v))


def ties_up(x):
    return on_grid(np.clip(x, -448, 448), lambda v: np.floor(v + 0.5))


def cut(x):
    return on_grid(np.clip(x, -448, 448), np.fix)


def down(x):
    return on_grid(np.clip(x, -448, 448), np.floor)


def sixteen_gaps(x):
    return on_grid(np.clip(x, -448, 448), gaps=16)


def four_gaps(x):
    return on_grid(np.clip(x, -448, 448), gaps=4)


def least_7(x):
    return on_grid(np.clip(x, -448, 448), least=-7)


def least_5(x):
    return on_grid(np.clip(x, -448, 448), least=-5)


def one_sided(x):
    return np.minimum(no_largest(x), 448)


def one_number(x):
    return 448.0 if x > 448 else x


def fields(x):
    """Exponent and significand in eighths, before any carry."""
    e = max(math.floor(math.log2(x)), -6) if x else -6
    return e, x / 2.0**e * 8


def sign(x):
    return 128 if x < 0 else 0


def carry_lost(x):
    a = min(abs(x), 448)
    e, eighths = fields(a)
    q = round(eighths)
    return sign(x) + (((e + 7) << 3) + (q & 7) if a >= 2**-6 else q & 7)


def whole(x, integer=round):
    e, eighths = fields(min(abs(x), 448))
    return (e + 6) * 8 + int(integer(eighths))


def not_saturating(x):
    if abs(x) > 464:
        return sign(x) + 127
    e, eighths = fields(abs(x))
    return sign(x) + (e + 6) * 8 + round(eighths)


def sign_forgotten(x):
    return whole(x)


def complement(x):
    return whole(x) if x >= 0 else (256 - whole(x)) % 256


def cut_off(x):
    return sign(x) + whole(x, math.floor)


def half_up(x):
    return sign(x) + whole(x, lambda v: math.floor(v + 0.5))


def only_normal(x):
    return sign(x) + (whole(x) if abs(x) >= 1 / 64 else 0)


def zero_as_one_half(x):
    a = min(abs(x), 448.0)
    exponent = max(math.frexp(a)[1] - 1, -6)
    return sign(x) + (exponent + 6) * 8 + round(a / 2.0 ** (exponent - 3))


def the_number(x):
    a = min(abs(x), 448)
    e, eighths = fields(a)
    return int(math.copysign(round(eighths) / 8 * 2.0**e, x))


def log_of_zero(x):
    return sign(x) + (math.floor(math.log2(abs(x))) + 7) * 8


def keeps_shrinking(x):
    return 2.0 ** math.floor(math.log2(x)) / 8


def half_a_gap(x):
    return 2.0 ** max(math.floor(math.log2(x)), -6) / 16


def frexp_as_it_is(x):
    return 2.0 ** max(math.frexp(x)[1] - 3, -8)


def below(x):
    grid = [m * 2.0**-9 for m in range(8)] + [(8 + m) / 8 * 2.0**e for e in range(-6, 9) for m in range(8)]
    return x - grid[grid.index(x) - 1]


def an_eighth(x):
    return x * 0.125


def of_bfloat16(x):
    return 2.0 ** (max(math.floor(math.log2(x)), -6) - 7)


def of_e5m2(x):
    return 2.0 ** (math.floor(math.log2(x)) - 2)


def two_complement(byte):
    return no_nan(byte) if byte < 128 else -no_nan(256 - byte)


def nan_is_448(byte):
    return min(max(no_nan(byte), -448), 448)


def through_float32(x):
    return on_grid(np.clip(np.float32(x), -448, 448).astype(np.float64))


def nan_to_numbers(x):
    return on_grid(np.clip(np.nan_to_num(x), -448, 448))


def no_negative_zero(x):
    code = sign(x) + whole(x)
    return 0 if code == 128 else code


def as_a_float(x):
    return float(sign(x) + whole(x))


def code_of_float32(x):
    return sign(x) + whole(float(np.float32(x)))


def relative(x):
    return 2.0**-3


def smallest(x):
    return 2.0**-9


def of_float32(x):
    return float(np.spacing(np.float32(x)))


def fields_by_division(byte):
    sign, rest = divmod(byte, 128)
    E, m = divmod(rest, 8)
    if rest == 127:
        return NAN
    return (1 - 2 * sign) * (m + 8 * (E > 0)) * 2.0 ** (max(E, 1) - 10)


def by_grid(x):
    grid = np.array([fields_by_division(code) for code in range(127)])
    a = np.minimum(np.abs(x), 448)
    place = np.clip(np.searchsorted(grid, a), 1, 126)
    low, high = grid[place - 1], grid[place]
    up = (a - low > high - a) | ((a - low == high - a) & (place % 2 == 0))
    return np.where(np.isnan(x), NAN, np.copysign(np.where(up, high, low), x))


def code_by_search(x):
    grid = np.array([fields_by_division(code) for code in range(127)])
    code = int(np.flatnonzero(grid == abs(by_grid(np.array([x]))[0]))[0])
    return code + 128 if x < 0 else code


def next_less_this(x):
    grid = [fields_by_division(code) for code in range(127)]
    return grid[grid.index(x) + 1] - x


WRONG = [
    ("7.1", always_hidden, "no hidden 1"),
    ("7.1", subnormal_too_low, "the exponent of field 1"),
    ("7.1", no_nan, "NaN, not 480"),
    ("7.1", no_sign, "first bit is the sign"),
    ("7.1", bias_8, "the bias is 7"),
    ("7.1", no_bias, "subtract the bias"),
    ("7.1", five_bits, "this is e5m2"),
    ("7.1", ieee, "only 0x7F and 0xFF"),
    ("7.1", a_list, "is the exponent field"),
    ("7.2", no_largest, "must become 448"),
    ("7.2", nan_above, "the other convention"),
    ("7.2", no_subnormal, "subnormal numbers are missing"),
    ("7.2", flushed, "into 0"),
    ("7.2", ties_away, "not away from zero"),
    ("7.2", ties_up, "not up"),
    ("7.2", cut, "cuts off"),
    ("7.2", down, "rounds down"),
    ("7.2", sixteen_gaps, "twice too fine"),
    ("7.2", four_gaps, "twice too coarse"),
    ("7.2", least_7, "smallest normal number"),
    ("7.2", least_5, "smallest normal number"),
    ("7.2", one_sided, "negative numbers overflow too"),
    ("7.2", one_number, "`if` does not"),
    ("7.3", carry_lost, "the carry is lost"),
    ("7.3", not_saturating, "0x7F is NaN"),
    ("7.3", sign_forgotten, "sign is missing"),
    ("7.3", complement, "two's complement"),
    ("7.3", cut_off, "cuts off"),
    ("7.3", half_up, "goes to the even number"),
    ("7.3", only_normal, "subnormal numbers are missing"),
    ("7.3", zero_as_one_half, "the code of 0 is 0"),
    ("7.3", the_number, "the rounded number itself"),
    ("7.3", log_of_zero, "math.frexp(x) gives"),
    ("7.4", keeps_shrinking, "does not shrink"),
    ("7.4", half_a_gap, "half the gap"),
    ("7.4", frexp_as_it_is, "twice too large"),
    ("7.4", below, "the gap below"),
    ("7.4", an_eighth, "the same all over a binade"),
    ("7.4", of_bfloat16, "bfloat16's gap"),
    ("7.4", of_e5m2, "e5m2's gap"),
    ("7.1", two_complement, "the smallest case that fails"),
    ("7.1", nan_is_448, "the smallest case that fails"),
    ("7.2", through_float32, "rounds to float32 first"),
    ("7.2", nan_to_numbers, "it stays NaN"),
    ("7.3", no_negative_zero, "whose code is 0x80"),
    ("7.3", as_a_float, "they are float64: return int64"),
    ("7.3", code_of_float32, "the smallest case that fails"),
    ("7.4", relative, "the smallest case that fails"),
    ("7.4", smallest, "the smallest case that fails"),
    ("7.4", of_float32, "the smallest case that fails"),
]

RIGHT = [
    ("7.1", fields_by_division),
    ("7.2", by_grid),
    ("7.3", code_by_search),
    ("7.4", next_less_this),
]
