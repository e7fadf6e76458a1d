"""One step of a trace as a page of text: what it is, what it holds, and what changed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np

from blocklab.block.steps import AXES, STEPS, steps_of
from blocklab.errors import InputError
from blocklab.show.about import config_of, form_of, labels_of, parameters_of
from blocklab.show.facts import (
    OUTLIER,
    Channel,
    change,
    fp8_facts,
    gazes,
    loud_channels,
    outlier_count,
    quantised_input,
    sources_of,
)
from blocklab.show.formula import plain_formula
from blocklab.show.picture import draw, draw_heads
from blocklab.show.pooling import masked_to_infinity
from blocklab.store.statistics import statistics
from blocklab.store.trace import Trace, axes_text
from blocklab.tables import format_number as number

_INDENT = 12


def step_page(trace: Trace, name: str, width: int = 100, query: int | None = None) -> str:
    """Return everything about one step of a trace, as lines of at most `width` characters.

    query  the position whose attention is described (default: the last)
    Errors: InputError for a step that the trace does not have or that is empty, and for a query that is none of its
    positions.
    """
    if name not in STEPS or name not in trace or not trace[name].size:
        raise InputError(
            f"no step {name!r} with values in this trace; it has {', '.join(s.name for s, _ in trace.headers())}"
        )
    T = trace[name].shape[2 if _is_attention(name) else 1]
    if query is not None and not (type(query) is int and 0 <= query < T):
        raise InputError(f"query: expected 0 to {T - 1}; found {query!r}")
    value, step = masked_to_infinity(name, trace[name]), STEPS[name]
    names = [listed.name for listed, _ in trace.headers()]
    title = f"{name}   {step.note}"
    count = f"step {names.index(name) + 1} of {len(names)}"
    lines = [f"{title}{count:>{max(width - len(title), len(count) + 2)}}", "─" * width]
    entries = [
        ("formula", plain_formula(step.formula)),
        ("source", step.source),
        ("shape", _shape_text(trace, name, value)),
        ("parameters", _parameters_text(trace, name)),
        ("numbers", _numbers_text(name, value)),
        *_details(trace, name, value, query),
        *(("changed", text) for text in _changes(trace, name)),
    ]
    for label, text in entries:
        lines += textwrap.wrap(text, width, initial_indent=f"{label:{_INDENT}}", subsequent_indent=" " * _INDENT)
    labels = labels_of(trace, value.shape[2] if _is_attention(name) else value.shape[1])
    picture = draw_heads if _is_attention(name) else draw
    room = width - 12
    legend, *cells = picture(value, labels, width=min(room, 96))
    return "\n".join([*lines, "", *textwrap.wrap(legend, width), *cells, ""])


def _is_attention(name: str) -> bool:
    return STEPS[name].shape == "B H T S"


def _shape_text(trace: Trace, name: str, value: np.ndarray) -> str:
    meanings = ", ".join(f"{axis} {_axis_meaning(axis)}" for axis in STEPS[name].axes)
    stored = trace.formats.get(name, str(value.dtype))
    return f"{axes_text(name, value.shape)} ({meanings}), stored as {stored}"


def _axis_meaning(axis: str) -> str:
    return " + ".join(AXES[letter] for letter in axis.split("+"))


def _parameters_text(trace: Trace, name: str) -> str:
    found = parameters_of(trace, name)
    if not found:
        return "none"
    return ", ".join(f"{weight} {list(shape)}" if shape else weight for weight, shape in found)


def _numbers_text(name: str, value: np.ndarray) -> str:
    s = statistics(value)
    magnitude = np.where(np.isfinite(value), np.abs(value), -1)
    place = np.unravel_index(int(magnitude.argmax()), value.shape)
    axes = STEPS[name].axes if len(STEPS[name].axes) == value.ndim else ["i"] * value.ndim
    where = ", ".join(f"{axis} {i}" for axis, i in zip(axes, place, strict=True))
    text = f"rms {number(s.rms)}, largest {number(float(value[place]))} at {where}, {s.zeros:.2%} zeros"
    if s.hidden:
        text += f", {s.hidden / value.size:.1%} hidden (-inf)"
    return text + (f", {s.nan} NaN" if s.nan else "")


def _details(trace: Trace, name: str, value: np.ndarray, query: int | None) -> Iterator[tuple[str, str]]:
    """Yield what only some kinds of steps have: channels, heads, FP8 codes, the softmax scale."""
    if not _is_attention(name):
        loudest = "; ".join(_channel_text(c) for c in loud_channels(value))
        yield "channels", f"loudest {loudest}; {outlier_count(value)} above {OUTLIER:g} times the median"
    if name == "pattern":
        yield from _gaze_texts(trace, value, query)
    config = config_of(trace)
    if name == "attn_scores" and config is not None:
        yield "scale", f"{config.softmax_scale:.6g}; `blocklab explain attn_scores` shows where it comes from"
    quantised = quantised_input(trace, name)
    if quantised is not None:
        facts = fp8_facts(*quantised)
        yield (
            "FP8 input",
            f"{facts.largest:.2%} of the codes at 448, {facts.subnormal:.2%} subnormal, {facts.zero:.2%} zero;"
            f" scales {number(facts.scale_min)} to {number(facts.scale_max)}",
        )


def _channel_text(channel: Channel) -> str:
    if len(channel.index) == 2:
        place = f"head {channel.index[0]} channel {channel.index[1]}"
    else:
        place = f"channel {channel.index[0]}"
    return f"{place} rms {number(channel.rms)} ({channel.ratio:.1f} x median)"


def _gaze_texts(trace: Trace, pattern: np.ndarray, query: int | None) -> Iterator[tuple[str, str]]:
    T, S = pattern.shape[2:]
    query = T - 1 if query is None else query
    labels = labels_of(trace, S)
    shown = gazes(pattern, query)
    for gaze in shown[:16]:
        key = f"{gaze.key} {labels[gaze.key]!r}" if labels else str(gaze.key)
        spread = "one key" if gaze.spread < 1.5 else f"some {gaze.spread:.0f} keys"
        yield f"head {gaze.head}", f"query {query} looks at key {key} with {gaze.share:.3f} (spread over {spread})"
    if len(shown) > 16:
        yield "", f"and {len(shown) - 16} more heads"


def _changes(trace: Trace, name: str) -> Iterator[str]:
    wire = steps_of(config_of(trace), form_of(trace))[name]
    for source in sources_of(trace, name):
        c = change(trace, source, name)
        text = f"from {source}:"
        if c.shapes[0] != c.shapes[1]:
            text += f" {axes_text(source, c.shapes[0])} → {axes_text(name, c.shapes[1])};"
        text += f" rms {number(c.rms[0])} → {number(c.rms[1])}, largest {number(c.peak[0])} → {number(c.peak[1])}"
        if c.relative is not None and wire.kind == "sum" and source == wire.inputs[0]:
            text += f"; moved by {c.relative:.1%} of its norm"
        yield text
