"""Matrix units of GPUs, by three numbers each: how they align, add and truncate the products of a dot.

A step adds some products to a register. All of them, and the register, are cut off below a common last place, a
fixed number of bits under the largest exponent among them, and then added exactly; the sum is cut off again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blocklab.errors import InputError, brief
from blocklab.numerics.formats import get_format
from blocklab.numerics.options import chosen, is_count
from blocklab.numerics.rounding import as_floats, check_array
from blocklab.xp import Array, array_module

C_EMIN = -126
"""Least exponent of the register: that of a normal float32."""


@dataclass(frozen=True)
class TensorCore:
    """The arithmetic of one kind of matrix unit.

    terms       products that one step adds to the register
    align_bits  bits below the largest exponent at which products and register are cut off before they are added
    keep_bits   bits of the sum's fraction that the register keeps; 23 is float32 rounded toward zero
    """

    name: str
    terms: int
    align_bits: int
    keep_bits: int

    def __post_init__(self) -> None:
        for field in ("terms", "align_bits", "keep_bits"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise InputError(f"tensor core {self.name}: {field} must be a positive integer; found {brief(value)}")
        if self.keep_bits > 23:
            raise InputError(
                f"tensor core {self.name}: keep_bits must be at most 23, as float32 has; found {self.keep_bits}"
            )
        if self.sum_bits > 53:
            raise InputError(
                f"tensor core {self.name}: align_bits {self.align_bits} and {self.terms} terms make sums of"
                f" {self.sum_bits} bits; expected at most the 53 of float64"
            )

    @property
    def sum_bits(self) -> int:
        """Bits of the exact sum of one step: products are below 4 units of the largest exponent."""
        return 2 + self.align_bits + (self.terms + 1).bit_length()


HOPPER_FP8 = TensorCore("hopper", terms=32, align_bits=13, keep_bits=13)
ADA_FP8 = TensorCore("ada", terms=16, align_bits=13, keep_bits=13)
BLACKWELL_FP8 = TensorCore("blackwell", terms=32, align_bits=25, keep_bits=23)
HOPPER_BF16 = TensorCore("hopper-bf16", terms=16, align_bits=25, keep_bits=23)

CORES = {core.name: core for core in (HOPPER_FP8, ADA_FP8, BLACKWELL_FP8, HOPPER_BF16)}
"""The cores by name. Hopper's FP8 numbers are held against recorded results of an H100; the others are published."""


def tensor_core_dot(
    a: Array,
    b: Array,
    core: str | TensorCore = HOPPER_FP8,
    c: Array | float = 0.0,
    formats: tuple[str, str] = ("e4m3fn", "e4m3fn"),
    promote: int | None = None,
) -> Array:
    """Return the dot of `a` and `b` over the last axis as a tensor core adds it up, in float32.

    Each step takes the next products p_i = a_i b_i; with e(x) = max(floor(log2|x|), emin) of x's format,
    E = max(e(a_i) + e(b_i), e(C)) over the terms that are not zero, u = 2^(E - align_bits):
    C = cut(sum trunc(p_i / u) u + trunc(C / u) u), where cut keeps keep_bits fraction bits, toward zero.

    a, b: [..., K] values of `formats`, which broadcast: a [T, 1, K] and b [N, K] give the matrix product [T, N].
    c: what the register starts from, float32. promote: add the register to a float32 sum (rounded to nearest) after
    so many products and start again from 0; `c` then starts the sum. None never does. K may end within a step.
    Special values: a sum of zero is +0. NaN gives NaN; infinities add up as in IEEE arithmetic (one of each sign,
    or one times zero, is NaN). A result beyond float32 is infinite.
    Raises InputError for what are no arrays of numbers, for shapes that do not fit, for `formats` that are no pair
    and for a `promote` that is no multiple of the core's terms.
    Source: numerics.md section 4; MMA-Sim (arXiv 2511.10909); Khattak and Mikaitis (arXiv 2512.07004).
    """
    core = get_core(core)
    for name, operand in (("a", a), ("b", b)):
        check_array(operand, f"tensor_core_dot: {name}", "biuf")
    xp = array_module(a, b)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-1]:
        raise InputError(f"tensor_core_dot: expected a [..., K] and b [..., K], found {list(a.shape)}, {list(b.shape)}")
    if not isinstance(formats, (tuple, list)) or len(formats) != 2:
        raise InputError(f"tensor_core_dot: expected formats to be two, of a and b; found {brief(formats)}")
    promote, c = check_promote("tensor_core_dot", core, promote), as_floats(c, "tensor_core_dot: c")
    with np.errstate(all="ignore"):
        total = xp.asarray(c, np.float32)
        narrow = fits_float32(core, formats) and not total.any()
        left, right = (Operand.of(xp.moveaxis(x, -1, 0), name, narrow) for x, name in zip((a, b), formats, strict=True))
    try:
        shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1], total.shape)
    except ValueError:
        found = f"{list(a.shape)}, {list(b.shape)} and c {list(total.shape)}"
        raise InputError(f"tensor_core_dot: expected shapes that broadcast, found {found}") from None
    total = total + xp.zeros(shape or (1,), np.float32)
    with np.errstate(all="ignore"):
        if promote is None:
            return register_dot(left, right, total, core).reshape(shape)
        for start in range(0, a.shape[-1], promote):
            part = slice(start, start + promote)
            total = total + register_dot(left[part], right[part], xp.zeros(total.shape, np.float32), core)
    return total.reshape(shape)


def step_plain(
    c: float, a: Sequence[float], b: Sequence[float], core: TensorCore, emins: tuple[int, int] = (-6, -6)
) -> float:
    """Return the register after one step, for Python numbers: the rules of `tensor_core_dot`, word by word.

    Products of FP8 and bfloat16 numbers are exact as Python floats, and what remains after the alignment is an
    integer. `emins` are the least exponents of the two formats. a and b are finite.
    """
    terms = [(x * y, exponent_plain(x, emins[0]) + exponent_plain(y, emins[1])) for x, y in zip(a, b, strict=True)]
    terms.append((c, exponent_plain(c, C_EMIN)))
    counted = [exponent for value, exponent in terms if value]
    if not counted or math.isinf(c):
        return c + 0.0
    unit = max(counted) - core.align_bits
    total = sum(math.trunc(math.ldexp(value, -unit)) for value, _ in terms)
    drop = max(abs(total).bit_length() - (core.keep_bits + 1), C_EMIN - 23 - unit, 0)
    value = math.ldexp(abs(total) >> drop << drop, unit)
    return math.copysign(value if value < 2.0**128 else math.inf, total) + 0.0  # a zero is +0


def exponent_plain(x: float, emin: int) -> int:
    """Return max(floor(log2|x|), emin)."""
    return max(math.frexp(x)[1] - 1, emin)


def check_promote(label: str, core: TensorCore, promote: int | None) -> int | None:
    """Return the products between two promotions; refuse a promotion inside a step of the core."""
    if promote is None:
        return None
    if not is_count(promote) or int(promote) % core.terms:
        raise InputError(
            f"{label}: expected promote in multiples of {core.terms}, which {core.name} adds at a time, or None;"
            f" found {brief(promote)}"
        )
    return int(promote)


def get_core(core: str | TensorCore) -> TensorCore:
    """Return a core by name, or as given."""
    if isinstance(core, TensorCore):
        return core
    if not chosen(core, *CORES):
        raise InputError(f"no tensor core {brief(core)}; there are {', '.join(CORES)}")
    return CORES[core]


@dataclass(frozen=True)
class Operand:
    """Values [K, ...] with the exponents they are aligned by; a zero's is below that of every product."""

    values: Array
    exponents: Array

    @classmethod
    def of(cls, values: Array, format: str, narrow: bool) -> Operand:
        """Take values apart, in float32 and int8 where `narrow` says that these are wide enough."""
        xp = array_module(values)
        values = values.astype(np.float32 if narrow else np.float64)
        exponents = xp.maximum(xp.frexp(values)[1] - 1, get_format(format).emin)
        exponents = xp.where(values == 0, -60 if narrow else -2000, exponents)
        return cls(values, exponents.astype(np.int8 if narrow else np.int16))

    def __getitem__(self, part: slice | tuple[slice, ...]) -> Operand:
        return Operand(self.values[part], self.exponents[part])


def fits_float32(core: TensorCore, formats: tuple[str, str]) -> bool:
    """Return whether float32 holds the aligned sums of a core, and int8 the exponents, for these formats.

    That is for a register which started from zero, so that it is not far smaller than every product.
    """
    return core.sum_bits <= 24 and all(get_format(name).bits <= 8 for name in formats)


def register_dot(a: Operand, b: Operand, c: Array, core: TensorCore) -> Array:
    """Return, in float32, register `c` after the steps over the products of `a` and `b`, which broadcast to c's shape.

    What is not finite stays out of the steps and is added at the end.
    """
    xp = array_module(a.values)
    dtype = a.values.dtype
    finite = bool(xp.isfinite(a.values).all() and xp.isfinite(b.values).all() and xp.isfinite(c).all())
    if not finite:
        with np.errstate(all="ignore"):
            special = sum((x.astype(np.float64) * y for x, y in zip(a.values, b.values, strict=True)), c)
        a, b = (Operand(xp.where(xp.isfinite(x.values), x.values, 0), x.exponents) for x in (a, b))
        c = xp.where(xp.isfinite(c), c, 0)
    c = xp.array(c, dtype)
    room = xp.empty((2, *c.shape), dtype)
    exponents = xp.empty((2, *c.shape), a.exponents.dtype)
    for start in range(0, a.values.shape[0], core.terms):
        part = slice(start, start + core.terms)
        _step(c, a[part], b[part], core, room, exponents)
    return c.astype(np.float32) if finite else xp.where(xp.isfinite(special), c, special).astype(np.float32)


def _step(c: Array, a: Operand, b: Operand, core: TensorCore, room: Array, exponents: Array) -> None:
    """Add the products of one step to the register `c`, in place; `step_plain` for arrays."""
    xp = array_module(c)
    product, scale = room
    top, exponent = exponents
    _register_exponent(c, out=top)
    for x, y in zip(a.exponents, b.exponents, strict=True):
        xp.add(x, y, out=exponent)
        xp.maximum(top, exponent, out=top)
    _power_of_two(core.align_bits - top.astype(np.int32), out=scale)
    c *= scale
    xp.trunc(c, out=c)
    c += 0.0  # no -0
    for x, y in zip(a.values, b.values, strict=True):
        xp.multiply(x, y, out=product)
        product *= scale
        xp.trunc(product, out=product)
        c += product
    _power_of_two(top.astype(np.int32) - core.align_bits, out=scale)
    _cut(c, core.keep_bits)
    c *= scale
    if c.dtype == np.float64:
        _cut_to_float32_range(c)


def _register_exponent(c: Array, out: Array) -> None:
    """Write max(floor(log2|c|), -126), from the exponent bits, and the least value of all for zero."""
    xp = array_module(c)
    if c.dtype == np.float32:
        out[...] = ((c.view(np.int32) >> 23) & 0xFF) - 127
    else:
        out[...] = xp.where(c == 0, -4000, xp.maximum(((c.view(np.int64) >> 52) & 0x7FF) - 1023, C_EMIN))


def _power_of_two(exponent: Array, out: Array) -> None:
    """Write 2^exponent; where all terms are zero the exponent is far off, and any finite power will do."""
    xp = array_module(out)
    if out.dtype == np.float32:
        out.view(np.int32)[...] = (xp.clip(exponent, -126, 127) + 127) << 23
    else:
        out.view(np.int64)[...] = (xp.clip(exponent, -1022, 1023).astype(np.int64) + 1023) << 52


def _cut(c: Array, keep_bits: int) -> None:
    """Truncate toward zero, in place, to so many fraction bits."""
    if c.dtype == np.float32:
        c.view(np.uint32)[...] &= np.uint32(0xFFFFFFFF << (23 - keep_bits) & 0xFFFFFFFF)
    else:
        c.view(np.uint64)[...] &= np.uint64((1 << 64) - (1 << (52 - keep_bits)))


def _cut_to_float32_range(c: Array) -> None:
    """Truncate to float32's subnormals, and let what exceeds its largest number become infinite."""
    xp = array_module(c)
    small = xp.abs(c) < 2.0**C_EMIN
    if small.any():
        c[small] = xp.trunc(c[small] * 2.0**149) * 2.0**-149 + 0.0
    c[c >= 2.0**128] = xp.inf
    c[c <= -(2.0**128)] = -xp.inf
