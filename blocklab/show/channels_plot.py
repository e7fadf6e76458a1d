"""Loud channels: the root mean square of every channel of a step, outliers named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.show import style
from blocklab.show.facts import OUTLIER, channel_rms
from blocklab.show.pooling import between_heads
from blocklab.store.trace import Trace
from blocklab.tables import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 6
"""Outliers that are named."""


@dataclass(frozen=True)
class Channels:
    """Root mean square of each channel, head after head; `width` channels a head (0: no heads)."""

    step: str
    rms: np.ndarray
    width: int

    @property
    def median(self) -> float:
        """The median channel's root mean square."""
        return float(np.median(self.rms))

    @property
    def outliers(self) -> list[int]:
        """Channels OUTLIER times louder than the median, loudest first."""
        order = np.argsort(-self.rms, kind="stable")
        return [int(c) for c in order if self.rms[c] > OUTLIER * self.median]

    @property
    def loudest(self) -> int:
        """The loudest channel."""
        return int(self.rms.argmax())

    def name(self, channel: int) -> str:
        """Return "426", or "head 3, 12"."""
        return f"head {channel // self.width}, {channel % self.width}" if self.width else str(channel)


def channels(trace: Trace, name: str) -> Channels:
    """Return the loudness of the channels of a step [B, T, ...]."""
    rms = channel_rms(trace[name])
    return Channels(name, rms.ravel(), rms.shape[1] if rms.ndim == 2 else 0)


def draw_channels(data: Channels, note: str = "") -> Figure:
    """Draw a stem for each channel; the loudest ones carry their index and how many times the median they are."""
    made = style.figure(9.0, 3.6)
    ax = made.add_subplot()
    places = np.arange(data.rms.size)
    ax.vlines(places, 0, data.rms, color="#0072b2", linewidth=max(0.4, min(2.0, 500 / data.rms.size)))
    top = float(data.rms.max() * 1.15) or 1.0
    for level, text, dashes in ((data.median, "median", ()), (OUTLIER * data.median, f"{OUTLIER:g} x median", (4, 2))):
        if level <= top:
            ax.axhline(level, color=style.INK, linewidth=0.9, dashes=dashes)
            ax.text(1.005, level, text, transform=ax.get_yaxis_transform(), fontsize=style.SMALL, va="center")
    taken: list[int] = []
    for channel in data.outliers or [data.loudest]:
        ax.plot(channel, data.rms[channel], marker="v", color=style.STROKES[2].color, markersize=6)
        if len(taken) < NAMED and all(abs(channel - other) > data.rms.size / 7 for other in taken):
            taken.append(channel)
            times = data.rms[channel] / (data.median or 1)
            ax.annotate(
                f"{data.name(channel)}: {format_number(float(data.rms[channel]))} ({times:.1f} x)",
                (channel, data.rms[channel]),
                xytext=(5, 5) if channel < data.rms.size / 2 else (-5, 5),
                ha="left" if channel < data.rms.size / 2 else "right",
                textcoords="offset points",
                fontsize=style.TEXT,
                in_layout=False,
            )
    for head in between_heads(data.rms.size, data.width):
        ax.axvline(head - 0.5, color=style.GRID, linewidth=0.6, zorder=0)
    ax.set_xlim(-1, data.rms.size)
    ax.set_ylim(0, top)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    style.label(ax, f"Loudness of each channel of {data.step}", "channel", "rms over positions", note)
    return made
