"""Explain one number of a trace: recompute it from the step's traced inputs, showing every intermediate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklab.block.steps import STEPS, steps_of
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError
from blocklab.numerics import get_recipe
from blocklab.show.about import form_of, recipe_of
from blocklab.show.explain_attention import (
    explain_absorbed,
    explain_mask,
    explain_mix,
    explain_scores,
    explain_softmax,
    explain_unabsorbed,
)
from blocklab.show.explain_leaf import (
    explain_input,
    explain_norm,
    explain_pair,
    explain_part,
    explain_rotation,
    explain_silu,
)
from blocklab.show.explain_linear import explain_linear
from blocklab.show.formula import plain_formula
from blocklab.show.working import Context, Explanation, Working, explained
from blocklab.store.trace import Trace, axes_text
from blocklab.tables import format_table

MOST_ROWS = 160
"""Rows of a table that are printed; JSON has them all."""


@np.errstate(all="ignore")  # the values tell
def explain(trace: Trace, weights: BlockWeights, step: str, index: Sequence[int], recipe: str = "") -> Explanation:
    """Return how one number of a trace came about, and whether that gives the traced value.

    index   one integer an axis of the step
    recipe  the arithmetic, where the trace does not name it
    Errors: InputError for a step that the trace does not have or whose inputs it does not have, and for an index
    that does not fit.
    """
    place = check_index(trace, step, index)
    arithmetic = recipe_of(trace) if not recipe else get_recipe(recipe)
    if arithmetic is None:
        found = trace.metadata.get("recipe", "none")
        raise InputError(f"explain {step}: the trace names no known recipe (found {found}): pass one")
    context = Context(trace, weights, arithmetic, form_of(trace), step)
    return explained(context, place, _work(context, step, tuple(place.values())))


def check_index(trace: Trace, step: str, index: Sequence[int]) -> dict[str, int]:
    """Return axis -> index, refusing what does not fit the traced step."""
    if step not in STEPS:
        raise InputError(f"explain: no step {step!r}; the steps are {', '.join(STEPS)}")
    if step not in trace:
        raise InputError(f"explain: the trace has no {step}; it has {', '.join(s.name for s, _ in trace.headers())}")
    shape, axes = trace[step].shape, STEPS[step].axes
    if len(axes) != len(shape):
        raise InputError(f"explain {step}: expected axes {STEPS[step].shape}; the traced array is {list(shape)}")
    if len(index) != len(shape) or any(not 0 <= i < size for i, size in zip(index, shape, strict=False)):
        raise InputError(
            f"explain {step}: expected {len(shape)} indices below {axes_text(step, shape)};"
            f" found {','.join(map(str, index))}"
        )
    return dict(zip(axes, index, strict=True))


def _work(context: Context, step: str, index: tuple[int, ...]) -> Working:
    how = steps_of(context.config, context.attention)[step]
    source, weight = (how.inputs or ("",))[0], how.weight or ""
    match how.kind:
        case "norm":
            return explain_norm(context, source, weight, index)
        case "linear":
            return explain_linear(context, source, weight, index)
        case "first part" | "last part":
            return explain_part(context, source, index, how.kind)
        case "rotation":
            return explain_rotation(context, source, index)
        case "scores":
            return explain_scores(context, index)
        case "mask":
            return explain_mask(context, index)
        case "softmax":
            return explain_softmax(context, index)
        case "mix":
            return explain_mix(context, index)
        case "absorb":
            return explain_absorbed(context, index)
        case "unabsorb":
            return explain_unabsorbed(context, index)
        case "silu":
            return explain_silu(context, index)
        case "product" | "sum":
            return explain_pair(context, how.inputs, index, how.kind)
        case "input":
            return explain_input(context, index)


def explanation_text(e: Explanation) -> str:
    """Return an explanation as lines of text."""
    place = ", ".join(f"{axis} {i}" for axis, i in e.index.items())
    lines = [f"{e.step}[{place}] = {e.traced!r}     {plain_formula(STEPS[e.step].formula)}"]
    lines += [f"from {name}" for name in e.working.inputs]
    for title, rows in e.working.tables.items():
        lines += ["", title, *_table_lines(rows)]
    width = max(len(line.key) for line in e.working.lines)
    lines.append("")
    lines += [
        f"{line.key.replace('_', ' '):{width}}  {_text(line.value):>14}  {line.note}".rstrip()
        for line in e.working.lines
    ]
    return "\n".join([*lines, "", e.verdict])


def explanation_json(e: Explanation) -> dict[str, Any]:
    """Return an explanation as what JSON can hold: infinities and NaN as text."""
    return {
        "step": e.step,
        "index": e.index,
        "inputs": e.working.inputs,
        "numbers": {line.key: _plain(line.value) for line in e.working.lines},
        "tables": {
            title: [{key: _plain(value) for key, value in row.items()} for row in rows]
            for title, rows in e.working.tables.items()
        },
        "traced": _plain(e.traced),
        "recomputed": _plain(e.recomputed),
        "matches": e.matches,
        "ulps": _plain(e.ulps),
        "verdict": e.verdict,
    }


def _table_lines(rows: list[dict[str, Any]]) -> list[str]:
    headers = list(rows[0]) if rows else []
    kept = [key for key in headers if any(row[key] != "" for row in rows)]
    shown = [[_text(row[key]) for key in kept] for row in rows[:MOST_ROWS]]
    text = format_table(kept, shown, ">" * len(kept)).splitlines()
    return text if len(rows) <= MOST_ROWS else [*text, f"and {len(rows) - MOST_ROWS} more rows (--json has them all)"]


def _text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
