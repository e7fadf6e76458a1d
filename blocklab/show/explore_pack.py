"""Arrays made small enough for a page, and packed into it: reduced honestly, two bytes a value."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklab.numerics import encode

KEPT_WIDTH = 64
"""Channels that an array without heads keeps before its tokens are reduced too; with heads, an eighth of that."""


@dataclass(frozen=True)
class Reduction:
    """How an array [B, H, T, W] is made smaller: one cell for `rows` x `columns` values, of the first sequences."""

    sequences: int
    rows: int = 1
    columns: int = 1

    @property
    def whole(self) -> bool:
        """Whether every value has a cell of its own."""
        return self.rows == self.columns == 1


def four_axes(value: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
    """Return a value as [B, H, T, W]: sequences, heads (or one), rows and columns of a picture."""
    if value.ndim == 4 and axes[1:2] != ("H",):
        return value.transpose(0, 2, 1, 3)  # [B, H, T, W]
    if value.ndim == 3:
        return value[:, None]  # [B, 1, T, W]
    if value.ndim < 3:
        return value.reshape((1,) * (4 - value.ndim) + value.shape)
    return value.reshape(-1, *value.shape[-3:])


def choose_reduction(shape: tuple[int, ...], limit: int, square: bool) -> Reduction:
    """Return the least reduction of [B, H, T, W] to at most `limit` cells.

    square  rows and columns are tokens both (scores): reduce them alike
    Columns go first, as long as some remain; then rows; at last only the first sequences are kept.
    """
    B, H, T, W = shape
    per_cell = max(1, limit // max(1, B * H))
    rows = columns = 1
    if square:
        while _cells(T, rows) * _cells(W, columns) > per_cell and max(rows, columns) < max(T, W):
            rows, columns = rows + 1, columns + 1
    else:
        most = max(1, W // (KEPT_WIDTH if H == 1 else KEPT_WIDTH // 8))
        while T * _cells(W, columns) > per_cell and columns < most:
            columns += 1
        while _cells(T, rows) * _cells(W, columns) > per_cell and rows < T:
            rows += 1
    sequences = max(1, min(B, limit // max(1, H * _cells(T, rows) * _cells(W, columns))))
    return Reduction(sequences, rows, columns)


def fitting_limit(pictures: Iterable[tuple[tuple[int, ...], bool]], cells: int) -> int:
    """Return how many cells each picture, a shape [B, H, T, W] and whether it is square, may have in `cells` in all."""
    pictures, limit = list(pictures), 1 << 20
    while limit > 1 << 10 and sum(_cell_count(s, choose_reduction(s, limit, square)) for s, square in pictures) > cells:
        limit = limit * 7 // 8
    return limit


def reduce(x: np.ndarray, how: Reduction) -> np.ndarray:
    """Return one value for each cell: the one of the largest magnitude, with its sign.

    x [B, H, T, W]. NaN beats everything; -inf, which is a masked score, loses to everything.
    """
    x = x[: how.sequences]
    if how.whole:
        return x
    return _strongest(_strongest(x, 3, how.columns), 2, how.rows)


class Packer:
    """Collects arrays as 16-bit words: values as bfloat16, indices as they are."""

    def __init__(self) -> None:
        """Start empty."""
        self._parts: list[np.ndarray] = []
        self._places: dict[bytes, int] = {}
        self._length = 0

    def values(self, x: np.ndarray) -> dict[str, Any]:
        """Keep an array of floats, rounded to bfloat16, and return where it is."""
        with np.errstate(all="ignore"):
            words = encode(np.ascontiguousarray(x, dtype=np.float32), "bfloat16")
        return self.words(np.asarray(words))

    def words(self, words: np.ndarray) -> dict[str, Any]:
        """Keep an array of uint16 and return {"at": first word, "shape": [...]}; equal arrays are kept once."""
        flat = np.ascontiguousarray(words, dtype="<u2").reshape(-1)
        digest = hashlib.sha256(flat.tobytes()).digest()
        if digest not in self._places:
            self._places[digest] = self._length
            self._parts.append(flat)
            self._length += flat.size
        return {"at": self._places[digest], "shape": list(words.shape)}

    def text(self) -> str:
        """Return everything in base64: gzip of all low bytes, then all high bytes, which compresses better."""
        everything = np.concatenate(self._parts) if self._parts else np.zeros(0, "<u2")
        planes = everything.view(np.uint8).reshape(-1, 2).T.tobytes()
        return base64.b64encode(gzip.compress(planes, 9, mtime=0)).decode("ascii")


def _strongest(x: np.ndarray, axis: int, factor: int) -> np.ndarray:
    """Keep of every `factor` neighbours along an axis the one of the largest magnitude."""
    size = x.shape[axis]
    if factor == 1 or size == 0:
        return x
    short = -size % factor
    if short:
        edge = np.take(x, [-1], axis=axis)
        x = np.concatenate([x, np.repeat(edge, short, axis=axis)], axis=axis)
    groups = x.reshape(*x.shape[:axis], -1, factor, *x.shape[axis + 1 :])
    rank = np.abs(groups)
    rank[np.isnan(groups)] = np.inf
    rank[groups == -np.inf] = -1
    rank[np.isposinf(groups)] = np.finfo(rank.dtype).max
    index = rank.argmax(axis=axis + 1, keepdims=True)
    return np.take_along_axis(groups, index, axis=axis + 1).squeeze(axis + 1)


def _cell_count(shape: tuple[int, ...], how: Reduction) -> int:
    return how.sequences * shape[1] * _cells(shape[2], how.rows) * _cells(shape[3], how.columns)


def _cells(size: int, factor: int) -> int:
    return -(-size // factor)
