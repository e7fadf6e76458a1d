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


FEW_ROWS = 8
"""Rows below which one call of BLAS has too little to do for threads anyway."""


def tiled_product(x: Array, count: int, values: Callable[[slice, slice], Array], dtype: str) -> Array:
    """Return x W^T, [tokens, N] in `dtype`, where `values(rows, columns)` makes a tile of W [N, K].

    x: [tokens, K]; count: N. Accumulated in `dtype`, in an order that depends on the tile sizes, which follow the
    numbers of tokens and of threads, and on what BLAS does inside a call.
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


def stack_product(a: Array, b: Array) -> Array:
    """Return a b, [..., M, N], for stacks a [..., M, K] and b [..., K, N] of one dtype, in this thread."""
    xp = array_module(a, b)
    if xp is not np or a.shape[-2] < FEW_ROWS:
        return xp.matmul(a, b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    add_product(total, a, np.ascontiguousarray(b))  # OpenBLAS is several times slower for transposed pieces
    return total


def add_product(total: Array, w: Array, x: Array) -> None:
    """Add w x to total, for [..., rows, K] and [..., K, tokens], in calls of BLAS that stay in this thread."""
    xp = array_module(w, x)
    if xp is not np:
        total += w @ x
        return
    *_, count, k = w.shape
    for first in range(0, x.shape[-1], BLAS_TOKENS):
        tokens = slice(first, first + BLAS_TOKENS)
        sums = total[..., tokens]
        size = min(k, BLAS_COLUMNS) * sums.shape[-1]
        rows = min(max(BLAS_PRODUCTS // max(size, 1), 1), count)
        whole = count // rows * rows
        for start in range(0, k, BLAS_COLUMNS):
            part = slice(start, min(start + BLAS_COLUMNS, k))
            stack = w[..., :whole, part].reshape(*w.shape[:-2], whole // rows, rows, part.stop - start)
            sums[..., :whole, :] += (stack @ x[..., None, part, tokens]).reshape(
                *sums.shape[:-2], whole, sums.shape[-1]
            )
            if whole < count:
                sums[..., whole:, :] += w[..., whole:, part] @ x[..., part, tokens]
