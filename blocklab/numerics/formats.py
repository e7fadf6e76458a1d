"""Number formats from a few numbers each, and rounding to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from blocklab.errors import InputError

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
    """Return a format by name, or as given."""
    if isinstance(name, Format):
        return name
    if name not in FORMATS:
        raise InputError(f"no number format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def choose_overflow(fmt: Format, overflow: str | None) -> Overflow:
    """Return the overflow rule to use: the given one, or the format's usual one for None."""
    if overflow is None:
        return fmt.default_overflow
    if overflow not in ("saturate", "nan"):
        raise InputError(f"overflow: expected 'saturate', 'nan' or None, found {overflow!r}")
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
    """Return the value of one code: (-1)^sign * significand * 2^exponent, from the format's fields."""
    f = get_format(fmt)
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
