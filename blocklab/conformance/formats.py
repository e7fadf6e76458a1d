"""Conformance parts about FP8 codes: every code decoded, every midpoint encoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from blocklab.conformance.part import Deviation, Part, codes_of, deviation, each, exact, rounded
from blocklab.numerics.formats import decode_plain, get_format

FP8 = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
_TWIN = {"e4m3fn": "e4m3fnuz", "e5m2": "e5m2fnuz", "e4m3fnuz": "e4m3fn", "e5m2fnuz": "e5m2"}
_ZERO = np.float32(0)


def format_parts() -> Iterator[Part]:
    """Yield the parts about codes."""
    for name in (*FP8, "e8m0"):
        yield _decode(name)
    for name in FP8:
        yield _encode(name)


def _decode(name: str) -> Part:
    codes = np.arange(256, dtype=np.uint8)
    values, fmt = _decoded(codes, name), get_format(name)
    known = []
    if name in _TWIN:
        known.append(
            deviation(f"{_TWIN[name]}-table", f"codes are read as {_TWIN[name]}", _decoded(codes, _TWIN[name]))
        )
    if name == "e8m0":
        shifted = np.left_shift(codes.astype(np.uint32), 23).view(np.float32)
        known.append(deviation("shifted-only", "codes are shifted into float32's exponent and nothing else", shifted))
    known += [
        deviation(
            "subnormals-flushed", "subnormal numbers are read as zero", flushed(values, max(fmt.min_normal, 2.0**-126))
        ),
        deviation("no-special-codes", "NaN and infinity are read as if they were numbers", _from_fields(codes, name)),
    ]
    if fmt.signed and fmt.special != "ieee":
        top = "the whole top exponent is read as infinity or NaN"
        known.append(deviation("ieee-top-exponent", top, _ieee(codes, name)))
    if fmt.signed and fmt.special != "fnuz":
        known.append(deviation("zero-without-sign", "-0 is read as +0", values + _ZERO))
    return Part(
        f"decode.{name}",
        f"the float32 value of every {name} code",
        {f"decode.{name}.codes": codes},
        exact(values),
        deviations=known,
        signed_zero=True,
        elementwise=f"decode.{name}.codes",
    )


def _decoded(codes: np.ndarray, name: str) -> np.ndarray:
    return np.array([decode_plain(int(code), name) for code in codes], np.float32)


def flushed(values: np.ndarray, least: float) -> np.ndarray:
    """Return values with those below `least` set to zero, their signs kept."""
    return np.where(np.abs(values) < np.float32(least), np.copysign(_ZERO, values), values)


def _from_fields(codes: np.ndarray, name: str) -> np.ndarray:
    """Decode as if every code were a number."""
    fmt = get_format(name)
    sign = np.where(codes & fmt.sign_bit, -1.0, 1.0)
    magnitude = (codes & ~np.uint8(fmt.sign_bit)).astype(np.int64)
    field, fraction = magnitude >> fmt.fraction_bits, magnitude & ((1 << fmt.fraction_bits) - 1)
    hidden = (field > 0) | (not fmt.signed)
    exponent = np.maximum(field, 1 if fmt.signed else 0) - fmt.bias - fmt.fraction_bits
    with np.errstate(over="ignore"):
        return (sign * np.ldexp(1.0 * fraction + hidden * 2.0**fmt.fraction_bits, exponent)).astype(np.float32)


def _ieee(codes: np.ndarray, name: str) -> np.ndarray:
    fmt = get_format(name)
    magnitude = codes & ~np.uint8(fmt.sign_bit)
    first = ((1 << (fmt.bits - fmt.signed)) - 1) >> fmt.fraction_bits << fmt.fraction_bits
    values = np.where(magnitude > first, np.float32(np.nan), _from_fields(codes, name))
    return np.where(magnitude == first, np.copysign(np.float32(np.inf), values), values)


def _encode(name: str) -> Part:
    x = encode_inputs(name)
    zero = f"-0 gives 0, since {name} has no other" if name.endswith("fnuz") else "-0 keeps its sign"
    return Part(
        f"encode.{name}.codes",
        f"the {name} code of every float32 value, rounded to nearest, ties to even; subnormals are kept; {zero}",
        {f"encode.{name}.x": x},
        exact(codes_of(rounded(x, name), name)),
        output="uint8 (codes)",
        deviations=list(_encode_deviations(x, name)),
        codes=name,
        elementwise=f"encode.{name}.x",
    )


def encode_inputs(name: str) -> np.ndarray:
    """Return every value, every midpoint between two, and what lies just beside the midpoints, with both signs."""
    values = positive_values(name).astype(np.float32)
    middle = (values[1:] + values[:-1]) / 2
    neighbours = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    neighbours += [middle * np.float32(1 + sign * 2.0**-10) for sign in (-1, 1)]  # float16 keeps these, bfloat16 not
    tiny = np.array([1.4e-45, 1e-38, 1e-20], np.float32)
    positive = np.concatenate([values, middle, *neighbours, tiny])
    return np.concatenate([positive, -positive])


def positive_values(name: str) -> np.ndarray:
    """Return a format's finite numbers from zero up."""
    values = [decode_plain(code, name) for code in range(128)]
    return np.unique([v for v in values if math.isfinite(v)])


def _encode_deviations(x: np.ndarray, name: str) -> Iterator[Deviation]:
    def codes(values: np.ndarray) -> np.ndarray:
        return codes_of(values, name)

    def by(rule: Callable[[float], int], carry: bool = True) -> np.ndarray:
        return codes(each(lambda v: _round_by(v, name, rule, carry), x))

    lost = "a carry out of the significand is lost (124.3 becomes 64)"
    yield deviation("ties-away", "ties are rounded away from zero", by(_away))
    yield deviation("toward-zero", "digits are cut off, not rounded", by(math.trunc))
    yield deviation("carry-lost", lost, by(round, carry=False))
    yield deviation("carry-lost-ties-away", f"ties are rounded away from zero, and {lost}", by(_away, carry=False))
    for first in ("bfloat16", "float16"):
        twice = codes(rounded(rounded(x, first), name, "saturate"))
        yield deviation(f"through-{first}", f"values are rounded to {first} first, so twice", twice)
    right, fnuz = rounded(x, name), name.endswith("fnuz")
    small = flushed(right, get_format(name).min_normal)
    small = small + _ZERO if fnuz else small
    yield deviation("subnormals-flushed", "subnormal results become zero", codes(small))
    if fnuz:
        nan = np.where((right == 0) & np.signbit(x), np.uint8(0x80), codes(right))
        yield deviation("negative-zero-is-nan", "-0 is written as 0x80, which is NaN here", nan)
    else:
        yield deviation("zero-without-sign", "-0 becomes +0", codes(right + _ZERO))
    twin = codes_of(rounded(x, _TWIN[name], "saturate"), _TWIN[name])
    yield deviation(f"{_TWIN[name]}-codes", f"the codes are those of {_TWIN[name]}", twin)


def _round_by(x: float, name: str, rule: Callable[[float], int], carry: bool) -> float:
    """`round_plain` with another rule for the integer significand."""
    fmt = get_format(name)
    exponent = max(math.frexp(x)[1] - 1 if x else fmt.emin, fmt.emin)
    significand = rule(math.ldexp(abs(x), fmt.fraction_bits - exponent))
    if not carry and significand == 2 << fmt.fraction_bits:
        significand >>= 1
    y = min(math.ldexp(significand, exponent - fmt.fraction_bits), fmt.max)
    return 0.0 if fmt.special == "fnuz" and not y else math.copysign(y, x)


def _away(x: float) -> int:
    return math.floor(x + 0.5)
