"""Quantising by blocks, with scales and codes worked out by hand."""

import ml_dtypes
import numpy as np
import pytest

from blocklab.errors import InputError
from blocklab.numerics import (
    decode,
    decode_plain,
    dequantize,
    dequantize_mx,
    dequantize_nvfp4,
    encode,
    quantize,
    quantize_mx,
    quantize_nvfp4,
)
from blocklab.numerics.scaling import dequantize_tile

SCALE, READ_ONLY = np.ones((1, 1), np.float32), np.zeros((1, 2), np.float32)
READ_ONLY.flags.writeable = False


def loud(rng, *shape):
    """Return bfloat16-like noise, with blocks of very different size, a loud column and a zero group."""
    x = rng.standard_normal(shape).astype(np.float32)
    x *= np.float32(2.0) ** rng.integers(-9, 9, (*shape[:-1], 1))
    x[..., 3] *= 64
    x[0, :128] = 0
    return x


def by_definition(x, rows, columns, floor=1e-4, power=False):
    """Return codes and scales of a float32 matrix, block after block."""
    n, k = x.shape
    scales = np.zeros((-(-n // rows), -(-k // columns)), np.float32)
    codes = np.zeros(x.shape, np.uint8)
    for i in range(0, n, rows):
        for j in range(0, k, columns):
            part = x[i : i + rows, j : j + columns]
            s = np.maximum(np.abs(part).max(), np.float32(floor)) / np.float32(448)
            if power:
                mantissa, exponent = np.frexp(s)
                s = np.float32(np.ldexp(1.0, int(exponent) - (mantissa == 0.5)))
            scales[i // rows, j // columns] = s
            codes[i : i + rows, j : j + columns] = encode(part / s)
    return codes, scales


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("block", [(1, 128), (128, 128), (1, None), (None, 1), (None, None), (3, 50), (500, 9)])
def test_blocks_of_any_shape(block, power):
    x = loud(np.random.default_rng(0), 150, 300)
    rows, columns = block[0] or 150, block[1] or 300
    want, want_scales = by_definition(x, rows, columns, power=power)
    codes, scales = quantize(x, block=block, scale="ue8m0" if power else "float32")
    assert (codes.dtype, scales.dtype) == (np.uint8, np.float32)
    np.testing.assert_array_equal(scales, want_scales)
    np.testing.assert_array_equal(codes, want)
    each = np.repeat(np.repeat(scales, rows, 0)[:150], columns, 1)[:, :300]
    np.testing.assert_array_equal(dequantize(codes, scales, block), decode(codes) * each)


def test_leading_axes_and_single_rows():
    x = loud(np.random.default_rng(1), 2, 5, 200)
    codes, scales = quantize(x)
    assert scales.shape == (2, 5, 2)
    for i in range(2):
        for j in range(5):
            one, scale = quantize(x[i, j])
            np.testing.assert_array_equal(one, codes[i, j])
            np.testing.assert_array_equal(scale, scales[i, j])
            np.testing.assert_array_equal(dequantize(one, scale, (1, 128)), dequantize(codes, scales, (1, 128))[i, j])
    codes, scales = quantize(x, block=(2, 128))
    assert scales.shape == (2, 3, 2)
    np.testing.assert_array_equal(codes[1], quantize(x[1], block=(2, 128))[0])
    assert dequantize(codes, scales, (2, 128)).shape == x.shape
    empty_rows = x.transpose(0, 2, 1)[:, ::2]
    np.testing.assert_array_equal(quantize(empty_rows)[0], quantize(empty_rows.copy())[0])


def test_five_rows_of_scales_for_576_rows():
    x = loud(np.random.default_rng(2), 576, 7168)
    codes, scales = quantize(x, block=(128, 128))
    assert scales.shape == (5, 56)
    np.testing.assert_array_equal(scales[4], np.abs(x[512:]).reshape(64, 56, 128).max((0, 2)) / np.float32(448))
    whole = dequantize(codes, scales)
    assert (np.abs(whole - x) <= np.abs(x) / 16 + np.repeat(np.repeat(scales, 128, 0)[:576], 128, 1) * 2.0**-10).all()
    for start, stop in ((0, 576), (500, 576), (127, 129), (512, 513), (3, 131)):
        np.testing.assert_array_equal(dequantize(codes[start:stop], scales, first_row=start), whole[start:stop])
    out = np.empty(x.shape, np.float32)
    assert dequantize(codes, scales, out=out) is out
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("scale", [1, 0.3, 127.9, 128, 3e30, -3e30, 2.0**-126, 1e-40, 0, np.inf, np.nan])
def test_every_code_times_scales_of_any_size(scale):
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
    scales = np.float32([[scale]])
    with np.errstate(all="ignore"):
        want = np.float32([decode_plain(code, "e4m3fn") for code in range(256)]).reshape(2, 128) * scales
    got = dequantize(codes, scales)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


def test_small_integers_of_numpy_do_not_overflow():
    x = loud(np.random.default_rng(7), 300, 300)
    codes, scales = quantize(x, block=(np.uint8(128), np.uint8(128)))
    for found, want in zip((codes, scales), quantize(x, block=(128, 128)), strict=True):
        np.testing.assert_array_equal(found, want)
    block = (np.uint8(128), np.int8(100))
    codes, scales = quantize(x, block=block)
    want = dequantize(codes, scales, (128, 100))
    np.testing.assert_array_equal(dequantize(codes[200:], scales, block, first_row=np.uint8(200)), want[200:])


def test_read_only_and_mapped_codes(tmp_path):
    codes = np.arange(2 * 131, dtype=np.uint8).reshape(2, 131) % 120
    path = tmp_path / "codes"
    path.write_bytes(b"odd" + codes.tobytes())
    mapped = np.memmap(path, np.uint8, "r", 3, codes.shape)
    scales = np.float32([[0.5, 2]])
    want = decode(codes) * np.where(np.arange(131) < 128, np.float32(0.5), np.float32(2))
    np.testing.assert_array_equal(dequantize(mapped, scales), want)


@pytest.mark.parametrize("extreme", [1.0, 1.37 * 2.0**-125, 1.37 * 2.0**119, np.inf, np.nan, 0.0])
@pytest.mark.parametrize("format", ["e4m3fn", "e5m2", "e4m3fnuz"])
@pytest.mark.parametrize("block", [(128, 128), (20, 96), (1, None), (None, None), (None, 64)])
def test_any_tile_is_a_part_of_the_whole_and_may_be_rounded(monkeypatch, block, format, extreme):
    monkeypatch.setattr("blocklab.numerics.scaling.BAND_CHUNK", 40 * 300)
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 256, (300, 300)).astype(np.uint8)
    height, width = (size or 300 for size in block)
    scale = rng.standard_normal((-(-300 // height), -(-300 // width))).astype(np.float32)
    scale[0, 0] = extreme
    per_value = scale.repeat(height, 0)[:300].repeat(width, 1)[:, :300]
    with np.errstate(all="ignore"):
        whole = np.array([decode_plain(c, format) for c in range(256)], np.float32)[codes] * per_value
        rounded = whole.astype(ml_dtypes.bfloat16).astype(np.float32)
    for rows, columns in (
        (slice(0, 300), slice(0, 300)),
        (slice(7, 290), slice(130, 300)),
        (slice(129, 131), slice(5)),
    ):
        for want, storage in ((whole, "float32"), (rounded, "bfloat16")):
            tile = dequantize_tile(codes, scale, block, format, rows, columns, storage)
            np.testing.assert_array_equal(tile, want[rows, columns])


def test_scales_by_hand():
    x = np.zeros((4, 128), np.float32)
    x[1, :3] = [3e-5, -1e-5, 1e-6]
    x[2, :2] = [896, 1]
    x[3, :2] = [-448, 464 / 2]
    codes, scales = quantize(x)
    floor = np.float32(1e-4) / np.float32(448)
    np.testing.assert_array_equal(scales[:, 0], [floor, floor, 2, 1])
    assert not codes[0].any()
    assert decode(codes[1]).max() == 128  # 3e-5 / 1e-4 * 448 = 134.4, well below 448
    assert decode(codes[2, :2]).tolist() == [448, 0.5]
    assert decode(codes[3, :2]).tolist() == [-448, 224]  # 232 is a tie
    assert decode(quantize(x, amax_floor=1e-10)[0][1]).max() == 448


def test_power_of_two_scales_come_from_the_bits():
    for k in (-10, 0, 3):
        exact = np.float32(448) * np.float32(2.0) ** k
        above = np.nextafter(exact, np.float32(np.inf))
        x = np.stack([exact, above])[:, None] * np.ones((1, 4), np.float32)
        codes, scales = quantize(x, block=(1, 4), amax_floor=1e-30, scale="ue8m0")
        assert scales[:, 0].tolist() == [2.0**k, 2.0 ** (k + 1)]
        assert decode(codes[:, 0]).tolist() == [448, 224]  # the rounded scale divides


def test_reciprocal_differs_from_the_quotient_on_ties():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2000, 128)).astype(np.float32)
    x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # bfloat16 inputs
    divided, scales = quantize(x)
    multiplied, same = quantize(x, quotient="reciprocal")
    np.testing.assert_array_equal(scales, same)
    np.testing.assert_array_equal(multiplied, encode(x * (np.float32(1) / scales)))
    differ = divided != multiplied
    assert 1e-4 < differ.mean() < 1e-3
    exact = x.astype(np.float64) / scales.astype(np.float64)
    middle = (decode(divided).astype(np.float64) + decode(multiplied)) / 2
    assert (np.abs(exact - middle) < 1e-6 * np.abs(exact))[differ].all()


def test_float64_is_rounded_once():
    x = np.zeros((1, 128))
    x[0, :2] = [448, 1.0625 + 2.0**-40]
    assert decode(quantize(x)[0][0, 1]) == 1.125
    assert decode(quantize(x.astype(np.float32))[0][0, 1]) == 1.0


def test_nan_and_infinity_stay_in_their_group():
    x = np.ones((3, 256), np.float32)
    x[0, 5] = np.nan
    x[1, 200] = -np.inf
    codes, scales = quantize(x)
    assert np.isnan(scales[0, 0])
    assert scales[1, 1] == np.inf
    assert (codes[0, :128] == 0x7F).all()
    assert codes[1, 200] == 0x7F
    assert (np.delete(codes[1, 128:], 72) == 0).all()
    clean = quantize(np.ones((1, 128), np.float32))
    for part in (codes[0, 128:], codes[1, :128], codes[2, :128]):
        np.testing.assert_array_equal(part, clean[0][0])
    powers = quantize(x, scale="ue8m0")[1]
    assert np.isnan(powers[0, 0])
    assert powers[1, 1] == np.inf
    assert np.isnan(dequantize(codes, scales, (1, 128))[1, 128:]).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: dequantize(c, np.ones((4, 3), np.float32)), r"blocks of 128 x 128.*\[5, 3\].*\[4, 3\]"),
        (lambda c: dequantize(c, np.ones((3, 5), np.float32)), r"\[5, 3\], found \[3, 5\]"),
        (lambda c: dequantize(c, np.ones((5, 3), np.float32), first_row=200), r"\[7, 3\], found \[5, 3\]"),
        (lambda c: dequantize(c, np.ones((5, 3), np.float32), format="bfloat16"), "bfloat16"),
        (lambda c: dequantize(c.astype(np.int64), np.ones((5, 3), np.float32)), "int64"),
        (lambda c: dequantize(c, np.ones((5, 3), np.float32), out=np.empty((300, 576), np.float32).T), "contiguous"),
        (lambda c: dequantize(c, np.ones(3, np.float32)), r"expected shape \[5, 3\], found \[3\]"),
        (lambda c: quantize(c), "uint8"),
        (lambda c: quantize(np.ones((2, 8), np.float32), block=(-1, -1)), "a block of two positive numbers"),
        (lambda c: quantize(np.zeros((4, 0), np.float32)), "K > 0"),
        (lambda c: quantize(np.float32([1]), block=(1, 0)), "block"),
        (lambda c: quantize(np.float32([1]), amax_floor=np.inf), "finite amax_floor"),
        (lambda c: quantize(np.float32([1]), amax_floor=None), "finite amax_floor .* found None"),
        (lambda c: quantize(np.float32([1]), amax_floor="1"), "finite amax_floor .* found '1'"),
        (lambda c: quantize(np.float32([1]), amax_floor=10**400), "finite amax_floor"),
        (lambda c: quantize(np.float32([1]), block=(True, True)), r"positive numbers .* found \(True, True\)"),
        (lambda c: quantize(np.float32([1]), block=np.ones((2, 3))), r"positive numbers [^\n]*$"),
        (lambda c: quantize(np.float32([1]), scale=np.zeros(2)), "scale 'float32' or 'ue8m0'"),
        (lambda c: quantize(np.float32([1]), quotient=["divide"]), "quotient 'divide' or 'reciprocal'"),
        (lambda c: dequantize(c, np.ones((5, 3))), r"dequantize: scale: expected float32, found float64\[5, 3\]"),
        (lambda c: dequantize(c, np.ones((5, 3), complex)), "expected float32, found complex128"),
        (lambda c: dequantize(c, np.full((5, 3), "1")), "expected float32, found <U1"),
        (lambda c: dequantize(c, np.ones((5, 3), np.float32), first_row=-2), "non-negative integer, found -2"),
        (lambda c: dequantize(c, np.ones((5, 3), np.float32), first_row=1.0), "non-negative integer, found 1.0"),
        (
            lambda c: dequantize(c, np.ones((5, 3), np.float32), out=np.broadcast_to(np.float32(0), (576, 300))),
            r"writable float32 out\[576, 300\]",
        ),
        (
            lambda c: dequantize(c[:1, :2], SCALE, out=READ_ONLY),
            r"found float32\[1, 2\] that is read-only or not contiguous",
        ),
        (lambda c: dequantize_nvfp4(c, np.zeros((576, 19), np.uint8), np.ones(2)), r"a number, found float64\[2\]"),
        (lambda c: quantize_nvfp4(np.array([1e300])), "found NaN or infinity"),
        (lambda c: quantize_mx(np.zeros((2, 0), np.float32)), "quantize_mx: expected an array .* K > 0"),
        (lambda c: quantize_mx(np.float32(1)), "quantize_mx: expected an array"),
        (lambda c: quantize_mx(np.float32([1]), "bfloat16"), "quantize_mx: expected an FP8 or FP4 format"),
        (lambda c: quantize_nvfp4(np.float32(1)), "quantize_nvfp4: expected an array"),
        (lambda c: quantize(np.float32([1]), block=128), "a block of two positive numbers"),
        (lambda c: quantize(np.float32([1]), block=(1,)), "a block of two positive numbers"),
        (lambda c: quantize(np.float32([1]), amax_floor=0), "amax_floor"),
        (lambda c: quantize(np.float32([1]), amax_floor=float("nan")), "amax_floor of at least .* found nan"),
        (lambda c: quantize(np.float32([1]), scale="e8m0"), "ue8m0"),
        (lambda c: quantize(np.float32([1]), quotient="floor"), "reciprocal"),
        (lambda c: quantize(np.float32([1]), "e8m0"), "e8m0"),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call(np.zeros((576, 300), np.uint8))


def test_mx_by_hand():
    x = np.zeros((4, 40), np.float32)
    x[0, :3] = [448, 1, -3]  # floor(log2 448) = 8: scale 2^0
    x[1, :2] = [496, 1]  # above 448 with the same exponent: clipped
    x[2, 33] = 0.75  # floor(log2) = -1: scale 2^-9
    codes, scale = quantize_mx(x)
    assert scale.tolist() == [[127, 0], [127, 0], [0, 127 - 9], [0, 0]]
    assert dequantize_mx(codes, scale)[0, :3].tolist() == [448, 1, -3]
    assert dequantize_mx(codes, scale)[1, 0] == 448
    assert decode(codes[2, 33]) == 384
    assert not codes[3].any()
    codes, scale = quantize_mx(np.float32([[7, 6, 5, -0.6]]), "e2m1")
    assert scale.tolist() == [[127]]
    assert decode(codes, "e2m1").tolist() == [[6, 6, 4, -0.5]]
    x[0, 0], x[1, 0] = np.nan, np.inf
    codes, scale = quantize_mx(x)
    assert scale[:2, 0].tolist() == [255, 255]
    assert np.isnan(dequantize_mx(codes, scale)[:2, :32]).all()


def test_nvfp4_by_hand():
    x = np.zeros((2, 32), np.float32)
    x[0, :4] = [6 * 448, 1344, -448, 100]  # s = 1, S = 448
    x[0, 16:18] = [6, 1.6]  # S = 1
    x[1, 0] = 2.0**-9  # S = 2^-9 / 6 rounds to 0
    codes, scale, tensor = quantize_nvfp4(x)
    assert tensor == 1
    assert decode(scale).tolist() == [[448, 1], [0, 0]]
    assert decode(codes, "e2m1")[0, :4].tolist() == [6, 3, -1, 0]
    assert decode(codes, "e2m1")[0, 16:18].tolist() == [6, 1.5]
    assert not codes[1].any()
    assert dequantize_nvfp4(codes, scale, tensor)[0, :3].tolist() == [2688, 1344, -448]
    x = loud(np.random.default_rng(0), 30, 100)
    codes, scale, tensor = quantize_nvfp4(x)
    error = np.linalg.norm(dequantize_nvfp4(codes, scale, tensor) - x) / np.linalg.norm(x)
    assert 0.05 < error < 0.15
    assert quantize_nvfp4(np.zeros((2, 16), np.float32))[2] == 1
    for size in (2.0**-149, 2.0**-140, 2.0**-126, 1e-42):
        small = np.zeros((1, 32), np.float32)
        small[0, 3] = size
        codes, scale, tensor = quantize_nvfp4(small)
        assert tensor > 0
        assert np.isfinite(dequantize_nvfp4(codes, scale, tensor)).all(), size
    codes, scale, tensor = quantize_nvfp4(np.zeros((0, 16), np.float32))
    assert (codes.shape, scale.shape, tensor) == ((0, 16), (0, 1), 1)
    with pytest.raises(InputError, match="NaN"):
        quantize_nvfp4(np.float32([np.nan]))


@pytest.mark.parametrize("shape", [(0, 200), (3, 0, 200), (0, 3, 200)])
def test_no_tokens_are_quantised_to_no_codes(shape):
    codes, scale = quantize(np.zeros(shape, np.float32))
    assert (codes.shape, scale.shape) == (shape, (*shape[:-1], 2))
    assert dequantize(codes, scale, (1, 128)).shape == shape


def test_scales_of_an_empty_batch_have_the_shape_of_others():
    codes, scale = quantize(np.zeros((0, 256, 128), np.float32), block=(128, 128))
    assert (codes.shape, scale.shape) == ((0, 256, 128), (0, 2, 1))
    assert dequantize(codes, scale, (128, 128)).shape == (0, 256, 128)
    assert quantize(np.zeros((0, 128), np.float32), block=(128, 128))[1].shape == (0, 1)


@pytest.mark.parametrize("number_format", ["e4m3fn", "e5m2", "e4m3fnuz", "e2m1"])
def test_codes_need_not_be_contiguous(number_format):
    codes = np.random.default_rng(0).integers(0, 8, (128, 256)).astype(np.uint8)
    scale = np.ones((1, 1), np.float32)
    strided = dequantize(codes[:, ::2], scale, (128, 128), number_format)
    np.testing.assert_array_equal(strided, dequantize(codes[:, ::2].copy(), scale, (128, 128), number_format))
