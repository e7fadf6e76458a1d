"""Where heads look: patterns head by head, and all heads from one query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.errors import InputError
from blocklab.show import style
from blocklab.show.about import labels_of
from blocklab.show.heatmap import hatch_background, name_ticks
from blocklab.show.pooling import masked_to_infinity, pool
from blocklab.show.views import View
from blocklab.store.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

HEADS, CELLS = 16, 96
"""The most heads, and the most rows and columns of each, that one picture shows."""


@dataclass(frozen=True)
class Patterns:
    """Patterns of some heads [n, T, S]; `hidden` is True where a key may not be seen."""

    heads: tuple[int, ...]
    of: int
    shares: np.ndarray
    hidden: np.ndarray
    labels: list[str] | None


def patterns(trace: Trace, heads: list[int] | None = None, batch: int = 0) -> Patterns:
    """Return the patterns of some heads of a trace, by default the first HEADS of them.

    Hidden keys are known from attn_masked where the trace has it, and otherwise taken as those that no head looks at
    and that come after the query.
    Errors: InputError for heads or a batch entry that do not exist.
    """
    whole = trace["pattern"]
    H = whole.shape[1]
    chosen = list(range(min(H, HEADS))) if heads is None else heads
    for kind, index, size in (("batch", batch, whole.shape[0]), *(("head", head, H) for head in chosen)):
        if not 0 <= index < size:
            raise InputError(f"pattern: {kind}: expected 0 to {size - 1}; found {index}")
    shares = whole[batch, chosen].astype(np.float64)
    labels = labels_of(trace, whole.shape[3])
    return Patterns(tuple(chosen), H, shares, hidden_keys(trace, batch)[chosen], labels)


def hidden_keys(trace: Trace, batch: int = 0) -> np.ndarray:
    """Return bool [H, T, S]: True where the pattern is zero because the key is hidden."""
    if "attn_masked" in trace and trace["attn_masked"].shape == trace["pattern"].shape:
        return np.isinf(masked_to_infinity("attn_masked", trace["attn_masked"][batch]))
    H, T, S = trace["pattern"].shape[1:]
    later = np.arange(S)[None] > np.arange(T)[:, None] + (S - T)
    return np.broadcast_to(later & (trace["pattern"][batch] == 0).all(axis=0), (H, T, S))


def draw_patterns(data: Patterns, note: str = "") -> Figure:
    """Draw patterns side by side: queries down, keys across, darker is more attention, hidden keys hatched."""
    count = len(data.heads)
    columns = min(4, count)
    rows = math.ceil(count / columns)
    made = style.figure(2.0 + 2.5 * columns, 1.1 + 2.6 * rows)
    image = None
    for place, head in enumerate(data.heads):
        ax = made.add_subplot(rows, columns, place + 1)
        image = _draw_one(ax, data, place)
        style.label(
            ax,
            f"head {head}",
            "key" if place >= count - columns else "",
            "query" if place % columns == 0 else "",
        )
    if image is not None:
        bar = made.colorbar(image, ax=made.axes, pad=0.01, shrink=0.8)
        bar.set_label("share of the attention", fontsize=style.TEXT)
        bar.ax.tick_params(labelsize=style.SMALL)
    heads = f"{count} of {data.of} heads" if count < data.of else f"all {data.of} heads"
    made.suptitle(f"Where each query looks: {heads}. {note}".strip(), fontsize=style.TITLE, x=0.01, ha="left")
    return made


def _draw_one(ax: Axes, data: Patterns, place: int) -> AxesImage:
    shares, hidden = data.shares[place], data.hidden[place]
    T, S = shares.shape
    visible = pool(np.where(hidden, -np.inf, shares), CELLS, CELLS)
    if np.isinf(visible).any():
        hatch_background(ax)
    image = ax.imshow(
        np.ma.masked_invalid(visible),
        cmap=style.SIZES,
        vmin=0,
        vmax=1,
        extent=(-0.5, S - 0.5, T - 0.5, -0.5),
        interpolation="nearest",
    )
    labels = data.labels
    name_ticks(ax, View(shares, "", "", "", labels if T == S else None, labels), most=32)
    return image


def draw_gaze(data: Patterns, token: int, note: str = "") -> Figure:
    """Draw what every head looks at from one query: heads down, keys across, shares above 0.05 in numbers."""
    T, S = data.shares.shape[1:]
    if not 0 <= token < T:
        raise InputError(f"pattern: token: expected 0 to {T - 1}; found {token}")
    rows = data.shares[:, token]
    made = style.figure(max(6.0, min(12.0, 1.8 + 0.42 * S)), 1.6 + 0.34 * len(data.heads))
    ax = made.add_subplot()
    if data.hidden[:, token].any():
        hatch_background(ax)
    shown = np.ma.masked_where(data.hidden[:, token], rows)
    ax.imshow(shown, cmap=style.SIZES, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if S <= 32:
        for (head, key), share in np.ndenumerate(rows):
            if share > 0.05:
                color = "white" if share > 0.6 else style.INK
                ax.text(key, head, f"{share:.2f}", ha="center", va="center", fontsize=style.SMALL, color=color)
    heads = "head" if len(data.heads) == data.of else f"head ({len(data.heads)} of {data.of})"
    name = f"{token} {data.labels[token]!r}" if data.labels else str(token)
    style.label(ax, f"Where each head looks from token {name}", "key", heads, note)
    ax.set_yticks(range(len(data.heads)), [str(head) for head in data.heads])
    if data.labels is not None and S <= 48:
        ax.set_xticks(range(S), [f"{label}\n{key}" for key, label in enumerate(data.labels)], fontsize=style.SMALL)
    return made
