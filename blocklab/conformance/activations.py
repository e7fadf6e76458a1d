"""Conformance parts about quantised activations: groups of 128, the floor, power-of-two scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from blocklab.conformance.part import (
    Deviation,
    Part,
    codes_of,
    deviation,
    exact,
    noise,
    rounded,
)
from blocklab.numerics.formats import decode_plain

F32 = np.float32
FLOOR, MAX = F32(1e-4), F32(448)


def activation_parts() -> Iterator[Part]:
    """Yield the parts about activations."""
    yield from _activations()
    yield from _powers_of_two()


def blocks(x: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the largest magnitude of every block, the last ones perhaps short."""
    height, width = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    amax = np.zeros((height, width), np.float32)
    for i in range(height):
        for j in range(width):
            amax[i, j] = np.abs(x[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]).max()
    return amax


def spread(scale: np.ndarray, rows: int, columns: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the scale of every element."""
    return np.repeat(np.repeat(scale, rows, axis=0), columns, axis=1)[: shape[0], : shape[1]]


def e4m3fn(x: np.ndarray) -> np.ndarray:
    """Return saturated e4m3fn codes by the plain definition."""
    return codes_of(rounded(x.astype(np.float32), "e4m3fn", "saturate"), "e4m3fn")


def _activations() -> Iterator[Part]:
    x = _activation_rows()
    inputs = {"quantize.groups.x": x}
    scale = np.maximum(blocks(x, 1, 128), FLOOR) / MAX

    def codes(scale: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return e4m3fn(x / spread(scale, 1, 128, x.shape))

    rule = "x in groups of 1 row x 128 columns, the last one 44; s = max(amax, 1e-4) / 448 in float32"
    labels = ["a group of zeros", "amax below the floor", "amax at the floor", "one loud value", "almost nothing"]
    labels += ["scale 1, ties", "scale 15, ties", "noise"]
    known = list(_scale_deviations(x))
    yield Part("quantize.groups.scale", rule, inputs, exact(scale), deviations=known, labels=labels)

    reciprocal = e4m3fn(x * spread(F32(1) / scale, 1, 128, x.shape))
    known = [
        deviation("reciprocal", "multiplied by the rounded 1 / s instead of divided by s", reciprocal),
        *(deviation(d.name, d.sentence, codes(d.answer.value)) for d in known[:-2]),
        deviation("per-token", known[-2].sentence, codes(np.repeat(known[-2].answer.value, 3, 1))),
        deviation("per-tensor", known[-1].sentence, codes(np.repeat(known[-1].answer.value, 3, 1))),
    ]
    yield Part(
        "quantize.groups.codes",
        f"{rule}; the e4m3fn code of x / s, a float32 quotient; a group of zeros has codes 0",
        inputs,
        exact(codes(scale)),
        output="uint8 (codes)",
        deviations=known,
        codes="e4m3fn",
        labels=labels,
        elementwise="quantize.groups.x",
    )


def _activation_rows() -> np.ndarray:
    """Return 8 rows of 300 numbers that bfloat16 holds, each with something of its own."""
    x = noise("conformance activations", 8, 300)
    x[0, 128:256] = 0
    for row, amax in ((1, 3e-5), (2, 1e-4), (4, 1e-12)):
        x[row] *= F32(amax / 8)
    x[2, [0, 128, 256]] = FLOOR
    x[3] *= F32(2.0**-6)
    x[3, 200] = 30000.0
    middle = midpoints()
    for row, factor in ((5, 1), (6, 15)):
        x[row] = F32(factor) * np.resize(middle, 300)
        x[row, [127, 255, 299]] = F32(448 * factor)
    x[:5], x[7] = rounded(x[:5], "bfloat16"), rounded(x[7], "bfloat16")
    return x


def midpoints() -> np.ndarray:
    """Return the numbers halfway between two of e4m3fn: with scale 15, a rounded 1/15 tips some of these ties."""
    values = np.array([decode_plain(code, "e4m3fn") for code in range(127)], np.float32)
    return np.concatenate([(values[1:] + values[:-1]) / 2, -values[90:122]])


def _scale_deviations(x: np.ndarray) -> Iterator[Deviation]:
    amax = blocks(x, 1, 128)
    floored = np.maximum(amax, FLOOR)
    yield deviation(
        "floor-1e-10", "amax has the floor 1e-10, as in vLLM and SGLang", np.maximum(amax, F32(1e-10)) / MAX
    )
    yield deviation("no-floor", "amax has no floor: a group of zeros has scale 0", amax / MAX)
    yield deviation("floor-as-minimum", "the floor is applied as a minimum", np.minimum(amax, FLOOR) / MAX)
    added = "the floor is added to amax instead of taken where it is larger"
    yield deviation("floor-added", added, (amax + FLOOR) / MAX)
    yield deviation(
        "zeros-to-one", "a group of zeros has scale 1, others no floor", np.where(amax > 0, amax / MAX, F32(1))
    )
    times = "amax is multiplied by the rounded 1/448 instead of divided by 448"
    yield deviation("multiplied-by-1/448", times, floored * (F32(1) / MAX))
    yield deviation("largest-240", "divided by 240, the largest number of e4m3fnuz", floored / F32(240))
    yield deviation("inverse-scale", "the scale is stored as 448 / amax, which divides", MAX / floored)
    yield deviation("bfloat16-scale", "the scale is rounded to bfloat16", rounded(floored / MAX, "bfloat16"))
    # The whole rows have one scale, so these two have other shapes when they are reported as such.
    token = np.maximum(np.abs(x).max(1, keepdims=True), FLOOR) / MAX
    tensor = np.full((len(x), 1), token.max(), np.float32)
    yield deviation("per-token", "one scale for each row, not for each group", token)
    yield deviation("per-tensor", "one scale for the whole tensor, not for each group", tensor)


def _powers_of_two() -> Iterator[Part]:
    amax = _power_amaxes()
    x = noise("conformance ue8m0", amax.size, 128)
    x = np.clip(x, -1, 1) * amax[:, None]
    x[:, 17] = amax
    x = x.astype(np.float32)
    inputs = {"quantize.ue8m0.x": x}
    plain = amax / MAX
    scale = _map(lambda s: _next_power(s), plain)

    with np.errstate(all="ignore"):
        logarithm = np.exp2(np.ceil(np.log2(plain)))
    known = [
        deviation("float32-log2", "2^ceil(log2 s) with a float32 logarithm, which misses one ulp above 2^k", logarithm),
        deviation("nearest-power", "s is rounded to the nearest power of two", _map(_nearest_power, plain)),
        deviation(
            "rounded-down", "s is rounded down to a power of two (the MX rule), which clips", _map(_floor_power, plain)
        ),
        deviation(
            "always-up", "one is added to the exponent of exact powers of two, too", _map(_floor_power, plain) * F32(2)
        ),
        deviation("not-rounded", "s is no power of two", plain),
    ]
    rule = (
        "x in groups of 1 row x 128 columns; s = 2^ceil(log2(amax / 448)), amax / 448 in float32, exact powers of two"
    )
    known = [Deviation(d.name, d.sentence, exact(d.answer.value[:, None])) for d in known]
    labels = [f"amax / 448 = {float(s).hex()}" for s in plain]
    yield Part("quantize.ue8m0.scale", f"{rule} stay", inputs, exact(scale[:, None]), deviations=known, labels=labels)

    late = deviation(
        "rounded-too-late", "x is divided by the scale before it is rounded up", e4m3fn(x / plain[:, None])
    )
    with np.errstate(over="ignore"):
        codes = [deviation(d.name, d.sentence, e4m3fn(x / d.answer.value)) for d in known[:-1]]
    yield Part(
        "quantize.ue8m0.codes",
        f"{rule} stay; the e4m3fn code of x / s",
        inputs,
        exact(e4m3fn(x / scale[:, None])),
        output="uint8 (codes)",
        deviations=[late, *codes],
        codes="e4m3fn",
        labels=labels,
        elementwise="quantize.ue8m0.x",
    )


def _power_amaxes() -> np.ndarray:
    """Return amaxes whose scale is 2^k, one ulp above, one below, and 1.5 times it."""
    found = []
    for k in range(-18, 13, 5):
        power = F32(2.0**k)
        for s in (power, np.nextafter(power, F32(np.inf)), np.nextafter(power, F32(0)), F32(1.5) * power):
            amax = F32(s * MAX)
            around = [amax, np.nextafter(amax, F32(np.inf)), np.nextafter(amax, F32(0))]
            found.append(next(a for a in around if a / MAX == s))
    return np.array(found, np.float32)


def _map(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    return np.array([function(float(v)) for v in values], np.float32)


def _floor_power(s: float) -> float:
    return math.ldexp(0.5, math.frexp(s)[1])


def _next_power(s: float) -> float:
    return s if s == _floor_power(s) else 2 * _floor_power(s)


def _nearest_power(s: float) -> float:
    return _floor_power(s) * (2 if s / _floor_power(s) >= 1.5 else 1)
