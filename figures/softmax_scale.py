"""The softmax scale: which number it is, why, and what other numbers would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.block.config import BlockConfig, yarn_mscale
from blocklab.show import style
from blocklab.store.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def scale_candidates(config: BlockConfig) -> dict[str, float]:
    """Return the right scale, last, after others that have been shipped, smallest first."""
    plain = config.qk_head_dim**-0.5
    yarn = config.yarn
    mscale = yarn_mscale(yarn.factor, yarn.mscale_all_dim) if yarn is not None and yarn.mscale_all_dim else 1.0
    latent, nope, whole = (
        config.kv_lora_rank + config.qk_rope_head_dim,
        config.qk_nope_head_dim,
        config.qk_head_dim,
    )
    wrong = {
        f"{latent}^-1/2 (latent width)": latent**-0.5,
        f"{whole}^-1/2 (no mscale)": plain,
        f"{nope}^-1/2 (nope width)": nope**-0.5,
        f"{whole}^-1/2 mscale (once)": plain * mscale,
    }
    return {
        **dict(sorted(wrong.items(), key=lambda item: item[1])),
        f"{whole}^-1/2 mscale² (right)": config.softmax_scale,
    }


@dataclass(frozen=True)
class ScaleEffect:
    """What each scale does to one row of scores.

    shares  scale's name -> shares of the attention, [keys]
    keys    scale's name -> over how many keys the row spreads: e to its entropy
    """

    candidates: dict[str, float]
    full_size: dict[str, float]
    shares: dict[str, np.ndarray]
    keys: dict[str, float]
    head: int
    query: int


def scale_effect(trace: Trace, config: BlockConfig, full: BlockConfig, head: int, query: int) -> ScaleEffect:
    """Return the softmax of one traced row of scores under every candidate scale of `config`.

    full  the config whose scales are listed beside: the same candidates, of the published model
    """
    row = trace["attn_masked"][0, head, query].astype(np.float64)
    row = row[np.isfinite(row)]
    candidates = scale_candidates(config)
    shares, keys = {}, {}
    for name, scale in candidates.items():
        weights = np.exp((row - row.max()) * (scale / config.softmax_scale))
        share = weights / weights.sum()
        shares[name] = share
        keys[name] = float(np.exp(-(share * np.log(np.maximum(share, 1e-300))).sum()))
    return ScaleEffect(candidates, scale_candidates(full), shares, keys, head, query)


def draw_scale_effect(data: ScaleEffect, note: str = "") -> Figure:
    """Draw the candidates of the published model as bars, and how one row of attention spreads under each."""
    made = style.figure(10.5, 3.8)
    left, right = made.subplots(1, 2, width_ratios=(3, 2))
    names, values = list(data.full_size), list(data.full_size.values())
    for place, value in enumerate(values):
        right_one = place == len(values) - 1
        left.barh(place, value, color="#0072b2" if right_one else "#d9d9d9", edgecolor=style.INK, linewidth=0.6)
        left.text(value, place, f" {value:.4f}", va="center", fontsize=style.TEXT)
    left.set_yticks(range(len(names)), names, fontsize=style.TEXT)
    left.invert_yaxis()
    left.set_xlim(0, max(values) * 1.2)
    style.lines_only(left, "x")
    style.label(left, "The softmax scale of Kimi K2, and wrong ones", "scale", "", "mscale = 0.1 ln(factor) + 1")
    spread = list(data.keys.values())
    for place, value in enumerate(spread):
        right_one = place == len(spread) - 1
        right.barh(place, value, color="#0072b2" if right_one else "#d9d9d9", edgecolor=style.INK, linewidth=0.6)
        right.text(value, place, f" {value:.1f}", va="center", fontsize=style.TEXT)
    right.set_yticks(range(len(spread)), list(data.keys), fontsize=style.SMALL)
    right.invert_yaxis()
    right.set_xlim(0, max(spread) * 1.2)
    style.lines_only(right, "x")
    style.label(right, f"Spread of head {data.head} at token {data.query}", "keys (e to the entropy)", "", note)
    return made
