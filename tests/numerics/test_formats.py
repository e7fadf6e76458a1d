"""Rounding, codes and values, against ml_dtypes, the plain definition, and numbers worked out by hand."""

import dataclasses
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from blocklab.errors import InputError
from blocklab.numerics import (
    FORMATS,
    Format,
    decode,
    decode_plain,
    dequantize,
    dequantize_nvfp4,
    dot,
    encode,
    fp8_matmul,
    quantize,
    quantize_nvfp4,
    round_plain,
    round_to,
    tensor_core_dot,
)
from blocklab.numerics.rounding import split_into

ORACLES = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
RULES = [(name, rule) for name in FORMATS for rule in ("saturate", "nan") if (name, rule) != ("e2m1", "nan")]
NAN, INF = math.nan, math.inf


def same(a, b):
    """Equal bits; any NaN equals any NaN."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype
    word = np.uint32 if a.dtype == np.float32 else np.uint64
    return (a.view(word) == b.view(word)) | (np.isnan(a) & np.isnan(b))


def all_codes(name):
    bits = FORMATS[name].bits
    return np.arange(1 << bits, dtype=np.uint8 if bits <= 8 else np.uint16)


def finite_values(name):
    """Return every finite value from 0 up, in order, as float64."""
    if name == "tf32":  # every value of the first and last exponents, and some in between
        fields = np.concatenate([np.arange(0, 4096), np.arange(130_000, 134_000), np.arange(258_000, 261_120)])
        return (fields.astype(np.uint32) << 13).view(np.float32).astype(np.float64)
    values = decode(all_codes(name), name)
    values = values[np.isfinite(values)].astype(np.float64)
    return np.unique(values[np.isfinite(values) & (values >= 0)])


def patterns(count, seed=0):
    """Return float32 values of all exponents, the special ones of every format among them."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 1 << 32, count // 2, dtype=np.uint32)
    near = rng.integers(100 << 23, 145 << 23, count // 2, dtype=np.uint32)  # 2^-27 to 2^18
    near[::2] &= 0xFFF80000  # ties and their like
    near |= rng.integers(0, 2, count // 2, dtype=np.uint32) << 31
    special = np.array([0, 1, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7F7FFFFF, 0x007FFFFF], np.uint32)
    return np.concatenate([anything, near, special, special | 0x80000000]).view(np.float32)


def expected(x, name, rule):
    """Return what ml_dtypes makes of x, clipped first for "saturate"."""
    fmt = FORMATS[name]
    with np.errstate(all="ignore"):
        if name == "e8m0":  # ml_dtypes misrounds float32 subnormals, and has NaN for zero
            power = np.where(x < 1.5 * 2.0**-127, np.float32(2.0**-127), np.float32(2.0**-126))
            x = np.where((x > 0) & (x < 2.0**-126), power, x)
            if rule == "saturate":
                x = np.where(x == 0, np.float32(2.0**-127), np.minimum(x, np.float32(fmt.max)))
        elif rule == "saturate":
            x = np.clip(x, -fmt.max, fmt.max)
        return x.astype(ORACLES[name])


@pytest.mark.parametrize("name", ORACLES)
def test_every_code_is_the_value_that_ml_dtypes_reads(name):
    codes = all_codes(name)
    theirs = codes.view(ORACLES[name]).astype(np.float32)
    plain = np.array([decode_plain(int(c), name) for c in codes], np.float32)
    assert same(decode(codes, name), theirs).all()
    assert same(plain, theirs).all()


@pytest.mark.parametrize("name", ORACLES)
def test_every_code_survives_a_round_trip(name):
    codes = all_codes(name)
    values = decode(codes, name)
    rule = "saturate" if name == "e2m1" else "nan"
    again = encode(values, name, rule)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(again[number], codes[number])
    assert (again[~number] == FORMATS[name].nan_code).all()
    assert same(round_to(values, name, rule), values).all()
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = values.astype(np.float64)
    np.testing.assert_array_equal(encode(wide, name, rule), again)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORMATS)
def test_midpoints_go_to_even_and_their_neighbours_to_the_nearer(name, dtype):
    values = finite_values(name)
    neighbours = values[1:] - values[:-1] < 0.75 * values[1:] if name == "tf32" else slice(None)
    low, high = values[:-1][neighbours], values[1:][neighbours]
    middle = low + (high - low) / 2
    even = np.array([a if even_significand(a, name) else b for a, b in zip(low, high, strict=True)])
    if dtype is np.float32:  # a midpoint of tf32's or bfloat16's subnormals may not be a float32
        kept = middle == middle.astype(np.float32).astype(np.float64)
        low, high, middle, even = (v[kept] for v in (low, high, middle, even))
    for sign in (1, -1) if FORMATS[name].signed else (1,):
        for point, want in (
            (middle, even),
            (np.nextafter(middle.astype(dtype), dtype(0)), low),
            (np.nextafter(middle.astype(dtype), dtype(np.inf)), high),
        ):
            got = round_to((sign * point).astype(dtype), name)
            np.testing.assert_array_equal(got, (sign * want).astype(dtype))


def even_significand(value, name):
    fmt = FORMATS[name]
    exponent = max(math.frexp(value)[1] - 1, fmt.emin) if value else fmt.emin
    return Fraction(value) / Fraction(2) ** (exponent - fmt.fraction_bits) % 2 == 0


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("e4m3fn", 448.0, 448.0),
        ("e4m3fn", 464.0, 448.0),
        ("e4m3fn", 1e4, 448.0),
        ("e4m3fn", -INF, -448.0),
        ("e4m3fn", NAN, NAN),
        ("e4m3fn", 2.0**-9, 2.0**-9),
        ("e4m3fn", 2.0**-10, 0.0),
        ("e4m3fn", -(2.0**-10), -0.0),
        ("e4m3fn", 1.5 * 2.0**-9, 2.0**-8),
        ("e4m3fn", 4.25, 4.0),
        ("e4m3fn", 4.75, 5.0),
        ("e4m3fn", 124.3, 128.0),
        ("e4m3fn", 1.0625, 1.0),
        ("e4m3fn", 1.0625 + 2.0**-40, 1.125),
        ("e4m3fn", -1.0625 - 2.0**-40, -1.125),
        ("e5m2", 61439.0, 57344.0),
        ("e5m2", 61440.0, 57344.0),
        ("e5m2", 2.0**-17, 0.0),
        ("e4m3fnuz", 248.0, 240.0),
        ("e4m3fnuz", -1e-9, 0.0),
        ("e2m1", 5.0, 4.0),
        ("e2m1", 0.25, 0.0),
        ("e2m1", -0.75, -1.0),
        ("e2m1", 1e9, 6.0),
        ("e8m0", 1.5, 2.0),
        ("e8m0", 1.4999, 1.0),
        ("e8m0", 0.0, 2.0**-127),
        ("e8m0", -1.0, NAN),
        ("bfloat16", 1 + 2.0**-8, 1.0),
        ("bfloat16", 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-7),
        ("bfloat16", 3.4e38, INF),
        ("bfloat16", 2.0**-134, 0.0),
        ("float16", 65519.0, 65504.0),
        ("float16", 65520.0, INF),
        ("tf32", 1 + 2.0**-11, 1.0),
        ("tf32", 1 + 3 * 2.0**-11, 1 + 2.0**-9),
    ],
)
def test_values_by_hand(name, x, want):
    wide = np.array([x])
    assert same(round_to(wide, name), np.array([want])).all()
    assert same(np.array([round_plain(x, name)]), np.array([want])).all()
    if float(np.float32(x)) == x or math.isnan(x):
        assert same(round_to(wide.astype(np.float32), name), np.array([want], np.float32)).all()


def test_overflow_is_a_choice():
    above = np.nextafter(np.float32([464, -464]), np.float32([INF, -INF]))
    assert round_to(above, "e4m3fn").tolist() == [448, -448]
    assert np.isnan(round_to(above, "e4m3fn", overflow="nan")).all()
    assert round_to(np.float32([464]), "e4m3fn", overflow="nan").tolist() == [448]
    assert encode(above, "e4m3fn", overflow="nan").tolist() == [0x7F, 0x7F]
    assert round_to(np.float32([61440, -1e9]), "e5m2", overflow="nan").tolist() == [INF, -INF]
    assert encode(np.float32([61440, -1e9, INF]), "e5m2", overflow="nan").tolist() == [0x7C, 0xFC, 0x7C]
    assert encode(np.float32([61440, -1e9, INF]), "e5m2").tolist() == [0x7B, 0xFB, 0x7B]
    assert round_to(np.float32([3.4e38, -INF]), "bfloat16", overflow="saturate").tolist() == [
        FORMATS["bfloat16"].max,
        -FORMATS["bfloat16"].max,
    ]


def test_codes_by_hand():
    x = np.float32([0, -0.0, 2.0**-9, 2.0**-6, 1, -1, 448, 1e9, NAN])
    assert encode(x, "e4m3fn").tolist() == [0x00, 0x80, 0x01, 0x08, 0x38, 0xB8, 0x7E, 0x7E, 0x7F]
    assert encode(x[:-1], "e4m3fnuz").tolist() == [0x00, 0x00, 0x02, 0x10, 0x40, 0xC0, 0x7F, 0x7F]
    assert encode(np.float32([NAN]), "e4m3fnuz").tolist() == [0x80]
    assert encode(np.float32([1, 2.0**-127, 0, NAN, 3e38]), "e8m0").tolist() == [127, 0, 0, 255, 254]
    assert encode(np.float32([1, -6]), "e2m1").tolist() == [2, 15]
    assert encode(np.float32([1, -2, INF]), "bfloat16").tolist() == [0x3F80, 0xC000, 0x7F80]


@pytest.mark.parametrize(("name", "rule"), [(n, r) for n, r in RULES if n in ORACLES])
def test_a_million_patterns_agree_with_ml_dtypes(name, rule):
    x = patterns(1_000_000 // 4)
    if name == "e4m3fn":
        x = patterns(1_000_000)
    want = expected(x, name, rule)
    values = want.astype(np.float32)
    if name == "e2m1":  # ml_dtypes turns NaN into -0
        x, want, values = (v[~np.isnan(x)] for v in (x, want, values))
    assert same(round_to(x, name, rule), values).all()
    codes = encode(x, name, rule)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(codes[number], want.view(codes.dtype)[number])
    assert same(decode(codes, name), values).all()


@pytest.mark.parametrize(("name", "rule"), RULES)
def test_the_fast_form_has_the_bits_of_the_plain_one(name, rule):
    x32 = patterns(4000, seed=1)
    with np.errstate(invalid="ignore"):
        x64 = x32.astype(np.float64) * (1 + np.random.default_rng(2).standard_normal(x32.shape) * 2.0**-40)
    for x in (x32, x64):
        with np.errstate(all="ignore"):
            plain = np.array([round_plain(float(v), name, rule) for v in x]).astype(x.dtype)
        assert same(round_to(x, name, rule), plain).all()


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "bfloat16"])
def test_float64_is_not_rounded_through_float32(name):
    values = finite_values(name)[1:2000]
    middle = (values[:-1] + values[1:]) / 2
    above = middle * (1 + 2.0**-45)
    np.testing.assert_array_equal(round_to(above, name), values[1:])
    through = round_to(above.astype(np.float32), name).astype(np.float64)
    assert (through != values[1:]).mean() > 0.4  # the wrong way is told apart


def test_arrays_of_any_shape_and_order_keep_it():
    x = np.random.default_rng(0).standard_normal((7, 5, 3)).astype(np.float32)[:, ::-1].transpose(2, 0, 1)
    want = x.astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(round_to(x, "e4m3fn"), want.astype(np.float32))
    np.testing.assert_array_equal(encode(x, "e4m3fn"), want.view(np.uint8))
    assert round_to(np.zeros((0, 4), np.float32), "e4m3fn").shape == (0, 4)
    assert encode(np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert decode(np.zeros((3, 0), np.uint8)).shape == (3, 0)
    assert round_to(1.06, "e4m3fn") == 1.0
    assert encode(1.0) == 0x38
    odd = np.arange(255, dtype=np.uint8)[1::2]
    np.testing.assert_array_equal(decode(odd), decode(odd.copy()))


def test_long_arrays_are_rounded_to_the_last_element():
    x = np.random.default_rng(0).standard_normal(3 * (1 << 15) + 17).astype(np.float32)
    x[-1] = NAN
    assert same(round_to(x, "e4m3fn"), x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)).all()
    assert same(round_to(x, "bfloat16"), x.astype(ml_dtypes.bfloat16).astype(np.float32)).all()
    assert encode(x)[-1] == 0x7F


def test_stored_floats_decode_as_they_are():
    x = np.array([1.5, -0.0, 2.0**-24])
    assert decode(x.astype(np.float16), "float16").tolist() == x.tolist()
    assert decode(x, "float64").dtype == np.float64
    assert decode(x.astype(np.float32), "float32").dtype == np.float32
    assert round_to(np.array([1 + 2.0**-40]), "float32").tolist() == [1.0]
    assert round_to(np.array([1 + 2.0**-40]), "float64").tolist() == [1 + 2.0**-40]


def test_stochastic_rounding_goes_up_as_often_as_the_remainder_says():
    x = np.full(100_000, 1 + 0.125 * 0.3)
    y = round_to(x, "e4m3fn", rounding="stochastic", seed=3)
    assert set(np.unique(y)) == {1.0, 1.125}
    assert abs((y > 1).mean() - 0.3) < 0.005  # 3.4 standard deviations
    np.testing.assert_array_equal(y, round_to(x, "e4m3fn", rounding="stochastic", seed=3))
    assert (y != round_to(x, "e4m3fn", rounding="stochastic", seed=4)).any()
    for name in ("e4m3fn", "e5m2", "bfloat16", "tf32"):
        values = finite_values(name)[:4000].astype(np.float32)
        np.testing.assert_array_equal(round_to(-values, name, rounding="stochastic", seed=0), -values)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: round_to(np.float32([1]), "e3m4"), "e3m4"),
        (lambda: round_to(np.float16([1]), "e4m3fn"), "float16"),
        (lambda: round_to(np.float32([1]), "e4m3fn", overflow="wrap"), "wrap"),
        (lambda: round_to(np.float32([1]), "e2m1", overflow="nan"), "no NaN"),
        (lambda: round_to(np.float32([1]), "e4m3fn", rounding="stochastic"), "seed"),
        (lambda: encode(np.float32([NAN]), "e2m1"), "NaN"),
        (lambda: encode(np.float32([1]), "tf32"), "tf32"),
        (lambda: decode(np.uint16([1]), "e4m3fn"), "uint16"),
        (lambda: decode(np.uint8([16]), "e2m1"), "16"),
        (lambda: decode(np.uint16([1]), "tf32"), "decode tf32: expected a storage format, .* found one of 19 bits"),
        (lambda: encode(np.float32([1]), WIDE), "encode e5m6: expected a storage format, .* found one of 12 bits"),
        (lambda: decode(np.uint16([1]), WIDE), "decode e5m6: expected a storage format"),
        (lambda: encode(1.0, dataclasses.replace(FORMATS["bfloat16"], name="bf16")), "encode bf16: expected a storage"),
        (lambda: decode_plain(300, "e4m3fn"), "decode_plain e4m3fn: expected a code from 0 to 255, found 300"),
        (lambda: decode_plain(-1, "e4m3fn"), "found -1"),
        (lambda: decode_plain(16, "e2m1"), "0 to 15, found 16"),
        (lambda: decode_plain(1.0, "e2m1"), "0 to 15, found 1.0"),
        (lambda: decode(np.uint8([87]), "float32"), r"decode float32: expected float32 or float64 .* uint8\[1\]"),
        (lambda: decode(np.array(["1"]), "float64"), "decode float64: expected float32 or float64 values"),
        (lambda: round_to([1.0], ["e4m3fn"]), r"no number format \['e4m3fn'\]"),
        (lambda: round_to([1.0], np.arange(40).reshape(2, 20)), "no number format 'array"),
        (lambda: round_to([1.0], overflow=np.zeros(2)), "overflow: expected 'saturate', 'nan' or None"),
        (lambda: round_to([1.0], "float32", rounding=["nearest"]), r"no \['nearest'\] option"),
        (lambda: round_to([1.0], rounding=np.zeros(2)), "expected rounding 'nearest'"),
    ],
)
def test_what_cannot_be_done_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize("x", [None, "abc", "1.5", ["1.5"], [None], object(), [[1.0], [2.0, 3.0]], [1j], 10**400, {}])
@pytest.mark.parametrize("convert", [round_to, encode, quantize, quantize_nvfp4])
def test_what_is_no_number_is_refused(convert, x):
    with pytest.raises(InputError, match=r": expected float32 or float64 values, or numbers; found"):
        convert(x)


def test_numbers_of_python_are_taken_as_float64():
    assert round_to([1, 2.0625, True, Fraction(1, 3)]).tolist() == [1, 2, 1, 0.34375]
    assert round_to(10**25, "bfloat16") == round_plain(1e25, "bfloat16")
    assert decode(quantize([[448, 2.0, 1.0]])[0]).tolist() == [[448, 2, 1]]


CODES, SCALE = np.zeros((2, 16), np.uint8), np.ones((2, 1), np.float32)


@pytest.mark.parametrize("x", [[1, 2], None, "abc", object(), np.float32])
@pytest.mark.parametrize(
    "call",
    [
        decode,
        lambda x: decode(x, "float32"),
        lambda x: decode(x, "float16"),
        lambda x: dequantize(x, SCALE, (1, 128)),
        lambda x: dequantize(CODES, x, (1, 128)),
        lambda x: dequantize(CODES, SCALE, (1, 128), out=x if x is not None else 3),
        lambda x: fp8_matmul(x, SCALE, CODES, SCALE[:1]),
        lambda x: fp8_matmul(CODES, x, CODES, SCALE[:1]),
        lambda x: fp8_matmul(CODES, SCALE, x, SCALE[:1]),
        lambda x: fp8_matmul(CODES, SCALE, CODES, x),
        lambda x: dot(x, SCALE),
        lambda x: dot(SCALE, x),
        lambda x: tensor_core_dot(x, SCALE),
        lambda x: tensor_core_dot(SCALE, x),
    ],
)
def test_what_is_no_array_is_refused(call, x):
    with pytest.raises(InputError, match=r": expected an array of numpy or cupy, found \w+$"):
        call(x)


@pytest.mark.parametrize("x", [None, "1", object(), ["1"], [1.0, None]])
def test_numbers_beside_arrays_are_numbers(x):
    with pytest.raises(InputError, match=r"tensor_core_dot: c: expected float32 or float64 values"):
        tensor_core_dot(SCALE, SCALE, c=x)
    with pytest.raises(InputError, match=r"dequantize_nvfp4: tensor_scale: expected float32 or float64 values"):
        dequantize_nvfp4(CODES, SCALE.astype(np.uint8), x)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, np.ones((2, 3)), np.ones((2, 3)).view(np.matrix)])
def test_a_seed_is_a_non_negative_integer(seed):
    with pytest.raises(InputError, match=r"expected seed to be a non-negative integer, found [^\n]*$"):
        round_to([1.06], rounding="stochastic", seed=seed)


def test_a_seed_of_numpy_is_as_good():
    x = np.full(100, 1.06)
    same = round_to(x, rounding="stochastic", seed=np.uint8(7))
    np.testing.assert_array_equal(same, round_to(x, rounding="stochastic", seed=7))


def test_codes_of_numpy_have_their_value():
    assert [decode_plain(code, "e4m3fn") for code in encode([-2.0, 448.0])] == [-2.0, 448.0]


def test_decoding_floats_does_not_warn():
    assert decode(np.array([1e300, 1.5]), "float32").tolist() == [INF, 1.5]


WIDE = Format("e5m6", 12, 7, -14, (2 - 2.0**-6) * 2.0**15, 15, "ieee")
OWN = {
    "e4m3": (Format("e4m3", 8, 4, -6, 240.0, 7, "ieee"), ml_dtypes.float8_e4m3),
    "e3m4": (Format("e3m4", 8, 5, -2, 15.5, 3, "ieee"), ml_dtypes.float8_e3m4),
    "of the name of another": (Format("e4m3fn", 8, 4, -6, 240.0, 7, "ieee"), ml_dtypes.float8_e4m3),
    "of the name of a wide one": (Format("float16", 8, 4, -6, 240.0, 7, "ieee"), ml_dtypes.float8_e4m3),
    "e3m2": (Format("e3m2", 6, 3, -2, 28.0, 3, "none"), ml_dtypes.float6_e3m2fn),
}


@pytest.mark.parametrize("name", OWN)
def test_formats_of_your_own_have_the_codes_that_ml_dtypes_has(name):
    fmt, oracle = OWN[name]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    assert same(decode(codes, fmt), codes.view(oracle).astype(np.float32)).all()
    x = patterns(20_000)
    x = x[~np.isnan(x)] if fmt.special == "none" else x
    for rule in ("saturate", "nan")[: 1 + fmt.has_infinity]:
        with np.errstate(all="ignore"):
            want = (np.clip(x, -fmt.max, fmt.max) if rule == "saturate" else x).astype(oracle)
        values, number = want.astype(np.float32), ~np.isnan(x)
        assert same(round_to(x, fmt, rule), values).all()
        np.testing.assert_array_equal(encode(x, fmt, rule)[number], want.view(np.uint8)[number])
        assert same(decode(encode(x, fmt, rule), fmt), values).all()


def test_a_format_of_your_own_scales_as_others_do():
    fmt = OWN["of the name of another"][0]
    codes, scale = quantize(np.float32([[480, 1, -3]]), fmt, block=(1, 3))
    assert scale.tolist() == [[2.0]]
    assert dequantize(codes, scale, (1, 3), fmt).tolist() == [[480, 1, -3]]
    assert np.isinf(dequantize(np.uint8([[0x78]]), scale, (1, 1), fmt))
    assert round_to([1.3], WIDE).tolist() == [1 + 19 / 64]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": None}, "must be integers"),
        ({"emin": "x"}, "must be integers"),
        ({"special": ["fn"]}, "special must be"),
        ({"signed": False}, "powers of two only"),
        ({"precision": 8}, "room for an exponent"),
        ({"precision": 1, "special": "ieee"}, "a fraction beside infinity"),
        ({"bias": 8}, "bias 1 - emin"),
        ({"emin": -2000, "bias": 2001}, "exponents that float64 has"),
        ({"max": 0.0}, "max must be a finite number"),
        ({"max": NAN}, "max must be a finite number"),
        ({"max": 10**400}, "max must be a finite number"),
    ],
)
def test_a_format_that_is_none_is_refused(change, words):
    changed = {"bias": 7} | change
    if "signed" in change:
        changed["bias"] = 6
    with pytest.raises(InputError, match=f"format 'e4m3fn': .*{words}.*; found Format"):
        dataclasses.replace(FORMATS["e4m3fn"], **changed)


@pytest.mark.parametrize(("exponent", "sign"), [(0, 1), (-126, -1), (110, 1)])
def test_splitting_rounds_every_fraction_to_bfloat16_with_ties_to_even(exponent, sign):
    fractions = np.arange(1 << 23, dtype=np.uint32)
    x = (fractions | np.uint32((127 + exponent) << 23)).view(np.float32) * np.float32(sign)
    out = np.empty_like(x)
    split_into(out, x, FORMATS["bfloat16"])
    np.testing.assert_array_equal(out, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_splitting_keeps_nan_and_signed_zeros():
    x = np.float32([0.0, -0.0, NAN])
    split_into(x, x, FORMATS["bfloat16"])
    assert same(x, np.float32([0.0, -0.0, NAN])).all()


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["saturate", "nan"])
@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "bfloat16"])
def test_all_float32_patterns_agree_with_ml_dtypes(name, rule):
    for start in range(0, 1 << 32, 1 << 24):
        x = np.arange(start, start + (1 << 24), dtype=np.uint32).view(np.float32)
        want = expected(x, name, rule)
        values = want.astype(np.float32)
        assert same(round_to(x, name, rule), values).all()
        codes = encode(x, name, rule)
        number = ~np.isnan(values)
        assert (codes == want.view(codes.dtype))[number].all()


@pytest.mark.parametrize(
    "option", [{"overflow": "saturate"}, {"overflow": "bogus"}, {"rounding": "stochastic", "seed": 1}]
)
@pytest.mark.parametrize("number_format", ["float32", "float64"])
def test_formats_of_the_processor_have_no_options(number_format, option):
    with pytest.raises(InputError, match=f"{number_format} is rounded by the processor"):
        round_to(np.float64([1e300]), number_format, **option)
