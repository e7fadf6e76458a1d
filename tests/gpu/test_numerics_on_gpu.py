"""Formats, scaling and dots on cupy arrays: the bits that numpy gives."""

import numpy as np
import pytest

from blocklab import InputError, numerics
from blocklab.numerics import (
    FORMATS,
    decode,
    dequantize,
    dequantize_mx,
    dequantize_nvfp4,
    dot,
    encode,
    fp8_matmul,
    quantize,
    quantize_mx,
    quantize_nvfp4,
    round_to,
    tensor_core_dot,
)
from blocklab.xp import array_module, asnumpy

RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, 448, 464, 465, 1e4, -1e4, np.inf, -np.inf, np.nan, 2.0**-10, 124.3, 1.0625 + 2.0**-40, 3e-5]
STORED = [name for name in FORMATS if name != "tf32"]


def values(dtype, *shape):
    x = (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-12, 12, shape)).astype(dtype)
    return x


def specials(dtype):
    return np.concatenate([np.array(SPECIAL, dtype), values(dtype, 1000)])


def bits(*shape):
    return RNG.integers(0, 127, shape).astype(np.uint8) | (RNG.integers(0, 2, shape).astype(np.uint8) << 7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "overflow"), [(n, o) for n in FORMATS for o in (None, "saturate", "nan") if (n, o) != ("e2m1", "nan")]
)
def test_round_to(cupy, same, name, overflow, dtype):
    x = specials(dtype)
    same(round_to(cupy.asarray(x), name, overflow), round_to(x, name, overflow))
    same(round_to(cupy.asarray(x)[::3], name, overflow), round_to(x[::3], name, overflow))


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "bfloat16"])
def test_round_stochastically(cupy, same, name):
    x = specials("float32")
    same(
        round_to(cupy.asarray(x), name, rounding="stochastic", seed=3), round_to(x, name, rounding="stochastic", seed=3)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", STORED)
def test_encode_and_decode(cupy, same, name, dtype):
    x = values(dtype, 5, 7) if name == "e2m1" else specials(dtype)
    codes = encode(x, name)
    same(encode(cupy.asarray(x), name), codes)
    same(decode(cupy.asarray(codes), name), decode(codes, name))


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.bits == 8])
def test_decode_all_codes(cupy, same, name):
    codes = np.arange(256, dtype=np.uint8)
    same(decode(cupy.asarray(codes), name), decode(codes, name))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block": (128, 128)},
        {"block": (1, None)},
        {"block": (None, None)},
        {"block": (64, 96), "amax_floor": 1e-10, "quotient": "reciprocal"},
        {"scale": "ue8m0"},
        {"format": "e5m2"},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quantize_and_dequantize(cupy, same, options, dtype):
    x = values(dtype, 2, 192, 300)
    x[0, :130, :128] = 0
    codes, scale = quantize(x, **options)
    found = quantize(cupy.asarray(x), **options)
    same(found[0], codes)
    same(found[1], scale)
    block, name = options.get("block", (1, 128)), options.get("format", "e4m3fn")
    same(dequantize(*found, block, name), dequantize(codes, scale, block, name))


def test_dequantize_some_rows(cupy, same):
    codes, scale = bits(576, 256), values("float32", 5, 2)
    expected = dequantize(codes[500:], scale, first_row=500)
    same(dequantize(cupy.asarray(codes)[500:], cupy.asarray(scale), first_row=500), expected)


def test_microscaling(cupy, same):
    x = values("float32", 4, 64)
    for down, up in ((quantize_mx, dequantize_mx), (quantize_nvfp4, dequantize_nvfp4)):
        expected, found = down(x), down(cupy.asarray(x))
        for one, other in zip(found, expected, strict=True):
            same(cupy.asarray(one), np.asarray(other))
        same(up(*found), up(*expected))


@pytest.mark.parametrize("scale_order", ["separate", "folded"])
@pytest.mark.parametrize("accumulate", ["exact", "float32", "hopper", "ada", "blackwell"])
def test_fp8_matmul(cupy, same, accumulate, scale_order):
    T, N, K = 5, 200, 300
    operands = bits(T, K), abs(values("float32", T, 3)), bits(N, K), abs(values("float32", 2, 3))
    expected = fp8_matmul(*operands, accumulate, scale_order=scale_order)
    found = fp8_matmul(*map(cupy.asarray, operands), accumulate, scale_order=scale_order)
    if accumulate == "float32":
        np.testing.assert_allclose(asnumpy(found), expected, rtol=1e-3, atol=1e-2)
    else:
        same(found, expected)


def test_fp8_matmul_with_special_codes_and_one_scale(cupy, same):
    a, w = bits(3, 64), bits(40, 64)
    a[0, 0], w[3, 5] = 0x7F, 0xFF
    one = np.ones((1, 1), np.float32)
    options = {"group": None, "block": (None, None), "promote": None}
    for accumulate in ("exact", "hopper"):
        expected = fp8_matmul(a, np.repeat(one, 3, 0), w, one, accumulate, **options)
        scale = cupy.asarray(np.repeat(one, 3, 0))
        same(fp8_matmul(cupy.asarray(a), scale, cupy.asarray(w), cupy.asarray(one), accumulate, **options), expected)


@pytest.mark.parametrize("promote", [None, 128])
def test_tensor_core_dot(cupy, same, promote):
    a, b = decode(bits(4, 1, 256)), decode(bits(6, 256))
    c = np.array(2.0**20, np.float32)
    for start in (c, np.zeros_like(c)):
        expected = tensor_core_dot(a, b, c=start, promote=promote)
        found = tensor_core_dot(cupy.asarray(a), cupy.asarray(b), c=cupy.asarray(start), promote=promote)
        same(found, np.asarray(expected))


def test_dot(cupy, same):
    x, w = values("float32", 2, 3, 50), values("float32", 20, 50)
    for accumulate in ("exact", "float32"):
        found = dot(cupy.asarray(x), cupy.asarray(w), accumulate)
        same(found, dot(x, w, accumulate), exact=False)


def test_no_tokens(cupy, same):
    x, w = np.empty((0, 64), np.float32), bits(40, 64)
    codes, scale = quantize(cupy.asarray(x))
    same(codes, np.empty((0, 64), np.uint8))
    y = fp8_matmul(codes, scale, cupy.asarray(w), cupy.asarray(np.ones((1, 1), np.float32)))
    same(y, np.empty((0, 40), np.float32))
    same(round_to(cupy.asarray(x), "bfloat16"), x)


def test_every_public_function_of_arrays_is_tested_here():
    scalar = {"decode_plain", "round_plain", "step_plain", "get_format", "get_recipe"}
    functions = {name for name in numerics.__all__ if callable(getattr(numerics, name)) and name.islower()}
    assert functions - scalar == {name for name in functions if name in globals()}


def test_mixing_is_refused_with_both_names(cupy):
    a, x = cupy.zeros((2, 3), "float32"), np.zeros((2, 3), np.float32)
    with pytest.raises(InputError, match=r"found numpy float32\[2, 3\] beside cupy arrays"):
        dot(a, x)
    assert array_module(a, 1.0, None) is cupy
    assert array_module(x) is np
    assert type(asnumpy(a)) is np.ndarray
