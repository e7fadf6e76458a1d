"""Conformance parts about rounding: overflow, float64 values rounded once, bfloat16."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from blocklab.conformance.formats import flushed, positive_values
from blocklab.conformance.part import Part, codes_of, deviation, exact, rounded
from blocklab.numerics.formats import get_format


def rounding_parts() -> Iterator[Part]:
    """Yield the parts about rounding."""
    for name in ("e4m3fn", "e5m2"):
        yield _overflow(name)
    yield _encode_float64()
    yield _bfloat16()
    yield _bfloat16_float64()


def _overflow(name: str) -> Part:
    fmt = get_format(name)
    last = fmt.max + math.ldexp(1.0, math.frexp(fmt.max)[1] - fmt.precision - 1)  # 464 for e4m3fn, 61440 for e5m2
    edges = np.array([fmt.max, last], np.float32)
    x = np.concatenate([edges, *(np.nextafter(edges, np.float32(to)) for to in (0, np.inf))])
    x = np.concatenate([x, np.array([1.07 * fmt.max, 2 * fmt.max, 1e5, 3.4e38, np.inf], np.float32)])
    x = np.concatenate([x, -x, np.array([np.nan], np.float32)])
    right = rounded(x, name, "saturate")
    other, since = ("infinity", "from") if fmt.has_infinity else ("NaN", "above")
    beyond = np.copysign(np.float32(np.inf if fmt.has_infinity else np.nan), x)

    def where(condition: np.ndarray, value: np.ndarray | float) -> np.ndarray:
        return codes_of(np.where(condition, value, right), name)

    known = [
        deviation(
            "non-saturating",
            f"{other} {since} {last:g}: non-saturating mode, as in ml_dtypes",
            codes_of(rounded(x, name, "nan"), name),
        ),
        deviation(
            "limit-before-rounding",
            f"{other} above {fmt.max:g}, also where rounding gives {fmt.max:g}",
            where(np.abs(x) > fmt.max, beyond),
        ),
        deviation("infinity-kept", f"numbers saturate, infinity becomes {other}", where(np.isinf(x), beyond)),
        deviation("nan-to-largest", f"NaN becomes {fmt.max:g}: min and max swallow it", where(np.isnan(x), fmt.max)),
        deviation("nan-to-zero", "NaN becomes 0", where(np.isnan(x), 0.0)),
    ]
    return Part(
        f"encode.{name}.saturating.codes",
        f"the {name} code of every float32 value; everything beyond {fmt.max:g}, infinity too, becomes {fmt.max:g} with"
        " its sign; NaN stays NaN (any of its codes)",
        {f"encode.{name}.saturating.x": x},
        exact(codes_of(right, name)),
        output="uint8 (codes)",
        deviations=known,
        codes=name,
        elementwise=f"encode.{name}.saturating.x",
    )


def _encode_float64() -> Part:
    values = positive_values("e4m3fn")
    middle = (values[1:] + values[:-1]) / 2
    near = np.concatenate(
        [middle * (1 + 2.0**-30), middle * (1 - 2.0**-30), middle * (1 + 2.0**-10), middle * (1 + 2.0**-12), middle]
    )
    x = np.concatenate([near, -near])

    def through(first: np.ndarray) -> np.ndarray:
        return codes_of(rounded(first.astype(np.float64), "e4m3fn"), "e4m3fn")

    return Part(
        "encode.e4m3fn.float64.codes",
        "the e4m3fn code of every float64 value, rounded once: 1.0625 + 2^-40 lies above a tie and gives 1.125",
        {"encode.e4m3fn.float64.x": x},
        exact(codes_of(rounded(x, "e4m3fn"), "e4m3fn")),
        output="uint8 (codes)",
        deviations=[
            deviation(
                "through-float32", "rounded twice, through float32, as torch and ml_dtypes do", through(x.astype("f4"))
            ),
            deviation("through-bfloat16", "rounded twice, through bfloat16", through(rounded(x, "bfloat16"))),
            deviation("through-float16", "rounded twice, through float16", through(rounded(x, "float16"))),
        ],
        codes="e4m3fn",
        elementwise="encode.e4m3fn.float64.x",
    )


def _bfloat16() -> Part:
    fields = np.array([0, 1, 2, 64, 126, 127, 128, 253, 254], np.uint32) << 23
    upper = np.array([0, 1, 2, 63, 64, 126, 127], np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    special = np.array([0x7F800000, 0x7F800001, 0x7F80FFFF, 0x7FC00000, 0x7FFFFFFF], np.uint32)
    bits = np.concatenate([(fields[:, None, None] | upper[:, None] | lower).reshape(-1), special])
    bits = np.concatenate([bits, bits | np.uint32(1 << 31)])
    x = bits.view(np.float32)
    right, finite = rounded(x, "bfloat16"), np.isfinite(x)

    def upper_half(of: np.ndarray) -> np.ndarray:
        return (of & np.uint32(0xFFFF0000)).view(np.float32)

    truncated, away = upper_half(bits), upper_half(bits + np.uint32(0x8000))
    to_even = upper_half(bits + (bits >> np.uint32(16) & np.uint32(1)) + np.uint32(0x7FFF))
    largest = np.copysign(np.float32(get_format("bfloat16").max), x)
    known = [
        deviation("truncated", "the lower 16 bits are cut off, not rounded", truncated),
        deviation("ties-away", "ties are rounded away from zero", np.where(finite, away, x)),
        deviation("nan-rounded", "NaN is rounded like a number and becomes infinity or zero", to_even),
        deviation(
            "nan-truncated", "NaN with a payload in its lower bits becomes infinity", np.where(finite, right, truncated)
        ),
        deviation("subnormals-flushed", "subnormal numbers become zero", flushed(right, 2.0**-126)),
        deviation(
            "saturating", "overflow gives the largest number", np.where(finite & np.isinf(right), largest, right)
        ),
    ]
    return Part(
        "round.bfloat16",
        "every float32 value rounded to bfloat16, to nearest, ties to even; overflow gives infinity; NaN stays NaN;"
        " subnormals are kept",
        {"round.bfloat16.x": x},
        exact(right),
        output="bfloat16, or float32 that holds it",
        deviations=known,
        signed_zero=True,
        elementwise="round.bfloat16.x",
    )


def _bfloat16_float64() -> Part:
    middle = (np.array([0x3F80, 0x3F81, 0x42C8, 0x0020, 0x7E96], np.uint32) << 16 | 0x8000).view(np.float32)
    middle = middle.astype(np.float64)
    x = np.concatenate([middle * (1 + sign * 2.0**-30) for sign in (1.0, -1.0, 0.0)])
    x = np.concatenate([x, -x])
    twice = rounded(x.astype(np.float32), "bfloat16")
    return Part(
        "round.bfloat16.float64",
        "every float64 value rounded to bfloat16, once",
        {"round.bfloat16.float64.x": x},
        exact(rounded(x, "bfloat16").astype(np.float32)),
        output="bfloat16, or float32 that holds it",
        deviations=[deviation("through-float32", "rounded twice, through float32, as torch and ml_dtypes do", twice)],
        signed_zero=True,
        elementwise="round.bfloat16.float64.x",
    )
