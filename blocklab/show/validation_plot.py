"""A validation as a picture: the error of each step, and of each step at each query position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from blocklab.check.report import Report
from blocklab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR = 1e-9
"""What an error of zero is drawn at, on a logarithmic scale."""


def validation_plot(report: Report) -> Figure:
    """Return two charts side by side: error by step, local and end to end, and local error by step and position."""
    rows = len(report.errors_by_position())
    figure = style.figure(11.0, 1.4 + 0.26 * rows)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.25))
    _by_step(left, report)
    _by_position(right, report)
    return figure


def plot_validation(report: Report, path: str | Path) -> None:
    """Write the charts of a validation; raises InputError for a file that is neither PNG nor SVG."""
    style.save(validation_plot(report), path)


def _by_step(ax: Axes, report: Report) -> None:
    shown: dict[str, tuple[float, float, bool]] = {}
    for r in report.steps:
        far = r.local.measures if r.end_to_end is None else r.end_to_end
        shown.setdefault(r.step, (_drawn(r.local.residual), _drawn(far.relative), r.local.passed))
    places = np.arange(len(shown))
    local, far_errors, passed = (np.array(column) for column in zip(*shown.values(), strict=True))
    first, second, third = style.STROKES[:3]
    ax.plot(far_errors, places, label="end to end", **second.options)
    ax.plot(local, places, label="local", **first.options)
    ax.scatter(local[~passed], places[~passed], s=90, facecolors="none", edgecolors=third.color, label="fails")
    ax.set_xscale("log")
    ax.set_xlim(FLOOR / 2, max(2.0, 2 * float(max(local.max(), far_errors.max()))))
    ax.set_yticks(places, list(shown))
    ax.invert_yaxis()
    note = f"recipe {report.recipe}, attention {report.attention}; {FLOOR:g} stands for 0"
    style.label(ax, f"Error by step: {report.verdict}", "relative norm error", "", note)
    style.lines_only(ax)
    ax.legend(fontsize=style.SMALL, frameon=True, loc="best")


def _drawn(error: float) -> float:
    return min(max(error, FLOOR), 1e6) if np.isfinite(error) else 1e6


def _by_position(ax: Axes, report: Report) -> None:
    """Show log10 of the local error, the worst sequence of the batch at each position."""
    rows = [local.max(axis=0) for local, _ in report.errors_by_position().values()]
    width = max(len(row) for row in rows)
    picture = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        finite = np.where(np.isfinite(row), row, 1e6)
        picture[i, width - len(row) :] = np.log10(np.clip(finite, FLOOR, 1e6))
    image = ax.imshow(picture, aspect="auto", cmap=style.SIZES, vmin=np.log10(FLOOR), vmax=0, interpolation="nearest")
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label("log10 of the relative error", fontsize=style.TEXT)
    bar.ax.tick_params(labelsize=style.SMALL)
    style.label(ax, "Local error by position", "query position", "", "worst sequence of the batch; darker is larger")
