"""How much memory a run takes beyond its weights, estimated before it starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from blocklab.block.config import BlockConfig
from blocklab.block.tiling import INNER, SCORES, TILE_SCORES, TILE_TOKENS
from blocklab.numerics import Recipe
from blocklab.store.accounting import step_shapes

_BASE = 256 << 20  # the interpreter, numpy, tiles of weights, read and decoded


@dataclass(frozen=True)
class Memory:
    """Estimated bytes: of the whole run at its peak, and of its largest part.

    scores, inner  what attention scores and MLP activations take
    kept           what is recorded
    """

    total: int
    scores: int
    inner: int
    kept: int


def estimate(
    config: BlockConfig,
    B: int,
    T: int,
    S: int,
    recipe: Recipe,
    listens: Callable[[str], bool],
    keeps: Callable[[str], bool],
) -> Memory:
    """Estimate the peak of `dense_block` on B x T tokens that see S keys each.

    listens  whether a tap sees a step: scores that nobody sees are computed in tiles, and so is the MLP
    keeps    whether a step is recorded
    An element under work costs its carrier, and its operands and temporaries in the precision of the dots and
    of the work inside a step.
    """
    n = {name: math.prod(shape) for name, shape in step_shapes(config, B, T, S).items()}
    carrier = 8 if recipe.carrier == "float64" else 4
    wide = 4 if recipe.accumulate == "float32" else 8
    work = carrier + 4 * max(wide, 8 if recipe.work == "float64" else 4)
    held = carrier * (2 * n["resid_pre"] + n["q"] + n["q_rot"] + n["kv_up"] + n["z"])
    seen = n["pattern"] if any(map(listens, SCORES)) else min(n["pattern"], max(TILE_SCORES, S))
    scores = seen * (2 * carrier + work)
    tokens = B * T if any(map(listens, INNER)) else min(B * T, TILE_TOKENS)
    inner = tokens * config.intermediate_size * (2 * carrier + work)
    kept = carrier * sum(size for name, size in n.items() if keeps(name))
    linear = 3 * carrier * max(n["q"], n["kv_up"])
    rotation = 6 * (8 if recipe.work == "float64" else 4) * n["q_rot"]
    mask = 2 * T * S  # where it is made, and where tiles are cut out of it
    return Memory(_BASE + kept + held + mask + max(scores, inner, linear, rotation), scores, inner, kept)
