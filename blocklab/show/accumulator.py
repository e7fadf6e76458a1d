"""How the 14-bit register of Hopper's tensor cores loses bits along a long dot, and what promotion saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.numerics import round_to
from blocklab.numerics.tensor_core import HOPPER_FP8, tensor_core_dot
from blocklab.show import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, GROUP, DOTS = 7168, 128, 256
"""Length of a dot of Kimi K2's width, products between two promotions, and how many dots are averaged over."""


@dataclass(frozen=True)
class Accumulation:
    """Root mean square errors of running sums, over that of the sums themselves, after each group: [K / 128].

    promoted    register added to float32 after every group
    register    never promoted: the register runs through all of K
    exact       exact groups, added in float32
    """

    k: np.ndarray
    promoted: np.ndarray
    register: np.ndarray
    exact: np.ndarray


def accumulation(seed: int = 0, width: int = WIDTH, dots: int = DOTS) -> Accumulation:
    """Run seeded dots of normal values on the e4m3 grid, of rms 100 and 56, through each way of summing."""
    rng = np.random.default_rng(seed)
    a, w = (round_to(rng.standard_normal((dots, width)) * size, "e4m3fn").astype(np.float32) for size in (100.0, 56.0))
    true = np.zeros(dots)
    promoted, register, exact = (np.zeros(dots, np.float32) for _ in range(3))
    errors: dict[str, list[float]] = {"promoted": [], "register": [], "exact": []}
    for start in range(0, width, GROUP):
        part = slice(start, start + GROUP)
        group = (a[:, part].astype(np.float64) * w[:, part]).sum(axis=1)
        true = true + group
        exact = exact + group.astype(np.float32)
        promoted = promoted + tensor_core_dot(a[:, part], w[:, part], HOPPER_FP8)
        register = tensor_core_dot(a[:, part], w[:, part], HOPPER_FP8, c=register)
        size = float(np.sqrt(np.mean(true**2)))
        for name, found in (("promoted", promoted), ("register", register), ("exact", exact)):
            errors[name].append(float(np.sqrt(np.mean((found - true) ** 2))) / size)
    k = np.arange(GROUP, width + 1, GROUP)
    return Accumulation(k, **{name: np.array(values) for name, values in errors.items()})


def draw_accumulation(data: Accumulation, note: str = "") -> Figure:
    """Draw the three errors along K, on a logarithmic scale."""
    made = style.figure(9.0, 4.0)
    ax = made.add_subplot()
    lines = (
        (data.register, "14-bit register all the way"),
        (data.promoted, "promoted to float32 every 128"),
        (data.exact, "exact groups, float32 sum"),
    )
    for stroke, (values, name) in zip(style.STROKES[:3], lines, strict=True):
        ax.plot(data.k, np.maximum(values, 1e-12), markevery=4, label=name, **stroke.options)
        ax.text(data.k[-1] * 1.01, max(values[-1], 1e-12), f"{values[-1]:.1e}", fontsize=style.TEXT, va="center")
    bfloat16 = 2.0**-9 / np.sqrt(3)
    ax.axhline(bfloat16, color=style.FAINT, linewidth=0.9, dashes=(2, 2))
    ax.text(data.k[0], bfloat16 * 1.1, "one rounding to bfloat16", fontsize=style.SMALL, color=style.FAINT)
    ax.set_yscale("log")
    ax.set_xlim(0, data.k[-1])
    ax.legend(fontsize=style.TEXT, frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.36))
    style.lines_only(ax)
    style.label(ax, "What a dot loses along K", "products added so far", "error / size of the sum", note)
    return made
