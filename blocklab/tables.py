"""Tables and numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """Return rows under headers in aligned columns; `align` has one "<" or ">" a column."""
    lines = [list(headers), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    return "\n".join(format_row(line, widths, align) for line in lines)


def format_row(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    """Return one line of a table whose column widths are known beforehand."""
    padded = (f"{cell:{side}{width}}" for cell, width, side in zip(cells, widths, align, strict=True))
    return "  ".join(padded).rstrip()


def format_bytes(size: float) -> str:
    """Return a size in the binary unit that leaves at most four digits: 474.5 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def format_number(x: float) -> str:
    """Return four significant digits, as short as that allows."""
    return f"{x:.4g}"
