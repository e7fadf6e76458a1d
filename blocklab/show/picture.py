"""Pictures of a step in characters: one cell, one character, for terminals and pipes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blocklab.show.pooling import pool
from blocklab.tables import format_number

LEVELS = " ▁▂▃▄▅▆▇█"
HIDDEN, NOT_A_NUMBER = "·", "?"


def levels(values: np.ndarray, top: float) -> np.ndarray:
    """Return 0 .. 8 for each magnitude: 8 within a factor of two of `top`, one less for every further factor, 0 below.

    Logarithmic, so that one loud channel does not blank all the others.
    """
    with np.errstate(divide="ignore", over="ignore"):
        halvings = np.floor(np.log2(top / np.abs(values).astype(np.float64)))
    return np.clip(8 - halvings, 0, 8).astype(int)


def draw_cells(values: np.ndarray, top: float) -> list[str]:
    """Return one line of characters for each row of a small matrix; hidden scores are dots, NaN is a question mark."""
    finite = np.isfinite(values)
    shown = levels(np.where(finite, values, 0), top)
    special = np.where(np.isnan(values), NOT_A_NUMBER, HIDDEN)
    characters = np.where(finite, np.array(list(LEVELS))[shown], special)
    return ["".join(row) for row in characters]


def draw(value: np.ndarray, labels: Sequence[str] | None = None, width: int = 64, height: int = 12) -> list[str]:
    """Return a picture of the first batch entry of a step [B, T, ...]: positions down, channels across."""
    matrix = value[0].reshape(value.shape[1], -1)
    cells = pool(matrix, height, width)
    names = row_names(matrix.shape[0], cells.shape[0], labels)
    lines = [f"{name} {row}" for name, row in zip(names, draw_cells(cells, _top(cells)), strict=True)]
    layout = f"positions down, {matrix.shape[1]} channels across, {_share(matrix, cells, 'position', 'channel')}"
    return [legend(cells, layout), *lines]


def draw_heads(value: np.ndarray, labels: Sequence[str] | None = None, width: int = 64, height: int = 24) -> list[str]:
    """Return pictures of scores or patterns [B, H, T, S], head beside head: queries down, keys across."""
    heads, T, S = value.shape[1:]
    each = min(S, max(16, width // 3))
    count = max(1, min(heads, (width + 2) // (each + 2)))
    cells = [pool(value[0, head], height, each) for head in range(count)]
    top = max(map(_top, cells))
    drawn = [draw_cells(c, top) for c in cells]
    names = row_names(T, len(drawn[0]), labels)
    title = "  ".join(f"{f'head {head}':{len(drawn[head][0])}}" for head in range(count))
    note = f"queries down, keys across, {count} of {heads} heads, {_share(value[0, 0], cells[0], 'query', 'key')}"
    rows = ["  ".join(drawn[head][i] for head in range(count)) for i in range(len(names))]
    lines = [f"{name} {row}" for name, row in zip(names, rows, strict=True)]
    return [legend(np.stack(cells), note), " " * (len(names[0]) + 1) + title, *lines]


def legend(cells: np.ndarray, layout: str) -> str:
    """Return the line that says how to read a picture."""
    text = f"{layout}; █ is above {format_number(_top(cells) / 2)}, each step down is half"
    return text + (f", {HIDDEN} is hidden" if np.isinf(cells).any() else "")


def row_names(count: int, shown: int, labels: Sequence[str] | None) -> list[str]:
    """Return a name for each row of a picture: its label, or the number of the first position under it."""
    starts = (np.arange(shown) * count // shown).tolist()
    names = [str(i) if labels is None or shown < count else f"{i} {labels[i]}" for i in starts]
    return [f"{name:>{max(map(len, names))}}" for name in names]


def _share(matrix: np.ndarray, cells: np.ndarray, row: str, column: str) -> str:
    """Say how many values are under one cell."""
    down, across = (-(-n // m) for n, m in zip(matrix.shape, cells.shape, strict=True))
    if down == across == 1:
        return f"a cell is one {column}"
    return (
        f"a cell is the loudest of {down} {row}(s) x {across} {column}(s)"
        if down > 1
        else (f"a cell is the loudest of {across} {column}s")
    )


def _top(cells: np.ndarray) -> float:
    finite = np.abs(cells[np.isfinite(cells)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0
