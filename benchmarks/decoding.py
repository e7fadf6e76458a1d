"""One more token after 4,096 cached ones, beside reading and decoding the weights once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import Row, medians
from benchmarks.setting import Setting
from blocklab import LatentCache, causal_mask, dense_block, rotary_table
from blocklab.numerics import round_to, tiles
from blocklab.numerics.threads import spread_rows

RECIPES = ("deepseek-bf16", "deepseek-fp8,accumulate=float32", "deepseek-fp8")
TARGET = 2.0


def decoding(setting: Setting) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Yield one token in each form of attention."""
    for attention in ("absorb", "naive"):
        yield attention, lambda attention=attention: _token(setting, attention)


def _token(setting: Setting, attention: str) -> list[Row]:
    c, rng = setting.config, np.random.default_rng(0)
    S = 256 if setting.quick else 4096
    latent, key = (
        round_to(rng.standard_normal((1, S, width), np.float32), "bfloat16")
        for width in (c.kv_lora_rank, c.qk_rope_head_dim)
    )
    x, R, M = rng.standard_normal((1, 1, c.hidden_size), np.float32), rotary_table(c, [S]), causal_mask(1, S + 1)

    def token(recipe: str) -> object:
        return dense_block(x, R, M, setting.weights, recipe, attention, LatentCache(latent, key))

    calls = [lambda: read_weights(setting), *(lambda recipe=recipe: token(recipe) for recipe in RECIPES)]
    reading, *ours = medians(calls)
    return [
        Row(f"one token, {S} cached, {attention}, {recipe}", s, "read and decode the weights", reading, "s", TARGET)
        for recipe, s in zip(RECIPES, ours, strict=True)
    ]


def read_weights(setting: Setting) -> None:
    """Decode every matrix once, in tiles, by as many threads as the block uses."""
    for weight in setting.weights.named().values():
        if len(weight.shape) != 2:
            continue

        def tile(rows: slice, weight=weight) -> None:
            for start in range(0, weight.shape[1], tiles.COLUMNS):
                weight.values(rows, slice(start, start + tiles.COLUMNS))

        spread_rows(tile, weight.shape[0], tiles.ROWS, 8, np)
