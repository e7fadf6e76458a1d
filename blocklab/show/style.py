"""The one style of all pictures: sizes, colours and fonts, and how they are written to files.

Signed values go from blue over near white at zero to orange, as on the explorer's page: the eye sees sign and size at
once, and no kind of colour blindness mixes up the two ends. What lies beyond the range is darker than its end.
Magnitudes go from white to dark blue. Lines differ by marker and dash as well as by colour (Okabe and Ito's palette).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from blocklab.store.writing import PICTURES, atomic_write, require_targets

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

SIZES = "Blues"
INK, FAINT, GRID, HIDDEN = "#1a1a1a", "#6b6b6b", "#d9d9d9", "#d0d0d0"
TITLE, TEXT, SMALL = 11.0, 9.0, 7.5
DPI = 120


class Stroke(NamedTuple):
    """How one line of a chart is drawn."""

    color: str
    marker: str
    dashes: tuple[int, ...]

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`."""
        dashes = {"dashes": self.dashes} if self.dashes else {}
        return {"color": self.color, "marker": self.marker, "markersize": 4, "linewidth": 1.3, **dashes}


STROKES = (
    Stroke("#000000", "o", ()),
    Stroke("#0072b2", "s", (5, 2)),
    Stroke("#d55e00", "^", (1, 1)),
    Stroke("#009e73", "D", (6, 2, 1, 2)),
    Stroke("#e69f00", "v", (3, 1)),
    Stroke("#56b4e9", "x", (2, 2)),
)
"""Strokes in the order in which lines take them."""


def figure(width: float = 8.0, height: float = 4.0) -> Figure:
    """Return an empty figure of so many inches; pyplot and its global state are not used."""
    # Imported here, the only place that draws, so that commands without pictures do not wait for matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(made)
    return made


def signed() -> Colormap:
    """Return the colours of signed values: those of `explorer/style.css` for a light page."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = ("#1f63b0", "#9cc6ea", "#f6f6f3", "#f7bd7c", "#cc5f00")
    return LinearSegmentedColormap.from_list("signed", ends).with_extremes(under="#081f45", over="#4d1d00")


def label(ax: Axes, title: str, x: str, y: str, note: str = "", lift: float = 0.0) -> None:
    """Give a chart its title, a fainter note under it, and the names of its axes.

    lift  points to leave free between the chart and its note
    """
    ax.set_title(title, loc="left", fontsize=TITLE, color=INK, weight="bold", pad=6 + lift + (14 if note else 0))
    below = ax.annotate(
        note,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 5 + lift),
        textcoords="offset points",
        fontsize=TEXT,
        color=FAINT,
    )
    below.set_in_layout(False)  # a long note must not push the colour bar away
    ax.set_xlabel(x, fontsize=TEXT, color=INK)
    ax.set_ylabel(y, fontsize=TEXT, color=INK)
    ax.tick_params(labelsize=SMALL + 0.5, colors=INK)


def lines_only(ax: Axes, grid: Literal["both", "x", "y"] = "both") -> None:
    """Leave a chart only what is needed: two spines and a faint grid behind the data."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(color=GRID, linewidth=0.6, axis=grid)
    ax.set_axisbelow(True)


def log_scale(ax: Axes, axis: Literal["x", "y"], values: Iterable[float]) -> None:
    """Make an axis logarithmic, unless it has nothing to show: no positive, finite value."""
    if any(0 < value < np.inf for value in values):
        ax.set(**{f"{axis}scale": "log"})


def save(made: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by the file's ending; the same figure gives the same bytes.

    Raises InputError for another ending and where the file cannot be written.
    """
    import matplotlib

    require_targets(path, endings=PICTURES)
    kind = Path(path).suffix.lower().removeprefix(".")
    buffer = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with (
        matplotlib.rc_context({"svg.hashsalt": "blocklab", "svg.fonttype": "path"}),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),  # values near the end of float32
    ):
        warnings.filterwarnings("ignore", "Glyph")  # a label's character that the font lacks is shown as a box
        made.savefig(buffer, format=kind, metadata=metadata)
    atomic_write(path, buffer.getvalue())
