"""Attention in tiles of heads and queries, so that memory does not grow with the square of the tokens."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from blocklab.numerics.threads import spread, worker_count
from blocklab.xp import Array, array_module

TILE_SCORES = 1 << 20
"""Scores that are held at one time when nobody listens to them."""


def in_score_tiles(
    mix: Callable[..., Array], q: Array, q_rot: Array, k: Array, k_rot: Array, v: Array, M: Array, dtype: str
) -> Array:
    """Return mix(q, q_rot, k, k_rot, v, M), [B, H, T, width of v], computed tile by tile.

    q, q_rot  [B, H, T, .];  k, v  [B, H or 1, S, .];  k_rot  [B, 1, S, R];  M  [B or 1, H or 1, T or 1, S]
    A tile holds whole rows of keys, up to the last that anybody sees, which leaves every rounding where it was;
    sums of the work precision may be taken in another order. NaN and infinity among the values of later keys, which
    the whole form multiplies by shares of zero, are not looked at.
    """
    xp = array_module(q)
    B, H, T, _ = q.shape
    z = xp.empty((B, H, T, v.shape[3]), dtype=dtype)
    rows, heads = tile_sizes(H, T, k.shape[2])

    def fill(own: tuple[slice, slice]) -> None:
        k_own, k_rot_own, v_own = (cut(x, own) for x in (k, k_rot, v))
        if rows < T:  # once for all tiles of queries
            k_own, k_rot_own, v_own = as_multiplied(k_own), as_multiplied(k_rot_own), xp.ascontiguousarray(v_own)
        for start in range(0, T, rows):
            tile = (*own, slice(start, start + rows))
            M_tile = cut(M, tile)
            seen = visible_keys(M_tile)
            keys = (x[:, :, :seen] for x in (k_own, k_rot_own, v_own))
            z[tile] = mix(q[tile], q_rot[tile], *keys, M_tile[..., :seen])

    groups = [(slice(b, b + 1), slice(h, h + heads)) for b, h in product(range(B), range(0, H, heads))]
    spread(fill, groups, worker_count() if xp is np else 1)
    return z


def tile_sizes(H: int, T: int, S: int) -> tuple[int, int]:
    """Return queries and heads of a tile with about TILE_SCORES scores, at least one row of keys."""
    rows = max(1, min(T, TILE_SCORES // S))
    return rows, max(1, min(H, TILE_SCORES // (rows * S)))


def as_multiplied(keys: Array) -> Array:
    """Return keys [..., S, K] laid out in memory as [..., K, S], which is how a product reads them."""
    return array_module(keys).ascontiguousarray(keys.swapaxes(-1, -2)).swapaxes(-1, -2)


def cut(x: Array, tile: tuple[slice, ...]) -> Array:
    """Return the tile of an array whose axes of size 1 stand for any size."""
    return x[tuple(part if n > 1 else slice(None) for part, n in zip(tile, x.shape, strict=False))]


def visible_keys(M: Array) -> int:
    """Return how many leading keys a mask lets anybody see; all of them for an additive mask."""
    if M.dtype.kind != "b":
        return int(M.shape[-1])
    seen = M.any(axis=(0, 1, 2)).nonzero()[0]
    return int(seen[-1]) + 1 if len(seen) else int(M.shape[-1])
