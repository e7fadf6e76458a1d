"""Products with a matrix that is made tile by tile, each tile staying in a cache until it is used up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blocklab.numerics.threads import spread_rows
from blocklab.xp import Array, array_module

ROWS, COLUMNS = 512, 1024
"""What is made at one time: 2 MiB of float32. Half a MiB would stay in the L2 cache, but steps that short let two
threads wait for each other at the interpreter's lock."""

BLAS_COLUMNS, BLAS_TOKENS, BLAS_PRODUCTS = 512, 128, 1 << 19
"""What one call of BLAS multiplies. OpenBLAS runs up to 2^19 products in the calling thread, so that threads that
make tiles can multiply them too; it is fastest for few rows and long sums."""


def tiled_product(x: Array, count: int, values: Callable[[slice, slice], Array], dtype: str) -> Array:
    """Return x W^T, [tokens, N] in `dtype`, where `values(rows, columns)` makes a tile of W [N, K].

    x: [tokens, K]; count: N. Accumulated in `dtype`, in an order that depends on the tile sizes only: equal inputs
    give equal bits whatever the number of threads and, up to what BLAS does inside a call, of tokens.
    """
    xp = array_module(x)
    columns, k = xp.ascontiguousarray(x.T, dtype=dtype), x.shape[1]  # [K, tokens]
    out = xp.empty((x.shape[0], count), dtype)

    def tile(rows: slice) -> None:
        total = xp.zeros((rows.stop - rows.start, x.shape[0]), dtype)
        with np.errstate(all="ignore"):
            for start in range(0, k, COLUMNS):
                part = slice(start, min(start + COLUMNS, k))
                add_product(total, values(rows, part).astype(dtype, copy=False), columns[part])
        out[:, rows] = total.T

    spread_rows(tile, count, ROWS, 8, xp)
    return out


def add_product(total: Array, w: Array, x: Array) -> None:
    """Add w x to total, [rows, tokens], in calls of BLAS that stay in this thread."""
    xp = array_module(w, x)
    if xp is not np:
        total += w @ x
        return
    for first in range(0, x.shape[1], BLAS_TOKENS):
        tokens = slice(first, first + BLAS_TOKENS)
        sums = total[:, tokens]
        rows = min(max(BLAS_PRODUCTS // (BLAS_COLUMNS * sums.shape[1]), 1), len(w))
        whole = len(w) // rows * rows
        for start in range(0, w.shape[1], BLAS_COLUMNS):
            part = slice(start, start + BLAS_COLUMNS)
            stack = w[:whole, part].reshape(whole // rows, rows, -1)
            sums[:whole] += (stack @ x[part, tokens]).reshape(whole, -1)
            if whole < len(w):
                sums[whole:] += w[whole:, part] @ x[part, tokens]
