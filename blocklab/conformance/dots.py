"""Conformance parts about FP8 dots: the reproducible order of sums, and probes of tensor cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from blocklab.conformance.activations import spread
from blocklab.conformance.part import (
    Answer,
    Deviation,
    Part,
    deviation,
    exact,
    noise,
    noise_codes,
    rounded,
    within,
)
from blocklab.numerics import fp8_matmul
from blocklab.numerics.formats import decode_plain
from blocklab.numerics.tensor_core import ADA_FP8, BLACKWELL_FP8, HOPPER_FP8, TensorCore, step_plain

F32 = np.float32
_TABLE = np.array([decode_plain(code, "e4m3fn") for code in range(256)])
_GROUPS = [slice(start, start + 128) for start in (0, 128, 256)]


def dot_parts() -> Iterator[Part]:
    """Yield the parts about dots."""
    yield _fp8_matmul()
    yield _tensor_core()


@dataclass(frozen=True)
class _Product:
    """The operands of an FP8 product: codes and scales."""

    a: np.ndarray
    a_scale: np.ndarray
    w: np.ndarray
    w_scale: np.ndarray

    def groups(self, folded: bool = False) -> list[np.ndarray]:
        """Return each group's scaled dot in float32; the sum of its products is exact in float64."""
        found = []
        for g, part in enumerate(_GROUPS):
            dot = (_TABLE[self.a[:, part]] @ _TABLE[self.w[:, part]].T).astype(np.float32)
            s_a, s_w = self.a_scale[:, g, None], np.repeat(self.w_scale[:, g], 128)[: len(self.w)]
            found.append(dot * (s_a * s_w) if folded else dot * s_a * s_w)
        return found

    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both operands dequantised, in float64."""
        a = _TABLE[self.a] * spread(self.a_scale, 1, 128, self.a.shape)
        return a, _TABLE[self.w] * spread(self.w_scale, 128, 128, self.w.shape)


def _fp8_matmul() -> Part:
    T, N, K = 4, 130, 300
    a, w = noise_codes("conformance a", T, K), noise_codes("conformance w", N, K)
    a_scale, w_scale = (np.abs(noise(f"conformance {n} scale", *s)) / 3 for n, s in (("a", (T, 3)), ("w", (2, 3))))
    a[1, 128:256], a_scale[1, 1] = 0, F32(1e-4) / F32(448)
    p = _Product(a, a_scale, w, w_scale)
    groups, folded = p.groups(), p.groups(folded=True)
    left, right = p.values()
    return Part(
        "fp8_matmul.exact",
        "a [4, 300] and w [130, 300] as e4m3fn codes, a_scale for groups of 1 x 128, w_scale for blocks of 128 x 128:"
        " for each group of 128 in order acc = acc + (dot s_a) s_w in float32, from 0; dot is the exact sum of the"
        " group's products (float64 holds it in any order), rounded once to float32",
        {"fp8_matmul.a": a, "fp8_matmul.a_scale": a_scale, "fp8_matmul.w": w, "fp8_matmul.w_scale": w_scale},
        exact(_sum(groups)),
        deviations=[
            deviation("scales-folded", "dot (s_a s_w): the scales are multiplied first", _sum(folded)),
            deviation("one-rounding", "summed over all of K in float64, rounded once", (left @ right.T).astype(F32)),
            deviation("groups-backwards", "the groups are added last to first", _sum(groups[::-1])),
            deviation("hopper", "summed as a Hopper tensor core does", fp8_matmul(a, a_scale, w, w_scale, "hopper")),
            Deviation("float32-sums", "summed in float32, in some order", _within_bound(left, right, 2.0**-24)),
            Deviation(
                "bfloat16-operands",
                "operands are dequantised to bfloat16 before they are multiplied; the result may be, too",
                _within_bound(rounded(left, "bfloat16"), rounded(right, "bfloat16"), 2.0**-24, 2.0**-8),
            ),
        ],
    )


def _sum(groups: list[np.ndarray]) -> np.ndarray:
    return reduce(lambda acc, group: acc + group, groups, np.zeros_like(groups[0]))


def _within_bound(a: np.ndarray, w: np.ndarray, unit: float, last: float = 0.0) -> Answer:
    """Return what sums of K products in any order may give: (K + 2) unit sum |a w|, and one rounding at the end."""
    value = a @ w.T
    return within(value, (a.shape[1] + 2) * unit * (np.abs(a) @ np.abs(w).T) + last * np.abs(value))


def _tensor_core() -> Part:
    probes = _probes()
    a, b = (np.zeros((len(probes), 32)) for _ in range(2))
    for i, (_, pairs) in enumerate(probes):
        for j, (x, y) in enumerate(pairs):
            a[i, j], b[i, j] = x, y
    codes = {value: code for code, value in enumerate(_TABLE.tolist()) if code != 0x80 and not math.isnan(value)}
    inputs = {
        f"tensor_core.{n}": np.array([[codes[v] for v in row] for row in m], np.uint8) for n, m in (("a", a), ("b", b))
    }

    def core(unit: TensorCore) -> np.ndarray:
        return np.array([_steps(x, y, unit) for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.float32)

    return Part(
        "tensor_core.hopper",
        "a and b as e4m3fn codes [n, 32]: the float32 result of one FP8 matrix instruction over K = 32 with C = 0, as"
        " the hardware gives it; compared with Hopper's (numerics.md, section 4), to see which unit it is",
        inputs,
        exact(core(HOPPER_FP8)),
        deviations=[
            deviation(
                "exact", "exact sums, rounded once to float32: no Hopper tensor core", (a * b).sum(1).astype(F32)
            ),
            deviation("ada", "the register of Ada, 16 products a step", core(ADA_FP8)),
            deviation("blackwell", "the register of Blackwell, 25 bits", core(BLACKWELL_FP8)),
        ],
        labels=[label for label, _ in probes],
        informational=True,
    )


def _steps(a: list[float], b: list[float], core: TensorCore) -> float:
    register = 0.0
    for start in range(0, 32, core.terms):
        part = slice(start, start + core.terms)
        register = step_plain(register, a[part], b[part], core)
    return register


def _probes() -> list[tuple[str, list[tuple[float, float]]]]:
    """Return (what is probed, pairs whose products are added), worked out from the rules by hand."""
    tiny, nothing = 2.0**-9, (0.0, 0.0)
    return [
        ("a small product beside a large one is lost: 448 448 + 2^-6", [(448, 448), (2.0**-6, 1)]),
        ("the least that stays beside 448 448: 16", [(448, 448), (4, 4)]),
        ("just too little beside 448 448: 15", [(448, 448), (3.75, 4)]),
        ("many too small do not add up: 31 times 15", [(448, 448), *[(3.75, 4)] * 31]),
        ("negative terms are cut toward zero, not down: 1 - 2^-15", [(1, 1), (-tiny, 2.0**-6)]),
        ("the sum is cut to float32, not rounded: 448 448 + 0.75 2^-6", [(448, 448), (2.0**-6, 0.75)]),
        ("a negative sum is cut toward zero: -(1.875^2 + 2^-13)", [(-1.875, 1.875), (-(2.0**-7), 2.0**-6)]),
        (
            "products are aligned by ea + eb, not renormalised: 1.875^2 + 2 2^-13",
            [(1.875, 1.875), *[(2.0**-6, 2.0**-7)] * 2],
        ),
        ("a subnormal keeps the exponent -6: 448 2^-9 + 2^-11 2", [(448, tiny), (2.0**-6, 2.0**-4), (tiny, 0.5)]),
        ("a sum that cancels leaves what was kept: 256 - 256 + 2^-5", [(16, 16), (-16, 16), (0.25, 0.125)]),
        ("a sum that cancels has lost what was cut: 256 - 256 + 2^-6", [(16, 16), (-16, 16), (0.125, 0.125)]),
        ("the seventeenth product meets the first sixteen", [(1.875, 1.875)] * 16 + [(2.0**-6, 2.0**-6)] * 16),
        ("the largest comes second, sixteen small first", [(2.0**-5, 2.0**-4)] * 16 + [(16, 16)]),
        ("zero gives +0", [nothing]),
    ]
