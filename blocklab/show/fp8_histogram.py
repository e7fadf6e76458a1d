"""How values use the FP8 grid: one bar for each magnitude that e4m3 can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.numerics import decode, quantize
from blocklab.show import style
from blocklab.store.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAGNITUDES = 127
"""Codes 0x00 .. 0x7E: zero, seven subnormals, and the normal numbers up to 448."""


@dataclass(frozen=True)
class GridUse:
    """Shares of the codes at each magnitude of the grid, signs taken together."""

    magnitudes: np.ndarray
    shares: np.ndarray
    groups: int

    @property
    def zero(self) -> float:
        """Share of zeros."""
        return float(self.shares[0])

    @property
    def subnormal(self) -> float:
        """Share of subnormal numbers, below 2^-6."""
        return float(self.shares[1:8].sum())

    @property
    def largest(self) -> float:
        """Share at 448, the largest value."""
        return float(self.shares[-1])


def grid_use(codes: np.ndarray, groups: int) -> GridUse:
    """Count e4m3 codes by magnitude; NaN codes are left out."""
    counts = np.bincount((codes & 0x7F).ravel(), minlength=128)[:MAGNITUDES]
    magnitudes = decode(np.arange(MAGNITUDES, dtype=np.uint8))
    return GridUse(magnitudes, counts / max(1, counts.sum()), groups)


def step_grid_use(trace: Trace, name: str, group: int = 128) -> GridUse:
    """Return how a step, quantised 1 x group along its channels, uses the grid; codes are taken as they are."""
    value = trace[name]
    if name.endswith(".in.codes"):
        scale = trace.get(name.removesuffix("codes") + "scale")
        return grid_use(value, -(-value.size // group) if scale is None else scale.size)
    most = np.finfo(np.float32).max
    finite = np.clip(np.where(np.isfinite(value), value, 0), -most, most).astype(np.float32)
    codes, scale = quantize(finite.reshape(*value.shape[:2], -1), block=(1, group))
    return grid_use(codes, scale.size)


def draw_grid_use(data: GridUse, title: str, note: str = "") -> Figure:
    """Draw one bar a magnitude, binade after binade: 8 bars double the value, except below 2^-6."""
    made = style.figure(9.0, 3.8)
    ax = made.add_subplot()
    places = np.arange(MAGNITUDES)
    kinds = (
        ("normal", places >= 8, "#0072b2", ""),
        ("subnormal, below 2^-6", (places > 0) & (places < 8), "#e69f00", "////"),
        ("zero", places == 0, "#000000", ""),
    )
    for kind, chosen, color, hatch in kinds:
        share = data.shares[chosen].sum()
        ax.bar(
            places[chosen],
            np.maximum(data.shares[chosen], 1e-9),
            width=0.9,
            color=color,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
            label=f"{kind}: {share:.2%}",
        )
    smallest = data.shares[data.shares > 0].min() if (data.shares > 0).any() else 1e-3
    ax.set_yscale("log")
    ax.set_ylim(smallest / 2, 1.0)
    ax.annotate(
        f"448: {data.largest:.2%}",
        (MAGNITUDES - 1, max(data.largest, smallest)),
        xytext=(1.0, 0.92),
        textcoords="axes fraction",
        ha="right",
        fontsize=style.TEXT,
        arrowprops={"arrowstyle": "-", "color": style.FAINT},
    )
    binades = np.arange(8, MAGNITUDES, 8)
    ax.set_xticks([0, *binades], ["0", *(f"$2^{{{e}}}$" for e in range(-6, 9))])
    for place in binades:
        ax.axvline(place - 0.5, color=style.GRID, linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(fontsize=style.TEXT, loc="upper left", frameon=False)
    style.label(ax, title, "magnitude of the code, one bar each (times the group's scale)", "share of the codes", note)
    return made
