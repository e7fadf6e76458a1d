"""Conformance parts about elementwise steps: silu and RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from blocklab.conformance.part import Answer, Deviation, Part, each, noise, rounded, within
from blocklab.numerics.formats import round_plain

F32 = np.float32


def norm_parts() -> Iterator[Part]:
    """Yield the parts about silu and RMSNorm."""
    yield _silu()
    yield from _rms_norm()


def _silu() -> Part:
    positive = np.array([0, 1e-38, 1e-10, 0.5, 1, 5, 17, 60, 88, 88.5, 89, 100, 103, 150, 1000, 3e38], np.float32)
    x = np.concatenate([positive, -positive, np.array([np.inf, np.nan], np.float32)])

    def error(value: np.ndarray) -> Answer:
        """Allow float32's rounding, and the half of its least number that exp(x) may be off, times x."""
        size = np.where(np.isfinite(value), np.abs(value), 0).astype(np.float32)
        return within(value, 8.0 * np.spacing(size) + np.where(np.isfinite(x), np.abs(x) * 2.0**-149, 0.0))

    def formula(v: float) -> float:
        return v / (1 + math.exp(-v)) if v > 0 else v * math.exp(v) / (1 + math.exp(v))

    right = each(formula, x, np.float64)
    phi = each(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))), x, np.float64)
    with np.errstate(all="ignore"):
        overflown = np.where(x < -88.73, -0.0, right)
        tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)))
        sigmoid = 1 / (1 + np.exp(-x.astype(np.float64)))
        flushed = np.where(np.abs(right) < 2.0**-126, 0.0, right)
    nan_at_end = np.where(x < -88.73, np.nan, right)
    known = [
        ("exp-overflows", "exp(-x) overflows float32 below -88.7 and the result is 0", overflown),
        ("exp-overflows-nan", "exp(-x) overflows float32 below -88.7 and the result is NaN", nan_at_end),
        ("subnormals-flushed", "results below 2^-126 become 0", flushed),
        ("gelu-for-silu", "GELU instead of SiLU", x * phi),
        ("gelu-tanh-for-silu", "GELU by tanh instead of SiLU", tanh),
        ("sigmoid", "the sigmoid without the factor x", sigmoid),
    ]
    return Part(
        "silu",
        "x / (1 + exp(-x)) in float32, for large arguments too: silu(-89) is -2e-37, silu(-1000) is 0",
        {"silu.x": x},
        error(right),
        tolerance="8 units in the last place of float32, and |x| 2^-149",
        deviations=[Deviation(name, sentence, error(value)) for name, sentence, value in known],
        elementwise="silu.x",
    )


def _rms_norm() -> Iterator[Part]:
    x = noise("conformance rms_norm", 6, 640)
    x[1], x[2] = 0, 1
    x[3] *= F32(2.0**-11)
    x[4] *= F32(2.0**40)
    x[5, 7] = 2.0**9
    gain = rounded(1 + noise("conformance gain", 640) / 8, "bfloat16")
    inputs = {"rms_norm.x": x, "rms_norm.gain": gain}
    labels = ["noise", "zeros", "ones", "rms near 1e-3, where eps matters", "large", "one loud channel"]
    forms = {
        "once": "one rounding: bfloat16(gain x r)",
        "twice": "two roundings, as transformers does: bfloat16(gain bfloat16(x r))",
    }
    for form, words in forms.items():
        known = [("norm-rounds-twice", forms["twice"]), ("norm-rounds-once", forms["once"])]
        other = Deviation(*known[form == "twice"], _normed(x, gain, "once" if form == "twice" else "twice"))
        yield Part(
            f"rms_norm.{form}",
            f"RMSNorm of bfloat16 rows x [6, 640], r = (mean(x^2) + 1e-6)^-1/2 in float32 or wider; {words}",
            inputs,
            _normed(x, gain, form),
            output="bfloat16, or float32 that holds it",
            tolerance="to the bit, save where float32 sums may tip a tie",
            deviations=[other, *_norm_deviations(x, gain, form)],
            labels=labels,
            elementwise="rms_norm.x",
        )


def _normed(x: np.ndarray, gain: np.ndarray, form: str, eps: float = 1e-6, factor: np.ndarray | None = None) -> Answer:
    """Return RMSNorm rounded to bfloat16, and its interval: r may be off by 2^-21."""
    wide = x.astype(np.float64)
    r = 1 / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) if factor is None else factor
    found = []
    for slack in (0.0, -(2.0**-21), 2.0**-21):
        y = wide * (r * (1 + slack))
        y = rounded(y, "bfloat16") if form == "twice" else y
        found.append(rounded(gain * y, "bfloat16"))
    low, high = np.minimum(found[1], found[2]), np.maximum(found[1], found[2])
    return Answer(found[0], low, high)


def _norm_deviations(x: np.ndarray, gain: np.ndarray, form: str) -> Iterator[Deviation]:
    wide = x.astype(np.float64)
    mean = (wide**2).mean(-1, keepdims=True)
    yield Deviation("wrong-eps", "eps is 1e-5, not 1e-6", _normed(x, gain, form, 1e-5))
    yield Deviation(
        "eps-outside",
        "eps is added to the root, not under it",
        _normed(x, gain, form, factor=1 / (np.sqrt(mean) + 1e-6)),
    )
    yield Deviation("missing-gain", "the gain is left out", _normed(x, np.ones_like(gain), form))
    yield Deviation("gain-plus-one", "the gain is 1 + g, as in Gemma", _normed(x, 1 + gain, form))
    narrow = np.array([_bfloat16_sum(row) for row in rounded(x * x, "bfloat16")])[:, None]
    sentence = "squares are summed one by one in bfloat16"
    yield Deviation("bfloat16-sum", sentence, _normed(x, gain, form, factor=1 / np.sqrt(narrow / x.shape[1] + 1e-6)))


def _bfloat16_sum(values: np.ndarray) -> float:
    """Add numbers one by one, every sum rounded to bfloat16."""
    total = 0.0
    for value in values.tolist():
        total = round_plain(total + value, "bfloat16")
    return total
