"""Attention and MLP in tiles, so that memory does not grow with the square of the tokens; the formulas do not know.

A tile is computed as it would be alone, so that every rounding stays where it was; sums of the work precision may be
taken in another order. Where the tap listens to what is inside, all is computed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeVar

import numpy as np

from blocklab.block.run import Run
from blocklab.block.steps import STEPS
from blocklab.numerics.threads import spread, worker_count
from blocklab.xp import Array, array_module

TILE_SCORES = 1 << 20
"""Scores that are held at one time when nobody listens to them."""

TILE_TOKENS = 1024
"""Tokens whose MLP activations are held at one time when nobody listens to them."""

SCORES = tuple(name for name, step in STEPS.items() if step.axes[-2:] == ("T", "S"))
"""The steps inside of a tile of attention."""

INNER = tuple(name for name, step in STEPS.items() if step.axes[-1] == "F")
INNER += tuple(f"{name}.in.{part}" for name in ("gate", "up", "mlp_out") for part in ("codes", "scale"))
"""The steps inside of a tile of the MLP."""

Weights = TypeVar("Weights")


def in_token_tiles(run: Run, formula: Callable[[Run, Array, Weights], Array], h: Array, w: Weights) -> Array:
    """Return formula(run, h, w) for tokens h [B, T, D], with at most TILE_TOKENS of them at one time."""
    B, T, D = h.shape
    whole = run.recipe.fp8_linear and run.recipe.granularity == "tensor"  # a tile would have a scale of its own
    if B * T <= TILE_TOKENS or whole or run.listens(*INNER):
        return formula(run, h, w)
    tokens, quiet = h.reshape(1, B * T, D), run.quiet()
    y = array_module(h).empty_like(tokens)
    for start in range(0, B * T, TILE_TOKENS):
        tile = slice(start, start + TILE_TOKENS)
        y[:, tile] = formula(quiet, tokens[:, tile], w)
    return run.show("mlp_out", y.reshape(B, T, D))


def in_score_tiles(
    run: Run,
    formula: Callable[..., Array],
    queries: tuple[Array, Array],
    keys: tuple[Array, Array, Array],
    M: Array,
) -> Array:
    """Return formula(run, *queries, *keys, M), [B, T, H, width of values], in tiles of heads and queries.

    queries  [B, T, H, .] twice;  keys  two of keys, one of values, [B, S, H, .] or [B, S, .]
    M        [B or 1, H or 1, T or 1, S]
    A tile holds whole rows of keys, up to the last that anybody sees. NaN and infinity among the values of later keys,
    which the whole form multiplies by shares of zero, are not looked at.
    """
    xp = array_module(*queries)
    B, T, H, _ = queries[0].shape
    if not queries[0].size or run.listens(*SCORES):
        return formula(run, *queries, *keys, M)
    z = xp.empty((B, T, H, keys[2].shape[-1]), dtype=run.recipe.carrier)
    rows, heads = tile_sizes(H, T, keys[0].shape[1])
    quiet = run.quiet()

    def fill(own: tuple[slice, slice]) -> None:
        b, h = own
        k, k_rot, v = (x[b, :, h] if x.ndim == 4 else x[b] for x in keys)
        if rows < T:  # once for all tiles of queries
            k, k_rot, v = _keys_last(k), _keys_last(k_rot), _heads_first(v)
        for start in range(0, T, rows):
            t = slice(start, start + rows)
            mask = _cut(M, (b, h, t))
            seen = visible_keys(mask)
            parts = (x[:, :seen] for x in (k, k_rot, v))
            z[b, t, h] = formula(quiet, *(x[b, t, h] for x in queries), *parts, mask[..., :seen])

    groups = [(slice(b, b + 1), slice(h, h + heads)) for b, h in product(range(B), range(0, H, heads))]
    spread(fill, groups, worker_count() if xp is np else 1)
    return z


def tile_sizes(H: int, T: int, S: int) -> tuple[int, int]:
    """Return queries and heads of a tile with about TILE_SCORES scores, at least one row of keys."""
    rows = max(1, min(T, TILE_SCORES // S))
    return rows, max(1, min(H, TILE_SCORES // (rows * S)))


def visible_keys(M: Array) -> int:
    """Return how many leading keys a mask lets anybody see; all of them for an additive mask."""
    if M.dtype.kind != "b":
        return int(M.shape[-1])
    seen = M.any(axis=(0, 1, 2)).nonzero()[0]
    return int(seen[-1]) + 1 if len(seen) else int(M.shape[-1])


def _keys_last(k: Array) -> Array:
    """Return keys [B, S, (H,) K] laid out in memory as [B, (H,) K, S], which is how a product reads them."""
    xp = array_module(k)
    return xp.moveaxis(xp.ascontiguousarray(xp.moveaxis(k, 1, -1)), -1, 1)


def _heads_first(v: Array) -> Array:
    """Return values [B, S, H, V] laid out in memory as [B, H, S, V]."""
    xp = array_module(v)
    return xp.ascontiguousarray(v.swapaxes(1, 2)).swapaxes(1, 2) if v.ndim == 4 else v


def _cut(x: Array, tile: tuple[slice, ...]) -> Array:
    """Return the tile of an array whose axes of size 1 stand for any size."""
    return x[tuple(part if n > 1 else slice(None) for part, n in zip(tile, x.shape, strict=False))]
