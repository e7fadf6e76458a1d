"""Rounding arrays to a format: the fast form of `formats.round_plain`, equal to it in every bit.

Adding a number whose last place is the wanted one, and subtracting it again, makes the processor round. That
number, 1.5 * 2^(e + 23 - (p - 1)) for float32, is built from the exponent bits of x.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np

from blocklab.errors import InputError, brief
from blocklab.numerics.formats import Format, Overflow, choose_overflow, get_format
from blocklab.numerics.options import chosen, is_count
from blocklab.xp import Array, array_module

Rounding = Literal["nearest", "stochastic"]

CHUNK = 1 << 15
"""Elements that go through all operations of a conversion together, so that temporaries stay in the L2 cache."""


class Word(NamedTuple):
    """The bits of a working precision."""

    dtype: type
    integer: type
    fraction_bits: int
    exponent_mask: int
    sign_mask: int


WORDS = {
    np.dtype(np.float32): Word(np.float32, np.uint32, 23, 0x7F800000, 1 << 31),
    np.dtype(np.float64): Word(np.float64, np.uint64, 52, 0x7FF << 52, 1 << 63),
}


def round_to(
    x: Array,
    format: str | Format = "e4m3fn",
    overflow: Overflow | None = None,
    rounding: Rounding = "nearest",
    seed: int | None = None,
) -> Array:
    """Return `x` with every value moved onto the grid of a format.

    rint(x / 2^e) 2^e with e = max(exponent(x), emin) - (p - 1), ties to even; or, stochastic, up with the
    probability of the remainder (numpy's default generator from `seed`, one draw for each element in order).

    x: float32 or float64 of any shape (or Python numbers, taken as float64); the result has its dtype. A float64
    is rounded once. "float32" and "float64" are formats too, without options: what exceeds them is infinite.
    overflow: "saturate" turns what exceeds the largest value, infinity too, into that value. "nan" is the
    non-saturating mode of the OCP standard: infinity where the format has one, NaN elsewhere. None takes what casts
    do: "saturate" for formats of 8 bits and fewer, infinity for bfloat16, float16 and tf32.
    Special values: NaN stays NaN. Zeros keep their sign (e4m3fnuz and e5m2fnuz have +0 only), subnormals are
    kept. e8m0 has positive powers of two only: negative numbers give NaN, zero the smallest ("nan": NaN).
    Raises InputError for an unknown format or option, for what are no such numbers, and for stochastic rounding
    without a seed, a non-negative integer.
    Source: OCP 8-bit floating point v1.0, OCP MX v1.0; Triton and CUDA (satfinite) for "saturate".
    """
    x = as_floats(x, "round_to")
    if chosen(format, "float32", "float64"):
        usual = overflow is None or chosen(overflow, "nan")
        if not usual or not chosen(rounding, "nearest"):
            found = brief(rounding if usual else overflow)
            raise InputError(f"round_to: {format} is rounded by the processor: no {found} option")
        return _cast_through(x, str(format))
    fmt = get_format(format)
    rule = choose_overflow(fmt, overflow)
    out = array_module(x).empty(x.shape, x.dtype)
    with np.errstate(all="ignore"):
        if chosen(rounding, "nearest"):
            round_into(out, x, fmt, rule)
        elif chosen(rounding, "stochastic") and seed is not None:
            out[...] = _round_stochastic(x, fmt, rule, seed)
        else:
            found = brief(rounding)
            raise InputError(f"round_to: expected rounding 'nearest', or 'stochastic' with a seed; found {found}")
    return out if out.ndim else out[()]


def as_floats(x: Array, operation: str) -> Array:
    """Return Python numbers as a float64 array, and float32 and float64 arrays as given; refuse others."""
    if not hasattr(x, "dtype"):
        return _as_float64(x, operation)
    check_array(x, operation)
    if x.dtype not in WORDS:
        raise InputError(f"{operation}: expected float32 or float64 values, found {x.dtype}{list(x.shape)}")
    return x


def _as_float64(numbers: object, operation: str) -> np.ndarray:
    """Return a Python number, or a list or nested lists of them, as float64."""
    try:
        x = np.asarray(numbers)
        if x.dtype.kind in "biuf" or (x.dtype.kind == "O" and all(isinstance(item, Real) for item in x.flat)):
            return x.astype(np.float64)
    except (ValueError, TypeError, OverflowError):  # ragged lists, and integers beyond float64
        pass
    raise InputError(f"{operation}: expected float32 or float64 values, or numbers; found {brief(numbers)}")


def check_array(x: Array, label: str, kinds: str = "") -> None:
    """Refuse what is no array of numpy or cupy and, where `kinds` are given, an array of another kind of dtype."""
    plain = isinstance(x, (np.ndarray, np.generic)) and not isinstance(x, np.ma.MaskedArray)
    if not plain and array_module(x) is np:
        raise InputError(f"{label}: expected an array of numpy or cupy, found {type(x).__name__}")
    if kinds and x.dtype.kind not in kinds:
        raise InputError(f"{label}: expected an array of numbers, found {x.dtype}{list(x.shape)}")


def round_into(out: Array, x: Array, fmt: Format, rule: Overflow) -> None:
    """Round `x` to nearest into `out`, contiguous and of x's shape and dtype, chunk by chunk."""
    if not fmt.signed:
        out[...] = _round_power(x, fmt, rule)
    elif x.dtype == np.float32 and fmt.emin == -126:
        _round_bits(out, x, fmt, rule)
    else:
        word = WORDS[x.dtype]
        magic = array_module(x).empty(min(CHUNK, x.size) if array_module(x) is np else x.size, x.dtype)
        for part, target in chunks(x, out):
            _round_chunk(part, target, magic[: part.size], fmt, rule, word)


def chunks(x: Array, out: Array, size: int = CHUNK) -> Iterator[tuple[Array, Array]]:
    """Yield flat pieces of `x` and the pieces of the contiguous `out` they go to; all at once on a GPU."""
    xp = array_module(x)
    flat, target = xp.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    step = size if xp is np else max(flat.size, 1)
    for start in range(0, flat.size, step):
        yield flat[start : start + step], target[start : start + step]


def _round_chunk(x: Array, y: Array, magic: Array, fmt: Format, rule: Overflow, word: Word) -> None:
    """Round `x` into `y`; `magic` is room of the same shape. |x| must leave room for the added number."""
    xp = array_module(x)
    magic_bits = magic.view(word.integer)
    limit = word.dtype(fmt.max if rule == "saturate" else 2 * fmt.max)
    xp.clip(x, -limit, limit, out=y)
    xp.bitwise_and(y.view(word.integer), word.integer(word.exponent_mask), out=magic_bits)
    xp.clip(magic, word.dtype(fmt.min_normal), limit, out=magic)
    shift = word.fraction_bits - fmt.fraction_bits
    magic_bits += word.integer((shift << word.fraction_bits) + (1 << (word.fraction_bits - 1)))
    y += magic
    y -= magic
    if fmt.special != "fnuz":  # a negative number that became zero keeps its sign
        xp.bitwise_and(x.view(word.integer), word.integer(word.sign_mask), out=magic_bits)
        y.view(word.integer)[...] |= magic_bits
    if rule == "nan":
        _overflow(y, fmt)


def _overflow(y: Array, fmt: Format) -> None:
    """Turn what exceeds the largest value into infinity, or NaN where the format has none, in place."""
    xp = array_module(y)
    over = xp.abs(y) > fmt.max
    if over.any():
        y[over] = xp.copysign(xp.inf, y[over]) if fmt.has_infinity else xp.nan


def _round_bits(out: Array, x: Array, fmt: Format, rule: Overflow) -> None:
    """Round float32 to a format with float32's exponents, bfloat16 or tf32, by adding to its bits.

    Half of the last place less one, plus the last kept bit, carries where the value is above a tie or on an odd
    one; a carry out of the largest exponent gives infinity by itself.
    """
    xp = array_module(x)
    drop = 23 - fmt.fraction_bits
    keep = np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    size = 2 * CHUNK  # little room is needed, and few long steps let two threads run
    room = xp.empty(min(size, x.size) if xp is np else x.size, np.uint32)
    for part, target in chunks(x, out, size):
        nan = xp.isnan(part) if xp.isnan(part.max()) else None
        source = part if rule == "nan" else xp.clip(part, np.float32(-fmt.max), np.float32(fmt.max))
        bits, result, carry = source.view(np.uint32), target.view(np.uint32), room[: part.size]
        xp.right_shift(bits, np.uint32(drop), out=carry)
        carry &= np.uint32(1)
        carry += np.uint32((1 << (drop - 1)) - 1)
        xp.add(bits, carry, out=result)
        result &= keep
        if nan is not None:
            target[nan] = xp.nan


def split_into(out: Array, x: Array, fmt: Format) -> None:
    """Round float32 `x` to nearest into `out`, by Veltkamp's splitting: c = (2^drop + 1) x; c - (c - x).

    Three operations instead of the five of `round_into`. Magnitudes must be 0, or at least the format's least normal
    number and below 2^(127 - drop), so that nothing is subnormal and c is finite; NaN stays NaN.
    That the result is a nearest number is a theorem; that ties go to even is tested for all 2^23 fractions.
    Source: Dekker, Numerische Mathematik 18 (1971); Boldo, IJCAR 2006.
    """
    xp = array_module(x)
    large = xp.multiply(x, np.float32(2 ** (23 - fmt.fraction_bits) + 1))
    xp.subtract(large, x, out=out)
    xp.subtract(large, out, out=out)


def _round_power(x: Array, fmt: Format, rule: Overflow) -> Array:
    """Return float64 powers of two for e8m0; a tie, 1.5 * 2^k, goes up."""
    xp = array_module(x)
    fraction, exponent = xp.frexp(x.astype(np.float64))  # fraction in [1/2, 1)
    y = xp.ldexp(xp.where(fraction >= 0.75, 1.0, xp.where(x == 0, 0.0, 0.5)), exponent)
    y = xp.where(xp.isfinite(x), xp.maximum(y, fmt.min_normal), xp.abs(x))
    y = xp.where(y > fmt.max, fmt.max if rule == "saturate" else xp.nan, y)
    return xp.where((x < 0) | ((x == 0) & (rule == "nan")), xp.nan, y)


def _round_stochastic(x: Array, fmt: Format, rule: Overflow, seed: int) -> Array:
    """Return float64 values: the magnitude rounded up where the remainder exceeds a uniform draw in [0, 1)."""
    if not fmt.signed:
        raise InputError(f"round_to {fmt.name}: expected rounding 'nearest' for a format of powers of two")
    if not is_count(seed, 0):
        raise InputError(f"round_to: expected seed to be a non-negative integer, found {brief(seed)}")
    xp = array_module(x)
    draws = xp.asarray(np.random.default_rng(seed).random(x.shape))
    limit = fmt.max if rule == "saturate" else 2 * fmt.max
    y = xp.clip(x.astype(np.float64), -limit, limit)
    magnitude = xp.abs(y)
    exponent = xp.where(magnitude > 0, xp.frexp(magnitude)[1] - 1, fmt.emin)
    exponent = xp.maximum(exponent, fmt.emin) - fmt.fraction_bits
    whole = xp.ldexp(magnitude, -exponent)
    down = xp.floor(whole)
    y = xp.asarray(xp.copysign(xp.ldexp(down + (whole - down > draws), exponent), y))
    if fmt.special == "fnuz":
        y += 0.0
    _overflow(y, fmt)
    return y


def _cast_through(x: Array, name: str) -> Array:
    """Return `x` rounded to float32 or float64 by the processor, in x's dtype."""
    with np.errstate(all="ignore"):
        return x.astype(name).astype(x.dtype)
