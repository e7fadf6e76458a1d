"""The explorer: one self-contained page that shows a trace, or two side by side."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from blocklab.block.steps import STEPS
from blocklab.show.explore_data import ErrorCurves, explorer_data
from blocklab.show.explore_pack import fitting_limit
from blocklab.store.trace import Trace

CELLS = 3_500_000
"""Cells of all pictures of a page together; each takes about two bytes of it."""

SCRIPTS = (
    "data.js",
    "elements.js",
    "heat.js",
    "charts.js",
    "errors.js",
    "diagram.js",
    "pictures.js",
    "numbers.js",
    "panel.js",
    "page.js",
)
"""The page's program, in reading order."""


def explorer_page(
    trace: Trace, against: Trace | None = None, curves: ErrorCurves | None = None, cells: int = CELLS
) -> str:
    """Return an HTML page that needs no network and no server.

    against  another run, shown beside the first with their difference
    curves   errors of further runs for the chart of errors
    cells    how many cells all pictures may have together: larger arrays are reduced, and the page says so
    """
    shapes = [_picture_shape(step.name, value.shape) for step, value in trace.headers()]
    limit = fitting_limit(shapes, cells if against is None else cells // 3)
    document, arrays = explorer_data(trace, against, curves or {}, limit)
    style = _asset("style.css")
    script = "\n".join(_asset(name) for name in SCRIPTS)
    policy = f"default-src 'none'; script-src '{_sha256(script)}'; style-src '{_sha256(style)}'; img-src data:"
    return Template(_asset("page.html")).substitute(
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        document=embedded_json(document),
        arrays=arrays,
    )


def embedded_json(document: Mapping[str, Any]) -> str:
    """Return JSON that may stand in a script element: pure ASCII, and nothing in it can end the element."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _picture_shape(name: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Return how a step's picture is laid out, [B, H, T, W], and whether both its axes are tokens."""
    square = STEPS[name].axes[-1] == "S"
    if len(shape) == 4 and not square:
        return (shape[0], shape[2], shape[1], shape[3]), False
    if len(shape) == 3:
        return (shape[0], 1, *shape[1:]), False
    padded = (1, 1, 1, 1, *shape)
    return (math.prod(padded[:-3]), *padded[-3:]), square


def _asset(name: str) -> str:
    return (resources.files("blocklab.show") / "explorer" / name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
