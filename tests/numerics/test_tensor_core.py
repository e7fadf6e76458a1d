"""Tensor cores: the rules one by one, and the vector form against the plain one."""

import math
from pathlib import Path

import numpy as np
import pytest

from blocklab.errors import InputError
from blocklab.numerics import CORES, FORMATS, TensorCore, decode, fp8_matmul, step_plain, tensor_core_dot

HOPPER = CORES["hopper"]


def dot(a, b, core=HOPPER, c=0.0, formats=("e4m3fn", "e4m3fn")):
    """Return the dot of two short lists by both forms, which must agree."""
    fast = tensor_core_dot(np.float32(a), np.float32(b), core, np.float32(c), formats)
    emins = tuple(FORMATS[name].emin for name in formats)
    plain = float(c)
    for i in range(0, len(a), core.terms):
        plain = step_plain(plain, a[i : i + core.terms], b[i : i + core.terms], core, emins)
    assert fast.dtype == np.float32
    assert float(fast) == plain
    assert np.signbit(fast) == np.signbit(plain)
    return plain


PROBES = {
    # 448 * 448 = 1.53 * 2^17 from exponents 8 + 8: the last place is 2^(16 - 13) = 8
    "small products are swallowed": ([448] + [1] * 31, [448] + [7] * 31, 0, 200704),
    # 200704 is above 2^17, so the sum keeps multiples of 16
    "two at the last place are not": ([448, 2, 2], [448, 4, 4], 0, 200704 + 16),
    "the sum is cut to 14 bits": ([448, 2, 2], [448, 4, 8], 0, 200704 + 16),
    # 448 * 2^-6 = 7, below the last place
    "DeepGEMM 37": ([448, 2.0**-6], [448, 1], 0, 200704),
    "a negative product is cut toward zero": ([16, -1], [16, 2.0**-6], 0, 256),
    "a negative sum is cut toward zero": ([-16, -1], [16, 2.0**-6], 0, -256),
    # 1.875 * 1.875 = 3.515625 has exponent 0, not 1: 2^-13 stays, where renormalised products would lose it
    "alignment by the exponents of the operands": ([1.875, 2.0**-6, -1.875], [1.875, 2.0**-7, 1.875], 0, 2.0**-13),
    # 2^-9 is a subnormal and counts from 2^-6, so the last place is 2^(-6 + 8 - 13) = 2^-11
    "a subnormal keeps the least exponent": ([2.0**-9, 2.0**-6], [256, 2.0**-6], 0, 0.5),
    "C is cut as the products are": ([1], [1], 2.0**-14, 1),
    "C wider than 13 bits is cut": ([2.0**-9], [2.0**-9], 1 + 2.0**-13 + 2.0**-14, 1 + 2.0**-13),
    "C alone keeps 14 bits": ([0], [1], 1 + 2.0**-13 + 2.0**-14, 1 + 2.0**-13),
    "a large C swallows products": ([1] * 32, [1] * 32, 2.0**19, 2.0**19),
    "a large C swallows each product before they add up": ([1] * 32, [1.5] * 32, 2.0**14, 2.0**14),
    "cancellation gives +0": ([1, -1], [1, 1], 0, 0.0),
    "zeros give +0": ([-0.0, 0], [1, -1], -0.0, 0.0),
    "a zero does not raise the largest exponent": ([0, 2.0**-6], [448, 2.0**-6], 0, 2.0**-12),
}


@pytest.mark.parametrize("name", PROBES)
def test_probe(name):
    a, b, c, want = PROBES[name]
    assert dot(a, b, c=c) == want


RECORDED = np.load(Path(__file__).parents[1] / "fixtures" / "h100-e4m3-k32.npz")


def test_all_5000_recorded_results_of_an_h100():
    a, b, d = decode(RECORDED["a"]), decode(RECORDED["b"]), RECORDED["d"]
    assert a.shape == b.shape == (5000, 32)
    np.testing.assert_array_equal(tensor_core_dot(a, b).view(np.uint32), d.view(np.uint32))
    plain = [step_plain(0.0, x, y, HOPPER) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(np.float32(plain).view(np.uint32), d.view(np.uint32))
    one = np.ones((1, 1), np.float32)
    for row in range(0, 5000, 500):
        y = fp8_matmul(RECORDED["a"][row : row + 1], one, RECORDED["b"][row : row + 1], one, "hopper")
        assert y[0, 0] == d[row]


@pytest.mark.parametrize(
    "core",
    [
        CORES["ada"],
        CORES["blackwell"],
        *(TensorCore("", 32, align, keep) for align, keep in ((12, 13), (14, 13), (13, 12), (13, 14))),
    ],
    ids=["ada", "blackwell", "align 12", "align 14", "keep 12", "keep 14"],
)
def test_the_recorded_results_tell_other_cores_apart(core):
    found = tensor_core_dot(decode(RECORDED["a"]), decode(RECORDED["b"]), core)
    assert (found != RECORDED["d"]).sum() > 50


WRONG = {
    "wider alignment": TensorCore("", 32, 14, 13),
    "wider register": TensorCore("", 32, 13, 14),
    "narrower": TensorCore("", 32, 12, 12),
    "float32": TensorCore("", 32, 25, 23),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_probes_tell_other_widths_apart(name):
    differ = [p for p, (a, b, c, want) in PROBES.items() if dot(a, b, WRONG[name], c) != want]
    assert differ


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 13, 13), "terms must be a positive integer; found 0"),
        ((32, 13.0, 13), "align_bits must be a positive integer; found 13.0"),
        ((32, 13, 24), "keep_bits must be at most 23, as float32 has; found 24"),
        ((32, 46, 23), "align_bits 46 and 32 terms make sums of 54 bits; expected at most the 53 of float64"),
    ],
)
def test_a_core_that_float64_could_not_follow(numbers, words):
    with pytest.raises(InputError, match=words):
        TensorCore("mine", *numbers)


@pytest.mark.parametrize(("terms", "align"), [(32, 45), (1, 49), (15, 46)])
def test_the_widest_cores_have_the_bits_of_the_plain_step(terms, align):
    fuzz(TensorCore("wide", terms, align, 23), ("bfloat16", "bfloat16"), 500, 32, seed=0)


def wrong_step(c, a, b, fault):
    """Hopper's step with one rule broken, in float64."""
    products = np.multiply(a, b, dtype=np.float64)
    exponents = np.floor(np.log2(np.abs([*products, c, 2.0**-40])))
    if fault != "renormalised products":
        parts = [np.floor(np.log2(np.maximum(np.abs(np.float64(v)), 2.0**-40))) for v in (a, b)]
        if fault != "subnormals renormalised":
            parts = [np.maximum(p, -6) for p in parts]
        exponents[: len(products)] = np.where(products != 0, parts[0] + parts[1], -40)
        if fault == "zeros count":
            exponents[: len(products)] = parts[0] + parts[1]
    if fault == "C not aligned":
        exponents[len(products)] = -40
    unit = 2.0 ** (exponents.max() - 13)
    cut = np.floor if fault == "floor" else np.rint if fault == "nearest" else np.trunc
    total = (cut(products / unit).sum() + cut(c / unit)) * unit
    if total == 0:
        return 0.0
    unit = 2.0 ** (np.floor(np.log2(abs(total))) - 13)
    return float(cut(total / unit) * unit)


@pytest.mark.parametrize(
    "fault",
    ["renormalised products", "subnormals renormalised", "zeros count", "C not aligned", "floor", "nearest", None],
)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_the_probes_tell_broken_rules_apart(fault):
    differ = [p for p, (a, b, c, want) in PROBES.items() if wrong_step(c, a, b, fault) != want]
    assert bool(differ) == (fault is not None), differ


def test_ada_does_sixteen_products_a_step():
    a, b = [1] * 16 + [448] + [0] * 15, [1] * 16 + [448] + [0] * 15
    assert dot(a, b, HOPPER) == 200704
    assert dot(a, b, CORES["ada"]) == 200704 + 16


def test_blackwell_keeps_the_small_product_that_hopper_loses():
    assert dot([448, 2.0**-6], [448, 1], CORES["blackwell"]) == 200704.015625
    assert dot([448, -(2.0**-4)], [448, 2.0**-4], CORES["blackwell"]) == np.nextafter(np.float32(200704), np.float32(0))


def test_bfloat16_keeps_float32_toward_zero():
    both = ("bfloat16", "bfloat16")
    assert dot([1, 2.0**-12], [1, 2.0**-12], CORES["hopper-bf16"], formats=both) == 1.0
    assert dot([1, 2.0**-12, 2.0**-12], [1, 2.0**-12, 2.0**-12], CORES["hopper-bf16"], formats=both) == 1 + 2.0**-23
    assert dot([1, -(2.0**-12)], [1, 2.0**-12], CORES["hopper-bf16"], formats=both) == 1 - 2.0**-24
    tiny = [2.0**-75, 2.0**-75]
    assert dot(tiny, [2.0**-75, 2.0**-74], CORES["hopper-bf16"], formats=both) == 2.0**-149
    assert dot([2.0**100], [2.0**100], CORES["hopper-bf16"], formats=both) == np.inf


def random_operands(rng, count, k, name):
    codes = rng.integers(0, 1 << FORMATS[name].bits, (count, k))
    if FORMATS[name].bits == 16:
        values = decode(((codes & 0x87FF) | 0x3800).astype(np.uint16), name)
    else:
        values = decode(codes.astype(np.uint8), name)
    values = np.where(np.isfinite(values), values, 0)
    values[::3] *= rng.random((len(values[::3]), k)) < 0.1  # few terms
    narrow = rng.integers(0, 4, (count, 1))
    return np.where(narrow == 0, np.sign(values) * (np.abs(values) % 2), values).astype(np.float32)


CASES = [
    ("hopper", "e4m3fn", "e4m3fn"),
    ("ada", "e4m3fn", "e5m2"),
    ("blackwell", "e5m2", "e5m2"),
    ("hopper-bf16", "bfloat16", "bfloat16"),
]


def fuzz(core, formats, count, k, seed):
    """Compare both forms on random dots, half of them with a register that is not zero."""
    rng = np.random.default_rng(seed)
    a, b = (random_operands(rng, count, k, name) for name in formats)
    emins = tuple(FORMATS[name].emin for name in formats)
    for c in (
        np.zeros(count, np.float32),
        (rng.standard_normal(count) * 2.0 ** rng.integers(-30, 30, count)).astype(np.float32),
    ):
        fast = tensor_core_dot(a, b, core, c, formats)
        plain = c.tolist()
        for start in range(0, k, core.terms):
            part = slice(start, start + core.terms)
            rows = zip(plain, a[:, part].tolist(), b[:, part].tolist(), strict=True)
            plain = [step_plain(r, x, y, core, emins) for r, x, y in rows]
        np.testing.assert_array_equal(fast.view(np.uint32), np.float32(plain).view(np.uint32))


@pytest.mark.parametrize(("core", "first", "second"), CASES)
def test_the_vector_form_has_the_bits_of_the_plain_one(core, first, second):
    fuzz(CORES[core], (first, second), 5000, 32, seed=0)
    fuzz(CORES[core], (first, second), 500, 150, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_random_dots(seed):
    fuzz(HOPPER, ("e4m3fn", "e4m3fn"), 50_000, 32, seed)


def test_promotion_restarts_the_register():
    rng = np.random.default_rng(0)
    a, b = (random_operands(rng, 40, 300, "e4m3fn") for _ in range(2))
    want = np.zeros(40, np.float32)
    for start in range(0, 300, 128):
        want += tensor_core_dot(a[:, start : start + 128], b[:, start : start + 128])
    np.testing.assert_array_equal(tensor_core_dot(a, b, promote=128), want)
    assert (tensor_core_dot(a, b) != want).any()


def test_special_values():
    nan, inf = np.nan, np.inf
    a = np.float32([[nan, 1], [1, 1], [inf, 1], [inf, -inf], [inf, 1], [0, -inf]])
    b = np.float32([[1, 1], [0, nan], [1, 1], [1, 1], [0, 1], [0, 1]])
    got = tensor_core_dot(a, b, formats=("e5m2", "e5m2"))
    np.testing.assert_array_equal(got, np.float32([nan, nan, inf, nan, nan, -inf]))


def test_shapes_broadcast_to_a_matrix_product():
    rng = np.random.default_rng(0)
    a, b = random_operands(rng, 3, 64, "e4m3fn"), random_operands(rng, 5, 64, "e4m3fn")
    got = tensor_core_dot(a[:, None], b)
    assert got.shape == (3, 5)
    assert got[2, 4] == tensor_core_dot(a[2], b[4])
    with pytest.raises(InputError, match="K"):
        tensor_core_dot(a, b[:, 1:])
    with pytest.raises(InputError, match="multiples of 32"):
        tensor_core_dot(a, a, promote=48)
    with pytest.raises(InputError, match="hoper"):
        tensor_core_dot(a, a, "hoper")


def test_matmul_adds_group_by_group_in_the_register():
    rng = np.random.default_rng(5)
    a = rng.integers(0, 127, (3, 300)).astype(np.uint8)
    w = rng.integers(0, 127, (130, 300)).astype(np.uint8) | np.uint8(0x80) * rng.integers(0, 2, (130, 300), np.uint8)
    sa = (2.0 ** rng.integers(-8, 8, (3, 3)) * 1.1).astype(np.float32)
    sw = (2.0 ** rng.integers(-8, 8, (2, 3)) * 1.3).astype(np.float32)
    values = decode(a)[:, None], decode(w)
    want = np.zeros((3, 130), np.float32)
    for g in range(3):
        part = slice(128 * g, 128 * g + 128)
        dots = tensor_core_dot(values[0][..., part], values[1][..., part])
        want += dots * sa[:, g, None] * np.repeat(sw[:, g], 128)[:130]
    np.testing.assert_array_equal(fp8_matmul(a, sa, w, sw, "hopper"), want)
    by_half = fp8_matmul(a, sa, w, sw, "hopper", promote=64)
    assert (by_half != want).any()


def test_shapes_that_do_not_broadcast_are_refused():
    with pytest.raises(InputError, match=r"expected shapes that broadcast, found \[3, 8\], \[2, 8\]"):
        tensor_core_dot(np.ones((3, 8), np.float32), np.ones((2, 8), np.float32))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"formats": ("e4m3fn",)}, r"expected formats to be two, of a and b; found \('e4m3fn',\)"),
        ({"formats": None}, "expected formats to be two"),
        ({"formats": ("e4m3fn", ["e5m2"])}, r"no number format \['e5m2'\]"),
        ({"promote": "32"}, "in multiples of 32, .* found '32'"),
        ({"promote": 32.0}, "in multiples of 32, .* found 32.0"),
        ({"core": ["hopper"]}, r"no tensor core \['hopper'\]"),
        ({"core": np.zeros(2)}, "no tensor core array"),
    ],
)
def test_options_that_are_none_are_refused(option, words):
    x = np.ones((2, 64), np.float32)
    with pytest.raises(InputError, match=words):
        tensor_core_dot(x, x, **option)


def test_small_integers_of_numpy_promote():
    x = np.full((2, 320), 3, np.float32)
    np.testing.assert_array_equal(tensor_core_dot(x, x, promote=np.uint8(224)), tensor_core_dot(x, x, promote=224))


def test_numbers_beyond_float32_do_not_warn():
    one = np.ones(1)
    assert tensor_core_dot(np.array([1e300]), one) == np.inf
    assert tensor_core_dot(one, one, c=-1e300) == -np.inf
    assert tensor_core_dot(one, one, c=2) == 3


def test_a_register_of_zero_is_plus_zero():
    core = CORES["hopper-bf16"]
    assert math.copysign(1, step_plain(0.0, [-(2.0**-126)], [2.0**-126], core, (-126, -126))) == 1
