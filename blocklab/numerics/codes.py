"""Codes of number formats: values to bit patterns and back."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import numpy as np

from blocklab.errors import InputError
from blocklab.file_array import in_memory
from blocklab.numerics.formats import FORMATS, Format, Overflow, choose_overflow, decode_plain, get_format
from blocklab.numerics.options import chosen
from blocklab.numerics.rounding import CHUNK, WORDS, as_floats, check_array, chunks, round_into
from blocklab.xp import Array, array_module


def encode(x: Array, format: str | Format = "e4m3fn", overflow: Overflow | None = None) -> Array:
    """Return the codes of `x` rounded to a format: uint8, or uint16 for bfloat16 and float16.

    A code is sign, exponent field, fraction; below the smallest normal number it is the count of the smallest
    subnormal. x: float32 or float64 of any shape, rounded to nearest as in `round_to`, which explains `overflow`.
    NaN gives the format's positive NaN (0x7F for e4m3fn, 0x80 for the fnuz formats); -0 gives 0 in fnuz formats.
    Raises InputError for NaN in e2m1, which has no such code, for what are no such numbers, and for formats without
    codes here: tf32, and your own of more than 8 bits.
    """
    fmt = get_format(format)
    x = as_floats(x, f"encode {fmt.name}")
    rule = choose_overflow(fmt, overflow)
    _check_stored("encode", fmt)
    out = array_module(x).empty(x.shape, np.uint8 if fmt.bits <= 8 else np.uint16)
    with np.errstate(all="ignore"):
        encode_into(out, x, fmt, rule)
    return out if out.ndim else out[()]


def encode_into(out: Array, x: Array, fmt: Format, rule: Overflow) -> None:
    """Write the codes of `x` into the contiguous `out` of the same shape, chunk by chunk."""
    xp = array_module(x)
    room = xp.empty((3, min(CHUNK, x.size) if xp is np else x.size), x.dtype)
    narrow = fmt.bits <= 8 and fmt.signed
    for part, target in chunks(x, out):
        rounded, y, magic = room[:, : part.size]
        if not narrow or rule == "nan":
            round_into(rounded, part, fmt, rule)
            part = rounded
        if narrow:
            _encode_chunk(part, target, y, magic, fmt)
        else:
            _encode_wide(part, target, fmt)
        _encode_special(part, target, fmt, rule)


def _encode_wide(values: Array, out: Array, fmt: Format) -> None:
    """Write the codes of rounded values of a 16-bit format or of e8m0."""
    if fmt.bits <= 8:
        out[...] = array_module(values).frexp(values)[1] + (fmt.bias - 1)
    elif fmt.name == "float16":
        out[...] = values.astype(np.float16).view(np.uint16)
    else:
        bits = values.astype(np.float32, copy=False).view(np.uint32)
        array_module(out).right_shift(bits, np.uint32(16), out=out, casting="unsafe")


def _encode_chunk(x: Array, out: Array, y: Array, magic: Array, fmt: Format) -> None:
    """Write the codes of `x` in 8 bits or fewer; `y` and `magic` are room of x's shape and dtype.

    |x| + 2^(e + 23 - (p - 1)) holds the rounded significand q in its lowest bits (see `rounding`), and the code
    is ((e - emin) << (p - 1)) + q for normal and subnormal numbers alike.
    """
    xp = array_module(x)
    word = WORDS[x.dtype]
    integer, width = word.integer, word.fraction_bits
    code, magic_bits = y.view(integer), magic.view(integer)
    xp.abs(x, out=y)
    xp.clip(y, word.dtype(0), word.dtype(fmt.max), out=y)
    xp.bitwise_and(code, integer(word.exponent_mask), out=magic_bits)
    xp.clip(magic, word.dtype(fmt.min_normal), word.dtype(fmt.max), out=magic)
    shift = width - fmt.fraction_bits
    magic_bits += integer(shift << width)
    y += magic
    code -= magic_bits
    magic_bits >>= integer(shift)
    code += magic_bits
    code -= integer((fmt.emin + (word.exponent_mask >> width >> 1) + shift) << fmt.fraction_bits)
    xp.right_shift(x.view(integer), integer(8 * x.dtype.itemsize - fmt.bits), out=magic_bits)
    magic_bits &= integer(fmt.sign_bit)
    code |= magic_bits
    out[...] = code  # the low 8 bits


def _encode_special(values: Array, out: Array, fmt: Format, rule: Overflow) -> None:
    """Put right in place the codes of zeros without sign, of infinities that were saturated, and of NaN."""
    xp = array_module(values)
    if fmt.special == "fnuz":
        out[out == fmt.sign_bit] = 0
    if rule == "nan" and fmt.has_infinity and fmt.bits <= 8:
        infinite = xp.isinf(values)
        exponent = fmt.sign_bit - (1 << fmt.fraction_bits)  # all its bits
        out[infinite] = (out[infinite] & np.uint8(fmt.sign_bit)) | np.uint8(exponent)
    if xp.isnan(values.max()):
        if fmt.nan_code is None:
            raise InputError(f"encode {fmt.name}: expected numbers, found NaN, which {fmt.name} cannot hold")
        out[xp.isnan(values)] = fmt.nan_code


def decode(codes: Array, format: str | Format = "e4m3fn") -> Array:
    """Return the values of codes as float32.

    codes: uint8, or uint16 for bfloat16 and float16, of any shape; float16 also as a float16 array. "float32" and
    "float64" return a float32 or float64 array in that dtype (so float64 stays float64): the very array if it has it.
    Special values: as the format has them; codes above 15 of e2m1 are refused.
    Raises InputError for codes of another dtype, for what is no array, and for formats that `encode` refuses.
    """
    codes = in_memory(codes)
    if chosen(format, "float32", "float64"):
        check_array(codes, f"decode {format}")
        with np.errstate(all="ignore"):
            return as_floats(codes, f"decode {format}").astype(str(format), copy=False)
    fmt = get_format(format)
    _check_stored("decode", fmt)
    check_array(codes, f"decode {fmt.name}")
    if fmt == FORMATS["float16"] and codes.dtype == np.float16:
        return codes.astype(np.float32)
    check_codes(f"decode {fmt.name}", codes, fmt)
    if fmt.bits <= 8:
        out = array_module(codes).empty(codes.shape, np.float32)
        decode_into(out, codes, fmt)
        return out
    if fmt.name == "float16":
        with np.errstate(invalid="ignore"):  # signalling NaN
            return codes.view(np.float16).astype(np.float32)
    bits = codes.astype(np.uint32)
    bits <<= np.uint32(16)
    return bits.view(np.float32)


def _check_stored(operation: str, fmt: Format) -> None:
    """Refuse a format that has no codes here."""
    if fmt.bits > 8 and fmt not in (FORMATS["bfloat16"], FORMATS["float16"]):
        raise InputError(
            f"{operation} {fmt.name}: expected a storage format, of at most 8 bits or bfloat16 or float16;"
            f" found one of {fmt.bits} bits"
        )


def check_codes(operation: str, codes: Array, fmt: Format) -> None:
    """Refuse codes of the wrong dtype, and codes that a format of fewer than 8 bits does not have."""
    check_array(codes, operation)
    expected = np.dtype(np.uint8 if fmt.bits <= 8 else np.uint16)
    if codes.dtype != expected:
        raise InputError(f"{operation}: expected {expected} codes, found {codes.dtype}{list(codes.shape)}")
    if fmt.bits < 8 and codes.size and codes.max() >= 1 << fmt.bits:
        raise InputError(f"{operation}: expected codes below {1 << fmt.bits}, found {int(codes.max())}")


def decode_into(out: Array, codes: Array, fmt: Format) -> None:
    """Write the values of uint8 codes into a contiguous float32 array of the same shape, chunk by chunk."""
    if array_module(codes) is not np:
        decode_scaled(out, codes, fmt)
        return
    for part, target in chunks(codes, out):
        decode_scaled(target, part, fmt)


def decode_scaled(out: Array, codes: Array, fmt: Format, factors: Array = None) -> None:
    """Write the values of uint8 codes [..., K], times `factors` [K] where given, into a contiguous float32 array."""
    xp = array_module(codes)
    if xp is np and fmt == FORMATS["e4m3fn"]:
        _decode_bits(out, codes, fmt, factors)
        return
    if xp is np:
        flat, target = np.ascontiguousarray(codes).reshape(-1), out.reshape(-1)
        even = flat.size & ~1  # two codes a look-up
        np.take(_pair_table(fmt), flat[:even].view(np.uint16), out=target[:even].view(np.uint64), mode="clip")
        target[even:] = decode_table(fmt)[flat[even:]]
    else:
        out[...] = xp.take(_device_table(fmt, xp), codes)
    if factors is not None:
        out *= factors


def _decode_bits(out: np.ndarray, codes: np.ndarray, fmt: Format, factors: np.ndarray | None) -> None:
    """Put the fields of 8-bit codes where float32 has them, and set the bias right: twice as fast as a table.

    The factor that does so is a power of two, so it can be multiplied by `factors` first, unless they become
    infinite. Subnormal codes are subnormal floats until then.
    """
    shift, rebias = 23 - fmt.fraction_bits, np.float32(2.0 ** (127 - fmt.bias))
    bits, signed = out.view(np.int32), codes.view(np.int8)
    bits[...] = signed  # the sign fills all bits on the left
    bits <<= np.int32(shift)
    bits &= np.int32((0x7F << shift) - (1 << 31))
    if factors is None:
        out *= rebias
    elif np.abs(factors).max() < 2.0**fmt.bias:
        out *= factors * rebias
    else:
        out *= rebias
        out *= factors
    if signed.max(initial=0) == 0x7F or codes.max(initial=0) == 0xFF:
        out[(codes & 0x7F) == 0x7F] = np.nan


@cache
def decode_table(fmt: Format) -> np.ndarray:
    """Return the float32 value of every code of 8 bits; codes beyond a narrower format's are NaN."""
    values = [decode_plain(code, fmt) if code < 1 << fmt.bits else np.nan for code in range(256)]
    table = np.array(values, np.float32)
    table.flags.writeable = False
    return table


@cache
def _pair_table(fmt: Format) -> np.ndarray:
    """Return the values of every two neighbouring codes as one 8-byte item, in the machine's byte order."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    return decode_table(fmt)[codes].view(np.uint64)[:, 0]


@cache
def _device_table(fmt: Format, xp: ModuleType) -> Array:
    return xp.asarray(decode_table(fmt))
