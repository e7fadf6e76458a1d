"""Number formats from a few numbers each, and rounding to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from blocklab.errors import InputError, brief
from blocklab.numerics.options import chosen, is_count

Overflow = Literal["saturate", "nan"]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: value = significand * 2^exponent, significand below 2.

    precision   bits of the significand, the hidden one included (p)
    emin        exponent of the smallest normal number and of all subnormals
    max         largest finite value
    bias        exponent field minus exponent
    bits        width of a code
    special     the codes that are not finite numbers: "ieee" (infinity and NaN in the top exponent),
                "fn" (NaN is all ones), "fnuz" (NaN is the code of -0, which does not exist), "none"
    signed      False for e8m0, which has powers of two only: no sign, no zero, no subnormals
    """

    name: str
    bits: int
    precision: int
    emin: int
    max: float
    bias: int
    special: Literal["ieee", "fn", "fnuz", "none"]
    signed: bool = True

    def __post_init__(self) -> None:
        if not all(type(value) is int for value in (self.bits, self.precision, self.emin, self.bias)):
            self._refuse("bits, precision, emin and bias must be integers")
        if not chosen(self.special, "ieee", "fn", "fnuz", "none") or not isinstance(self.signed, bool):
            self._refuse("special must be 'ieee', 'fn', 'fnuz' or 'none', and signed True or False")
        if not 1 + self.has_infinity <= self.precision <= self.bits - self.signed:
            self._refuse("expected room for an exponent, and for a fraction beside infinity, in its bits")
        if self.bias != self.signed - self.emin or not -1022 <= self.emin <= 1023:
            self._refuse("expected bias 1 - emin (-emin for a format without sign), and exponents that float64 has")
        if not self.signed and (self.precision, self.special) != (1, "fn"):
            self._refuse("a format without sign has powers of two only: expected precision 1 and special 'fn'")
        if type(self.max) not in (int, float) or not self.min_normal <= self.max < 2**1024:
            self._refuse("max must be a finite number, at least the smallest normal one")

    def _refuse(self, reason: str) -> None:
        raise InputError(f"format {brief(self.name)}: {reason}; found {brief(self)}")

    @property
    def has_infinity(self) -> bool:
        """True where values too large for the format can become infinite."""
        return self.special == "ieee"

    @property
    def min_normal(self) -> float:
        """The smallest normal number."""
        return math.ldexp(1.0, self.emin)

    @property
    def min_subnormal(self) -> float:
        """The smallest positive number."""
        return math.ldexp(1.0, self.emin - (self.precision - 1))

    @property
    def fraction_bits(self) -> int:
        """Stored bits of the significand."""
        return self.precision - 1

    @property
    def sign_bit(self) -> int:
        """The code's sign bit, 0 for a format without sign."""
        return 1 << (self.bits - 1) if self.signed else 0

    @property
    def nan_code(self) -> int | None:
        """The code that `encode` writes for NaN; None where the format has no NaN."""
        if self.special == "none":
            return None
        if self.special == "fnuz":
            return self.sign_bit
        magnitude = (1 << (self.bits - self.signed)) - 1
        return magnitude if self.special == "fn" else magnitude ^ (magnitude >> (self.bits - self.precision) >> 1)

    @property
    def default_overflow(self) -> Overflow:
        """What casts to the format do: 16 bits and more overflow to infinity, FP8 and FP4 saturate."""
        return "nan" if self.bits >= 16 else "saturate"


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("e4m3fn", 8, 4, -6, 448.0, 7, "fn"),
        Format("e5m2", 8, 3, -14, 57344.0, 15, "ieee"),
        Format("e4m3fnuz", 8, 4, -7, 240.0, 8, "fnuz"),
        Format("e5m2fnuz", 8, 3, -15, 57344.0, 16, "fnuz"),
        Format("e8m0", 8, 1, -127, 2.0**127, 127, "fn", signed=False),
        Format("e2m1", 4, 2, 0, 6.0, 1, "none"),
        Format("bfloat16", 16, 8, -126, (2 - 2.0**-7) * 2.0**127, 127, "ieee"),
        Format("float16", 16, 11, -14, 65504.0, 15, "ieee"),
        Format("tf32", 19, 11, -126, (2 - 2.0**-10) * 2.0**127, 127, "ieee"),
    )
}
"""The formats by name; `round_to` and `decode` also take "float32" and "float64"."""


def get_format(name: str | Format) -> Format:
    """Return a format by name, or as given.

    Raises InputError for what is neither.
    """
    if isinstance(name, Format):
        return name
    if not chosen(name, *FORMATS):
        raise InputError(f"no number format {brief(name)}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def choose_overflow(fmt: Format, overflow: str | None) -> Overflow:
    """Return the overflow rule to use: the given one, or the format's usual one for None."""
    if overflow is None:
        return fmt.default_overflow
    if not chosen(overflow, "saturate", "nan"):
        raise InputError(f"overflow: expected 'saturate', 'nan' or None, found {brief(overflow)}")
    if overflow == "nan" and fmt.special == "none":
        raise InputError(f"overflow 'nan' with {fmt.name}: expected 'saturate', since {fmt.name} has no NaN")
    return "saturate" if overflow == "saturate" else "nan"


def round_plain(x: float, fmt: str | Format, overflow: str | None = None) -> float:
    """Return one Python number rounded to the format: the definition, to which the fast form is held.

    e = max(exponent(x), emin) - (p - 1);  rint(x / 2^e) * 2^e, ties to even; what then exceeds the largest
    value is set to it (saturate), or to infinity where the format has one and to NaN elsewhere (nan).
    """
    f = get_format(fmt)
    rule = choose_overflow(f, overflow)
    if math.isnan(x) or (not f.signed and (x < 0 or (rule == "nan" and x == 0))):
        return math.nan
    if math.isinf(x):
        y = x
    else:
        exponent = math.frexp(x)[1] - 1 if x else f.emin
        e = max(exponent, f.emin) - f.fraction_bits
        y = math.copysign(math.ldexp(round(math.ldexp(x, -e)), e), x)
    if abs(y) > f.max:
        y = math.copysign(f.max if rule == "saturate" else math.inf if f.has_infinity else math.nan, x)
    if not f.signed:
        return max(y, f.min_normal)
    return 0.0 if f.special == "fnuz" and y == 0 else y


def decode_plain(code: int, fmt: str | Format) -> float:
    """Return the value of one code: (-1)^sign * significand * 2^exponent, from the format's fields.

    Raises InputError for what is no code of the format: 0 to 2^bits - 1.
    """
    f = get_format(fmt)
    if not is_count(code, 0) or code >= 1 << f.bits:
        raise InputError(f"decode_plain {f.name}: expected a code from 0 to {(1 << f.bits) - 1}, found {brief(code)}")
    code = int(code)
    magnitude = code & ~f.sign_bit if f.signed else code
    sign = -1.0 if code & f.sign_bit else 1.0
    field, fraction = magnitude >> f.fraction_bits, magnitude & ((1 << f.fraction_bits) - 1)
    all_ones = (1 << (f.bits - f.signed)) - 1
    if f.special == "fnuz" and code == f.sign_bit:
        return math.nan
    if f.special == "fn" and magnitude == all_ones:
        return math.nan
    if f.special == "ieee" and field == all_ones >> f.fraction_bits:
        return math.nan if fraction else sign * math.inf
    if field == 0 and f.signed:
        return sign * math.ldexp(fraction, f.emin - f.fraction_bits)
    return sign * math.ldexp(fraction + (1 << f.fraction_bits), field - f.bias - f.fraction_bits)
