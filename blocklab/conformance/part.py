"""One part of the conformance kit: inputs, what to compute, what is right, and what is known to go wrong."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blocklab.numerics.formats import FORMATS, decode_plain, get_format, round_plain


class Answer(NamedTuple):
    """The right values, and the interval within which a found one counts as right; NaN is right where `value` is."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Deviation(NamedTuple):
    """A known way of being wrong, and what an implementation with it would answer."""

    name: str
    sentence: str
    answer: Answer


@dataclass(frozen=True)
class Part:
    """A question of the kit.

    name           of the part and of the array that answers it
    compute        what to compute, from the inputs by name
    inputs         name -> array; all that an implementation needs beside `compute`
    answer         what is right
    output         dtype of the answer in words
    tolerance      in words; `answer` has it in numbers
    deviations     hypotheses for a wrong answer
    codes          the format whose codes are asked for, None for values
    signed_zero    whether -0 and +0 differ
    elementwise    the input that has one value for each value of the answer, if there is one
    labels         what the entries along the first axis are
    informational  right answers differ between good implementations, so that a wrong one is no failure
    """

    name: str
    compute: str
    inputs: Mapping[str, np.ndarray]
    answer: Answer
    output: str = "float32"
    tolerance: str = "to the bit"
    deviations: Sequence[Deviation] = ()
    codes: str | None = None
    signed_zero: bool = False
    elementwise: str | None = None
    labels: Sequence[str] = field(default=())
    informational: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the part as the JSON that the questions' metadata hold."""
        inputs = {name: {"dtype": x.dtype.name, "shape": list(x.shape)} for name, x in self.inputs.items()}
        about = {"part": self.name, "compute": self.compute, "inputs": inputs, "tolerance": self.tolerance}
        output = {"name": self.name, "dtype": self.output, "shape": list(self.answer.value.shape)}
        extra = {"cases": list(self.labels)} if self.labels else {}
        return about | {"output": output, "informational": self.informational} | extra


def exact(value: np.ndarray) -> Answer:
    """Return an answer that allows no other value."""
    return Answer(value, value, value)


def deviation(name: str, sentence: str, value: np.ndarray) -> Deviation:
    """Return a deviation that is known to the bit."""
    return Deviation(name, sentence, exact(value))


def within(value: np.ndarray, error: np.ndarray | float) -> Answer:
    """Return an answer that allows an absolute error."""
    with np.errstate(invalid="ignore", over="ignore"):
        return Answer(value, value - error, value + error)


def matches(found: np.ndarray, answer: Answer, signed_zero: bool) -> np.ndarray:
    """Return where `found` is right."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        same = (found >= answer.low) & (found <= answer.high)
    if found.dtype.kind != "f":
        return same
    both_nan = np.isnan(found) & np.isnan(answer.value)
    if signed_zero:
        same &= np.signbit(found) == np.signbit(answer.value)
    return same | both_nan


def each(function: Callable[[float], float], x: np.ndarray, dtype: type = np.float32) -> np.ndarray:
    """Apply a function of one Python number to every value."""
    return np.array([function(float(v)) for v in x.reshape(-1)], dtype).reshape(x.shape)


def rounded(x: np.ndarray, name: str, overflow: str | None = None) -> np.ndarray:
    """Round every value by the plain definition, once."""
    return each(lambda v: round_plain(v, name, overflow), x, np.float64).astype(x.dtype)


def code_table(name: str) -> dict[tuple[float, float], int]:
    """Return (value, sign) -> code of a format's finite numbers and infinities."""
    fmt = get_format(name)
    values = [decode_plain(code, fmt) for code in range(1 << fmt.bits)]
    return {(v, math.copysign(1.0, v)): code for code, v in enumerate(values) if not math.isnan(v)}


def codes_of(values: np.ndarray, name: str) -> np.ndarray:
    """Return the codes of values that are on a format's grid; NaN gives the format's NaN code."""
    table, nan = code_table(name), get_format(name).nan_code
    flat = (float(v) for v in values.reshape(-1))
    codes = [nan if math.isnan(v) else table[v, math.copysign(1.0, v)] for v in flat]
    return np.array(codes, np.uint8).reshape(values.shape)


def same_nan(codes: np.ndarray, name: str) -> np.ndarray:
    """Return codes with every NaN as the format's first one: which NaN it is does not matter."""
    fmt = FORMATS[name]
    nans = [code for code in range(1 << fmt.bits) if math.isnan(decode_plain(code, fmt))]
    return np.where(np.isin(codes, nans), fmt.nan_code or 0, codes)


def noise(name: str, *shape: int) -> np.ndarray:
    """Return float32 numbers from -4 to 4 that bfloat16 can hold; they depend on the name alone."""
    words = np.random.PCG64(zlib.crc32(name.encode())).random_raw(math.prod(shape))
    magnitudes = (128 + (words & 127)).astype(np.float32) / 128  # 8 significant bits
    signs = 1 - 2 * ((words >> 7) & 1).astype(np.float32)
    exponents = ((words >> 8) & 7).astype(np.int32) - 6
    return np.ldexp(signs * magnitudes, exponents).reshape(shape)


def noise_codes(name: str, *shape: int) -> np.ndarray:
    """Return e4m3fn codes of numbers (no NaN) that depend on the name alone."""
    words = np.random.PCG64(zlib.crc32(name.encode())).random_raw(math.prod(shape))
    return ((words % 127) | ((words >> 32) & 1) << 7).astype(np.uint8).reshape(shape)
