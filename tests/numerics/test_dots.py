"""FP8 products: exact in any order, close in float32, and refused where shapes do not fit."""

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from blocklab.errors import InputError
from blocklab.numerics import decode, dequantize, dot, fp8_matmul, quantize

ROOT = Path(__file__).parents[2]


def problem(tokens=7, rows=700, k=1100, seed=0):
    """Return quantised operands whose blocks differ by powers of two; rows and K end with short blocks."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((tokens, k)).astype(np.float32) * 2.0 ** rng.integers(-6, 6, (tokens, 1))
    w = rng.standard_normal((rows, k)).astype(np.float32)
    w *= np.repeat(np.repeat(2.0 ** rng.integers(-6, 6, (-(-rows // 128), -(-k // 128))), 128, 0), 128, 1)[:rows, :k]
    a[:, 128:256] = 0
    w[:, 5] *= 100
    return *quantize(a.astype(np.float32)), *quantize(w.astype(np.float32), block=(128, 128))


def by_definition(a, sa, w, sw, order="separate", dot=None):
    """Return acc + (dot s_a) s_w in float32, each dot exact in integers and rounded once."""
    count, k = len(w), a.shape[-1]
    left, right = (np.rint(decode(x).astype(np.float64) * 512).astype(np.int64) for x in (a, w))
    acc = np.zeros((len(a), count), np.float32)
    for g in range(-(-k // 128)):
        part = slice(128 * g, 128 * g + 128)
        dots = (left[:, part] @ right[:, part].T).astype(np.float32) * np.float32(2.0**-18)  # int64 rounds once
        s_w = np.repeat(sw[:, g], 128)[:count]
        acc += dots * sa[:, g, None] * s_w if order == "separate" else dots * (sa[:, g, None] * s_w)
    return acc


def equal_bits(a, b):
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("order", ["separate", "folded"])
def test_exact_is_the_definition(order):
    operands = problem()
    equal_bits(fp8_matmul(*operands, scale_order=order), by_definition(*operands, order))


def test_the_order_of_the_scales_shows():
    operands = problem()
    assert (fp8_matmul(*operands) != fp8_matmul(*operands, scale_order="folded")).any()


def test_a_group_is_rounded_once():
    """Extremes that fill 43 bits: the largest products, then the smallest, in any order, against fractions."""
    rng = np.random.default_rng(0)
    extremes = np.array([0x7E, 0xFE, 0x01, 0x81, 0x7D, 0x07, 0x78, 0x00], np.uint8)
    a, w = rng.choice(extremes, (9, 128)), rng.choice(extremes, (40, 128))
    a[0], w[0] = 0x7E, 0x7E
    a[1, ::2], a[1, 1::2], w[1], w[1, :2] = 0x7E, 0xFE, 0x7E, 0x01  # all but the smallest products cancel
    one = np.ones((9, 1), np.float32)
    got = fp8_matmul(a, one, w, np.ones((1, 1), np.float32))
    for i in range(9):
        for j in range(40):
            total = sum(
                Fraction(float(x)) * Fraction(float(y)) for x, y in zip(decode(a[i]), decode(w[j]), strict=True)
            )
            assert float(total) == total  # a float64 holds it, and so one rounding is left
            assert got[i, j] == np.float32(float(total))
    assert got[0, 0] == 128 * 448**2


def test_exact_does_not_depend_on_how_the_work_is_cut():
    a, sa, w, sw = problem(tokens=150, rows=1300, k=640)
    whole = fp8_matmul(a, sa, w, sw)
    order = np.random.default_rng(1).permutation(150)
    equal_bits(fp8_matmul(a[order], sa[order], w, sw), whole[order])
    equal_bits(np.concatenate([fp8_matmul(a[i : i + 1], sa[i : i + 1], w, sw) for i in range(9)]), whole[:9])
    equal_bits(fp8_matmul(a[3], sa[3], w, sw), whole[3])
    equal_bits(np.concatenate([fp8_matmul(a, sa, w[:256], sw[:2]), fp8_matmul(a, sa, w[256:], sw[2:])], 1), whole)
    equal_bits(fp8_matmul(a.reshape(2, 75, -1), sa.reshape(2, 75, -1), w, sw), whole.reshape(2, 75, -1))
    within = np.concatenate([128 * g + np.random.default_rng(g).permutation(128) for g in range(5)])
    equal_bits(fp8_matmul(a[:, within], sa, w[:, within], sw), whole)
    groups = np.array([4, 0, 2, 3, 1])
    moved = (groups[:, None] * 128 + np.arange(128)).ravel()
    other = fp8_matmul(a[:, moved], sa[:, groups], w[:, moved], sw[:, groups])
    assert (other != whole).any()  # the order of the groups is part of the definition


@pytest.mark.parametrize("accumulate", ["exact", "hopper"])
@pytest.mark.parametrize("rows", [8, 96])
def test_exact_does_not_depend_on_the_tile(monkeypatch, accumulate, rows):
    operands = problem(tokens=20, rows=300, k=256)
    whole = fp8_matmul(*operands, accumulate)
    monkeypatch.setattr("blocklab.numerics.dots.ROWS", rows)
    monkeypatch.setattr("blocklab.numerics.dots.TOKENS", 12)
    monkeypatch.setattr("blocklab.numerics.dots.BLAS_ROWS", 5)
    equal_bits(fp8_matmul(*operands, accumulate), whole)


@pytest.mark.parametrize("accumulate", ["exact", "hopper"])
def test_exact_does_not_depend_on_threads(accumulate):
    program = (
        "import hashlib, sys; sys.path.insert(0, 'tests/numerics')\n"
        "from test_dots import problem\nfrom blocklab.numerics import fp8_matmul\n"
        f"out = fp8_matmul(*problem(tokens=40, rows=1300, k=384), {accumulate!r})\n"
        "print(hashlib.sha256(out.tobytes()).hexdigest())"
    )
    digests = set()
    for threads in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


def test_float32_is_close_to_exact():
    operands = problem(rows=1300)
    exact = fp8_matmul(*operands).astype(np.float64)
    fast = fp8_matmul(*operands, "float32")
    assert fast.dtype == np.float32
    assert np.linalg.norm(fast - exact) < 2e-7 * np.linalg.norm(exact)
    assert (fast != exact).any()


@pytest.mark.parametrize("block", [(128, 128), (20, 96), (1, None), (None, None)])
def test_float32_does_not_need_tiles_that_start_with_a_block(monkeypatch, block):
    rng = np.random.default_rng(5)
    a, sa = quantize(rng.standard_normal((5, 700)).astype(np.float32))
    w, sw = quantize(rng.standard_normal((90, 700)).astype(np.float32) * 2.0 ** np.arange(90)[:, None], block=block)
    whole = dequantize(a, sa, (1, 128)).astype(np.float64) @ dequantize(w, sw, block).astype(np.float64).T
    monkeypatch.setattr("blocklab.numerics.tiles.ROWS", 24)
    monkeypatch.setattr("blocklab.numerics.tiles.COLUMNS", 72)
    monkeypatch.setattr("blocklab.numerics.tiles.BLAS_COLUMNS", 50)
    tiled = fp8_matmul(a, sa, w, sw, "float32", block=block)
    assert np.linalg.norm(tiled - whole) < 2e-7 * np.linalg.norm(whole)


def test_hopper_costs_what_the_specification_says():
    rng = np.random.default_rng(0)
    a, sa = quantize(rng.standard_normal((4, 7168)).astype(np.float32))
    w, sw = quantize(rng.standard_normal((256, 7168)).astype(np.float32), block=(128, 128))
    exact = fp8_matmul(a, sa, w, sw).astype(np.float64)
    error = np.linalg.norm(fp8_matmul(a, sa, w, sw, "hopper") - exact) / np.linalg.norm(exact)
    assert 0.5e-4 < error < 3e-4


@pytest.mark.parametrize("accumulate", ["exact", "float32", "hopper", "ada", "blackwell"])
def test_other_groups_and_blocks(accumulate):
    rng = np.random.default_rng(2)
    a, w = rng.standard_normal((5, 200)).astype(np.float32), rng.standard_normal((70, 200)).astype(np.float32)
    for group, block in ((None, (None, None)), (64, (1, 32)), (96, (20, 64)), (None, (1, None)), (128, (128, None))):
        operands = (*quantize(a, block=(1, group)), *quantize(w, block=block))
        got = fp8_matmul(*operands, accumulate, group=group, block=block, promote=32)
        assert got.shape == (5, 70)
        assert np.linalg.norm(got - a @ w.T) < 0.06 * np.linalg.norm(a @ w.T)
        if accumulate == "exact":
            values = [decode(operands[i]).astype(np.float64) for i in (0, 2)]
            values[0] *= np.repeat(operands[1], group or 200, 1)[:, :200]
            values[1] *= np.repeat(np.repeat(operands[3], block[0] or 70, 0)[:70], block[1] or 200, 1)[:, :200]
            np.testing.assert_allclose(got, values[0] @ values[1].T, rtol=1e-5, atol=1e-5)


def test_promotion_needs_equal_scales():
    a, sa, w, sw = problem(tokens=3, rows=40, k=384)
    with pytest.raises(InputError, match=r"promote=None.*k = 128"):
        fp8_matmul(a, sa, w, sw, "hopper", promote=None)
    with pytest.raises(InputError, match="promote=256"):
        fp8_matmul(a, sa, w, sw, "hopper", promote=256)
    one = np.ones_like(sa), np.ones_like(sw)
    never = fp8_matmul(a, one[0], w, one[1], "hopper", promote=None)
    equal_bits(
        never, fp8_matmul(a, one[0][:, :1], w, one[1][:, :1], "hopper", promote=None, group=None, block=(128, None))
    )
    assert (never != fp8_matmul(a, one[0], w, one[1], "hopper")).any()
    equal_bits(fp8_matmul(a, sa, w, sw, "exact", promote=None), fp8_matmul(a, sa, w, sw))


@pytest.mark.parametrize("accumulate", ["exact", "float32", "hopper"])
def test_special_values(accumulate):
    a, sa, w, sw = problem(tokens=4, rows=40, k=256)
    clean = fp8_matmul(a, sa, w, sw, accumulate)
    a[1, 7] = 0x7F
    w[3, 200] = 0xFF
    sa[2, 1] = np.inf
    got = fp8_matmul(a, sa, w, sw, accumulate)
    assert np.isnan(got[1]).all()
    assert np.isnan(got[:, 3]).all()
    assert not np.isfinite(got[2]).any()
    keep = np.ones(40, bool)
    keep[3] = False
    np.testing.assert_array_equal(got[0, keep], clean[0, keep])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w_codes": np.zeros((40, 255), np.uint8)}, r"\[4, 256\] and \[40, 255\]"),
        ({"a_scale": np.ones((4, 3), np.float32)}, r"a_scale.*\[4, 2\].*\[4, 3\]"),
        ({"w_scale": np.ones((2, 1), np.float32)}, r"w_scale.*\[1, 2\].*\[2, 1\]"),
        ({"w_scale": np.ones((1, 2))}, "float64"),
        ({"w_codes": np.zeros((40, 256), np.int8)}, "int8"),
        ({"a_codes": np.zeros((4, 256), np.float32)}, "float32"),
        ({"accumulate": "hoper"}, "hoper"),
        ({"accumulate": "hopper", "promote": -1}, "-1"),
        ({"accumulate": "hopper", "promote": 48}, "in multiples of 32, which hopper adds at a time, or None; found 48"),
        ({"scale_order": "mixed"}, "mixed"),
        ({"a_format": "e4m3"}, "e4m3"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    names = ("a_codes", "a_scale", "w_codes", "w_scale")
    with pytest.raises(InputError, match=words):
        fp8_matmul(**(dict(zip(names, problem(tokens=4, rows=40, k=256), strict=True)) | change))


def test_dots_of_other_numbers():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 50)).astype(np.float32), rng.standard_normal((3000, 50)).astype(np.float32)
    exact = dot(x, w, "exact")
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, np.einsum("btk,nk->btn", x, w, dtype=np.float64), rtol=1e-12, atol=1e-12)
    assert dot(x, w, "hopper").dtype == np.float64
    fast = dot(x, w, "float32")
    assert (fast.dtype, fast.shape) == (np.float32, (2, 3, 3000))
    np.testing.assert_allclose(fast, exact, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match=r"\[2, 3, 50\] and \[4, 51\]"):
        dot(x, np.zeros((4, 51), np.float32))


@pytest.mark.parametrize("option", [{"promote": -5}, {"promote": 0}, {"group": 0}, {"group": 1.5}])
def test_options_that_count_are_positive(option):
    codes, scale = np.zeros((2, 128), np.uint8), np.ones((2, 1), np.float32)
    with pytest.raises(InputError, match=f"expected {next(iter(option))} to be a positive integer or None"):
        fp8_matmul(codes, scale, codes, np.ones((1, 1), np.float32), **option)


@pytest.mark.parametrize("accumulate", ["exact", "float32", "hopper"])
def test_small_integers_of_numpy_do_not_overflow(accumulate):
    a, sa, w, sw = problem(tokens=3, rows=300, k=384)
    small = {"group": np.uint8(128), "block": (np.uint8(128), np.uint8(128)), "promote": np.uint8(128)}
    equal_bits(fp8_matmul(a, sa, w, sw, accumulate, **small), fp8_matmul(a, sa, w, sw, accumulate))


def test_a_scale_of_nan_does_not_differ_from_itself():
    a, _, w, _ = problem(tokens=3, rows=40, k=384)
    sa, sw = np.float32([[1], [np.nan], [2]]).repeat(3, 1), np.full((1, 3), 0.5, np.float32)
    got = fp8_matmul(a, sa, w, sw, "hopper", promote=None)
    assert np.isnan(got[1]).all()
    sa[1] = 1
    equal_bits(got[[0, 2]], fp8_matmul(a, sa, w, sw, "hopper", promote=None)[[0, 2]])
    sa[1, 2] = np.nan
    with pytest.raises(InputError, match="k = 256"):
        fp8_matmul(a, sa, w, sw, "hopper", promote=None)


@pytest.mark.parametrize(
    ("x", "w", "want"),
    [(1e300, 1.0, np.inf), (np.inf, 0.0, np.nan), (np.float32(3e38), np.float32(3e38), np.inf)],
)
def test_dots_of_special_values_do_not_warn(x, w, want):
    np.testing.assert_array_equal(dot(np.full((1, 2), x), np.full((1, 2), w)), [[want]])


@pytest.mark.parametrize("other", [np.ones((1, 2), complex), np.full((1, 2), "1"), np.full((1, 2), None)])
def test_dots_are_of_real_numbers(other):
    for call in (lambda: dot(other, np.ones((1, 2))), lambda: dot(np.ones((1, 2)), other)):
        with pytest.raises(InputError, match=r"dot: [xw]: expected an array of numbers, found"):
            call()


@pytest.mark.parametrize("option", [{"accumulate": ["exact"]}, {"accumulate": np.zeros(2)}, {"scale_order": [1]}])
def test_options_that_are_no_words_are_refused(option):
    codes, scale = np.zeros((2, 128), np.uint8), np.ones((2, 1), np.float32)
    with pytest.raises(InputError, match=f"fp8_matmul: expected {next(iter(option))}"):
        fp8_matmul(codes, scale, codes, np.ones((1, 1), np.float32), **option)


def test_dots_with_no_rows_and_of_no_kind():
    x = np.ones((2, 3), np.float32)
    assert dot(x, np.ones((0, 3), np.float32)).shape == (2, 0)
    with pytest.raises(InputError, match=r"dot: expected accumulate .* found 'bogus'"):
        dot(x, x, "bogus")


def test_what_is_no_format_of_eight_bits_is_refused():
    codes, scale = np.zeros((2, 128), np.uint8), np.ones((2, 1), np.float32)
    for option in ({"a_format": "float32"}, {"w_format": "bfloat16"}, {"w_format": "e8m0"}):
        with pytest.raises(InputError, match=r"fp8_matmul|no number format"):
            fp8_matmul(codes, scale, codes, np.ones((1, 1), np.float32), **option)
    with pytest.raises(InputError, match="fp8_matmul: a_scale"):
        fp8_matmul(codes, np.ones(1, np.float32), codes, np.ones((1, 1), np.float32))
