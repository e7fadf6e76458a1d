"""Show pictures in a notebook, and stay quiet about windows in a script.

Set the environment variable PICTURES to a folder to have a script write its pictures there.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from blocklab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from blocklab.store.trace import Trace

_numbers = itertools.count(1)


def chart(title: str, x: str, y: str, note: str = "", width: float = 8.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """Return an empty figure and its axes, in the style of blocklab's own pictures."""
    figure = style.figure(width, height)
    axes = figure.add_subplot()
    style.label(axes, title, x, y, note)
    style.lines_only(axes)
    return figure, axes


def show(figure: Figure, caption: str) -> None:
    """Display a figure under IPython, write it where PICTURES says so, and print what there is to see in it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90, metadata={"Software": None})
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import Image, display

        display(Image(data=buffer.getvalue()))
    if folder := os.environ.get("PICTURES"):
        path = Path(folder) / f"{Path(sys.argv[0]).stem}-{next(_numbers)}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(buffer.getvalue())
    print(f"Picture: {caption}")


def with_labels(trace: Trace, labels: Sequence[str]) -> Trace:
    """Return a trace whose positions have names, which pictures write along their axes."""
    return replace(trace, metadata={**trace.metadata, "labels": json.dumps(list(labels))})
