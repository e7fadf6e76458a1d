"""Heat maps of steps and of errors: large values stay visible, outliers are trimmed and marked."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from blocklab.errors import InputError
from blocklab.show import style
from blocklab.show.pooling import ColourRange, between_heads, colour_range, masked_to_infinity, pool
from blocklab.show.views import View, view
from blocklab.store.statistics import root_mean_square
from blocklab.store.trace import Trace
from blocklab.tables import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

ROWS, COLUMNS = 128, 320
"""The most cells that a map is drawn with; larger matrices are pooled."""

MOST_HEADS = 16
"""Heads that are named and set apart where they lie side by side; more would hide the values."""

MARKS, NAMES = 12, 6
"""Columns of trimmed values that are marked, and those of them whose values are told."""


@dataclass(frozen=True)
class HeatMap:
    """What a heat map draws.

    cells    the matrix, pooled by largest magnitude
    range    the colours' range, and which cells are beyond it
    loudest  (column, value) of the largest magnitudes beyond the range, one a column, loudest first
    """

    view: View
    cells: np.ndarray
    range: ColourRange
    loudest: tuple[tuple[int, float], ...]

    @property
    def pooled(self) -> tuple[int, int]:
        """Values under one cell, down and across."""
        (rows, columns), (r, c) = self.view.values.shape, self.cells.shape
        return -(-rows // r), -(-columns // c)


def heat_map(shown: View, rows: int = ROWS, columns: int = COLUMNS) -> HeatMap:
    """Return what a heat map of a matrix draws; hidden scores (-inf) and NaN do not set its colours."""
    cells = pool(shown.values, rows, columns)
    chosen = colour_range(cells)
    loudest = []
    if chosen.beyond.any():
        finite = np.where(np.isfinite(shown.values), shown.values, 0)
        peaks = np.abs(finite).max(axis=0)
        for column in np.argsort(-peaks, kind="stable")[:MARKS].tolist():
            if peaks[column] > chosen.limit:
                loudest.append((column, float(finite[np.abs(finite[:, column]).argmax(), column])))
    return HeatMap(shown, cells, chosen, tuple(loudest))


def error_view(
    reference: Trace, other: Trace, name: str, batch: int = 0, head: int | None = None, token: int | None = None
) -> tuple[View, float]:
    """Return other - reference, in units of the reference's root mean square, and the relative norm error.

    Both must have the step in one shape; places that are hidden or NaN on either side are NaN.
    """
    a, b = (masked_to_infinity(name, trace[name]).astype(np.float64) for trace in (reference, other))
    if a.shape != b.shape:
        raise InputError(f"{name}: expected equal shapes to compare; found {list(a.shape)} and {list(b.shape)}")
    both = np.isfinite(a) & np.isfinite(b)
    if not both.any():
        raise InputError(f"{name}: no finite values on both sides to compare")
    size = float(root_mean_square(a[both])) or 1.0
    with np.errstate(all="ignore"):
        error = np.where(both, (b - a) / size, np.nan)
        relative = float(root_mean_square(error[both]))
    difference = Trace({name: error}, {}, {}, {}, reference.metadata)
    shown = view(difference, name, batch, head, token)
    return replace(shown, title=f"error of {shown.title}"), relative


def draw_heat_map(data: HeatMap, note: str = "", unit: str = "value") -> Figure:
    """Draw a heat map with its colour bar; marks above it name the columns whose values are trimmed."""
    height = max(2.4, min(6.0, 1.6 + 0.15 * data.cells.shape[0]))
    made = style.figure(9.0, height)
    ax = made.add_subplot()
    image = draw_cells(ax, data)
    bar = made.colorbar(image, ax=ax, extend="both" if data.range.beyond.any() else "neither", pad=0.02)
    bar.set_label(unit, fontsize=style.TEXT)
    bar.ax.tick_params(labelsize=style.SMALL)
    style.label(ax, data.view.title, data.view.columns, data.view.rows, note, lift=11 if data.loudest else 0)
    explanation = _reading(data)
    if explanation:
        made.supxlabel(explanation, fontsize=style.SMALL, color=style.FAINT, x=0.01, ha="left")
    return made


def draw_cells(ax: Axes, data: HeatMap) -> AxesImage:
    """Draw the cells of a heat map into an axes, in the coordinates of the whole matrix."""
    rows, columns = data.view.values.shape
    cells = np.ma.masked_invalid(data.cells)
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    if np.ma.is_masked(cells):
        hatch_background(ax)
    limit = data.range.limit
    image = ax.imshow(
        cells, cmap=style.signed(), vmin=-limit, vmax=limit, extent=extent, aspect="auto", interpolation="nearest"
    )
    name_ticks(ax, data.view)
    if columns <= MOST_HEADS * data.view.every:
        for head in between_heads(columns, data.view.every):
            ax.axvline(head - 0.5, color=style.INK, linewidth=0.8)
    _mark_columns(ax, data)
    return image


def hatch_background(ax: Axes) -> None:
    """Hatch what no cell covers: hidden scores, and numbers that are none."""
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle(
            (0, 0),
            1,
            1,
            transform=ax.transAxes,
            facecolor="white",
            edgecolor=style.HIDDEN,
            hatch="///",
            linewidth=0,
            zorder=-1,
        )
    )


def name_ticks(ax: Axes, shown: View, most: int = 48) -> None:
    """Name rows and columns by their labels where there are few enough, and heads that lie side by side."""
    if shown.every and shown.values.shape[1] <= MOST_HEADS * shown.every:
        middles = range(shown.every // 2, shown.values.shape[1], shown.every)
        ax.set_xticks(middles, [f"head {head}" for head in range(len(middles))])
    for labels, size, set_ticks in (
        (shown.row_labels, shown.values.shape[0], ax.set_yticks),
        (shown.column_labels, shown.values.shape[1], ax.set_xticks),
    ):
        if labels is not None and size <= most:
            set_ticks(range(size), labels, fontsize=style.SMALL, fontfamily="monospace")
        elif size <= 12 and not shown.every:
            set_ticks(range(size))


def _mark_columns(ax: Axes, data: HeatMap) -> None:
    """Put a triangle over each of the loudest trimmed columns, and the index and value over the loudest ones apart."""
    columns = data.view.values.shape[1]
    taken: list[int] = []
    for column, value in data.loudest:
        ax.plot(column, -0.5, marker="v", color=style.STROKES[2].color, markersize=5, clip_on=False, zorder=5)
        if len(taken) < NAMES and all(abs(column - other) > columns / (6 if data.view.every else 9) for other in taken):
            taken.append(column)
            ax.annotate(
                f"{data.view.column_name(column)}: {format_number(value)}",
                (column, -0.5),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=style.SMALL,
                color=style.STROKES[2].color,
                annotation_clip=False,
            )


def _reading(data: HeatMap) -> str:
    """Say how to read the map: what a cell stands for, what was trimmed, what is hatched."""
    parts = []
    down, across = data.pooled
    if down * across > 1:
        parts.append(f"A cell shows the value of largest magnitude of {down} x {across}.")
    if data.range.beyond.any():
        count, limit = int(data.range.beyond.sum()), format_number(data.range.limit)
        names = ", ".join(data.view.column_name(column) for column, _ in data.loudest[:NAMES])
        parts.append(f"{count} cells are beyond ±{limit}; loudest under triangles: {names}.")
    if not np.isfinite(data.cells).all():
        parts.append("Hatched: hidden, or not a number.")
    return "\n".join(textwrap.wrap(" ".join(parts), 150))
