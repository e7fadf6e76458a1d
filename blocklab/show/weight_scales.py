"""The scales of an FP8 weight, one for each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError
from blocklab.show import style
from blocklab.show.pooling import pool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = 160
"""The most rows and columns of blocks that are drawn."""


@dataclass(frozen=True)
class BlockScales:
    """Scales of the blocks of one weight.

    log2    of each scale; a step of one is a factor of two
    zero    blocks that hold zeros only, whose scale means nothing
    """

    name: str
    shape: tuple[int, int]
    block: tuple[int, int]
    log2: np.ndarray
    zero: np.ndarray

    @property
    def short(self) -> tuple[int, int]:
        """Rows and columns of the last blocks, where these are short; 0 where they are whole."""
        return self.shape[0] % self.block[0], self.shape[1] % self.block[1]


def block_scales(weights: BlockWeights, name: str) -> BlockScales:
    """Return the scales of a weight, by its name relative to the layer or the last part of it.

    Errors: InputError for a name that no weight has, and for a weight without block scales.
    """
    named = weights.named()
    full = next((n for n in named if name in (n, n.removesuffix(".weight"), n.split(".")[-2])), None)
    if full is None:
        raise InputError(f"scales: no weight {name!r}; there are {', '.join(named)}")
    weight = named[full]
    if weight.scale is None or weight.block is None:
        raise InputError(f"scales: {full} is {weight.format} and has no block scales")
    rows, columns = weight.block
    zero = np.zeros(weight.scale.shape, bool)
    for i in range(len(zero)):
        used = (weight.raw[i * rows : (i + 1) * rows] & 0x7F).any(axis=0)
        zero[i] = ~np.logical_or.reduceat(used, np.arange(0, len(used), columns))
    shape = (int(weight.shape[0]), int(weight.shape[1]))
    return BlockScales(full, shape, weight.block, np.log2(weight.scale.astype(np.float64)), zero)


def draw_block_scales(data: BlockScales, note: str = "") -> Figure:
    """Draw the scales as a grid of blocks; blocks of zeros are hatched."""
    rows, columns = data.log2.shape
    made = style.figure(max(6.5, min(9.5, 3.0 + 0.42 * columns)), max(2.6, min(8.0, 1.4 + 0.32 * rows)))
    ax = made.add_subplot()
    visible = pool(np.where(data.zero, -np.inf, data.log2), CELLS, CELLS)
    if data.zero.any():
        from blocklab.show.heatmap import hatch_background

        hatch_background(ax)
    image = ax.imshow(
        np.ma.masked_invalid(visible),
        cmap=style.SIZES,
        aspect="auto",
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
        interpolation="nearest",
    )
    for size, set_ticks in ((columns, ax.set_xticks), (rows, ax.set_yticks)):
        if size <= 16:
            set_ticks(range(size))
    bar = made.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("log2 of the scale", fontsize=style.TEXT)
    bar.ax.tick_params(labelsize=style.SMALL)
    if rows * columns <= 200:
        limits = (np.min(data.log2[~data.zero], initial=0), np.max(data.log2[~data.zero], initial=-99))
        for (i, j), value in np.ndenumerate(data.log2):
            dark = not data.zero[i, j] and value > (limits[0] + limits[1]) / 2
            text = "zeros" if data.zero[i, j] else f"{value:.1f}"
            ax.text(j, i, text, ha="center", va="center", fontsize=style.SMALL, color="white" if dark else style.INK)
    short = [f"the last {'row' if axis == 0 else 'column'} of blocks has {n} {'rows' if axis == 0 else 'columns'}"
             for axis, n in enumerate(data.short) if n]  # fmt: skip
    size = f"{data.shape[0]} x {data.shape[1]} in blocks of {data.block[0]} x {data.block[1]}"
    style.label(
        ax,
        f"Scales of {data.name.removesuffix('.weight')}",
        f"block of {data.block[1]} columns",
        f"block of {data.block[0]} rows",
        "; ".join([note or size, *short]),
    )
    return made
