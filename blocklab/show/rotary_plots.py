"""Pictures of the rotary embedding: angles over positions and pairs, and what YaRN does to the frequencies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.rotary import correction_range, inverse_frequencies, yarn_ramp
from blocklab.errors import InputError
from blocklab.show import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Angles:
    """Angles in radians, not reduced: [positions, pairs]."""

    positions: np.ndarray
    angles: np.ndarray


def angles(config: BlockConfig, positions: np.ndarray) -> Angles:
    """Return position times frequency for every position and pair."""
    return Angles(positions, positions[:, None] * inverse_frequencies(config)[None])


def draw_angles(data: Angles, note: str = "") -> Figure:
    """Draw cos of the angles: pairs down, positions across; orange is no turn, blue half a turn."""
    made = style.figure(9.0, 4.2)
    ax = made.add_subplot()
    pairs = data.angles.shape[1]
    extent = (data.positions[0] - 0.5, data.positions[-1] + 0.5, pairs - 0.5, -0.5)
    image = ax.imshow(
        np.cos(data.angles).T,
        cmap=style.signed(),
        vmin=-1,
        vmax=1,
        aspect="auto",
        extent=extent,
        interpolation="nearest",
    )
    bar = made.colorbar(image, ax=ax, pad=0.02, ticks=[-1, 0, 1])
    bar.set_label("cos(angle)", fontsize=style.TEXT)
    bar.ax.set_yticklabels(["-1: half a turn", "0: quarter", "1: none"], fontsize=style.SMALL)
    style.label(ax, "How far each pair of channels is rotated at each position", "position", "pair", note)
    return made


@dataclass(frozen=True)
class Ramp:
    """YaRN's treatment of each pair.

    plain, yarn  positions that one turn takes, without and with YaRN
    other        the same with the common default beta_fast = 32
    ramp         share of the stretched frequency: 0 kept, 1 divided by factor
    low, high    the correction range
    context      positions the model was first trained on, and those it is stretched to
    """

    plain: np.ndarray
    yarn: np.ndarray
    other: np.ndarray
    ramp: np.ndarray
    other_ramp: np.ndarray
    low: int
    high: int
    factor: float
    context: tuple[int, int]


def ramp(config: BlockConfig) -> Ramp:
    """Return what YaRN does to each pair of a config.

    Errors: InputError for a config without YaRN.
    """
    if config.yarn is None:
        raise InputError("ramp: this config has no YaRN: rope_scaling is null")
    wide = replace(config, yarn=replace(config.yarn, beta_fast=32.0))
    low, high = correction_range(config)
    plain, yarn, other = (2 * np.pi / inverse_frequencies(c) for c in (replace(config, yarn=None), config, wide))
    original = config.yarn.original_max_position_embeddings
    return Ramp(
        plain=plain,
        yarn=yarn,
        other=other,
        ramp=yarn_ramp(config),
        other_ramp=yarn_ramp(wide),
        low=low,
        high=high,
        factor=config.yarn.factor,
        context=(original, round(original * config.yarn.factor)),
    )


def draw_ramp(data: Ramp, note: str = "") -> Figure:
    """Draw positions per turn of each pair, with and without YaRN, and the ramp between them."""
    made = style.figure(10.0, 4.0)
    left, right = made.subplots(1, 2, width_ratios=(3, 2))
    pairs = np.arange(len(data.plain))
    for stroke, values, name in zip(
        style.STROKES,
        (data.plain, data.yarn, data.other),
        ("without YaRN", "with YaRN", "with beta_fast = 32"),
        strict=False,
    ):
        left.plot(pairs, values, label=name, **(stroke.options | {"markersize": 3}))
    for length, text in zip(data.context, ("trained context", "stretched context"), strict=True):
        left.axhline(length, color=style.INK, linewidth=0.8, dashes=(2, 2))
        left.text(0, length * 1.15, f"{text}: {length:,}", fontsize=style.SMALL)
    left.set_yscale("log")
    left.legend(fontsize=style.TEXT, frameon=False, loc="lower right")
    style.lines_only(left)
    style.label(left, "Positions that one turn takes", "pair", "positions a turn", note)
    right.step(pairs, data.ramp, where="mid", label="this config", color=style.STROKES[1].color, linewidth=1.6)
    right.step(pairs, data.other_ramp, where="mid", label="beta_fast = 32", color=style.STROKES[2].color, dashes=(2, 1))
    right.axvspan(data.low, data.high, color=style.GRID, zorder=0)
    right.set_ylim(-0.05, 1.05)
    place, side = (data.high + 0.6, "left") if data.high < 0.7 * len(pairs) else (data.low - 0.6, "right")
    text = f"pairs {data.low} to {data.high}"
    right.text(min(place, len(pairs)), 0.5, text, ha=side, fontsize=style.TEXT, color=style.INK)
    right.legend(fontsize=style.TEXT, frameon=False, loc="upper left")
    style.lines_only(right)
    style.label(right, "YaRN's ramp", "pair", f"0: kept, 1: divided by {data.factor:g}")
    return made
