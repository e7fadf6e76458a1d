"""What the explorer page is given: the steps of one trace, or of two, as plain data and packed arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig, yarn_mscale
from blocklab.block.steps import AXES, STEPS, Step, attention_of, steps_of
from blocklab.block.weights import weight_shapes
from blocklab.errors import InputError
from blocklab.show.about import config_of, labels_of
from blocklab.show.explore_diagram import diagram
from blocklab.show.explore_fp8 import fp8_views
from blocklab.show.explore_math import mathml
from blocklab.show.explore_measures import describe, differences, histogram, picture_limit
from blocklab.show.explore_pack import Packer, Reduction, choose_reduction, four_axes, reduce
from blocklab.show.pooling import masked_to_infinity
from blocklab.store.accounting import axis_sizes, components, totals
from blocklab.store.trace import Trace

ErrorCurves = Mapping[str, Mapping[str, float]]
"""Step -> relative error, under "alone": each step from the other trace's values, or "without FP8"."""

_TEXT = 300  # characters that the page keeps of one text from a file


def explorer_data(trace: Trace, against: Trace | None, curves: ErrorCurves, limit: int) -> tuple[dict[str, Any], str]:
    """Return the document of a page, which JSON can hold, and the packed arrays that it points into.

    limit  cells that the picture of one array may have
    """
    packer = Packer()
    trace = _with_sound_config(trace)
    config, attention = config_of(trace), attention_of(trace)
    layout = diagram(attention, config)
    wires = {node["step"]: steps_of(config, attention)[node["step"]] for node in layout["nodes"]}
    steps = [_about_step(name, wires, trace, config) | _values(name, trace, against, packer, limit) for name in wires]
    sizes = _sizes(trace)
    labels = labels_of(trace, sizes["T"])
    document = {
        "about": [_about(t) for t in (trace, against) if t is not None],
        "sizes": sizes,
        "labels": labels,
        "positions": _positions(trace),
        "model": None if config is None else _model(config),
        "diagram": layout,
        "steps": steps,
        "fp8": fp8_views(trace, wires, packer, limit),
        "curves": {name: dict(values) for name, values in curves.items()},
        "not_shown": [_short(n) for n in (*trace, *trace.given) if n not in wires and ".in." not in n][:50],
        "only_against": [] if against is None else [_short(n) for n in against if n in wires and n not in trace],
    }
    return document, packer.text()


def _about_step(name: str, wires: Mapping[str, Step], trace: Trace, config: BlockConfig | None) -> dict[str, Any]:
    """Return what is known of a step without its values."""
    step, wire = STEPS[name], wires[name]
    shape = () if config is None or wire.weight is None else weight_shapes(config).get(wire.weight, ())
    return {
        "name": name,
        "note": step.note,
        "source": step.source,
        "formula": mathml(step.formula),
        "aliases": {"transformers": step.transformers, "DeepSeek": step.deepseek, "llama.cpp": step.llama_cpp},
        "axes": [[axis, " + ".join(AXES[a] for a in axis.split("+"))] for axis in step.axes],
        "weight": None if wire.weight is None else {"name": wire.weight, "shape": shape, "kind": wire.kind},
        "inputs": [source for source in wire.inputs if source in wires],
        "used_by": [other for other, w in wires.items() if name in w.inputs],
        "format": _short(trace.formats.get(name, "")),
    }


def _values(name: str, trace: Trace, against: Trace | None, packer: Packer, limit: int) -> dict[str, Any]:
    """Return numbers and pictures of a step's values, and how they differ from another trace's."""
    value = _numbers(trace, name)
    if value is None or value.size == 0:
        return {} if value is None else {"shape": value.shape}
    axes = STEPS[name].axes if len(STEPS[name].axes) == value.ndim else ()
    picture = _picture(name, value, axes, trace)
    how = choose_reduction(picture.shape, limit, axes[-1:] == ("S",))
    cells = reduce(picture, how)
    reach = picture_limit(cells, trimmed=name != "pattern")
    found = {
        "shape": value.shape,
        "numbers": describe(value, reach, axes[-1:] != ("S",)),
        "limit": reach,
        "histogram": histogram(value, reach),
        "picture": _packed(cells, how, packer),
    }
    if name == "pattern" and axes:
        found["top"] = _tops(value, packer)
    other = None if against is None else _numbers(against, name)
    if against is None or other is None:
        return found
    if not axes or other.shape != value.shape:
        return found | {"other_shape": other.shape}
    measures, error = differences(name, value, other, trace.formats.get(name, ""))
    error_cells = reduce(four_axes(error, axes), how)
    error_reach = picture_limit(error_cells, trimmed=True)
    # The other picture is this one minus the error, unless a cell stands for several values and each picture
    # keeps its own strongest, or an error is not finite.
    derived = how.whole and bool(np.isfinite(error).all())
    found["against"] = {
        "numbers": describe(other, reach, False),
        "histogram": histogram(other, reach),
        "picture": None if derived else _packed(reduce(_picture(name, other, axes, against), how), how, packer),
        "measures": measures,
        "error": _packed(error_cells, how, packer)
        | {"numbers": describe(error, error_reach, False), "limit": error_reach},
    }
    return found


def _picture(name: str, value: np.ndarray, axes: tuple[str, ...], trace: Trace) -> np.ndarray:
    """Return a value as [B, H, T, W]; a pattern with -inf, as masked scores have, where the mask hides."""
    picture = four_axes(value, axes)
    masked = _numbers(trace, "attn_masked") if name == "pattern" else None
    if masked is None or masked.shape != picture.shape:
        return picture
    return np.where((masked == -np.inf) & (picture == 0), -np.inf, picture)


def _packed(cells: np.ndarray, how: Reduction, packer: Packer) -> dict[str, Any]:
    return packer.values(cells) | {"every": [how.rows, how.columns], "sequences": how.sequences}


def _tops(pattern: np.ndarray, packer: Packer) -> dict[str, Any]:
    """Return where each head looks most, for every query: the key and its share [B, H, T], from all values."""
    key = np.nan_to_num(pattern).argmax(axis=-1)  # [B, H, T]
    share = np.take_along_axis(pattern, key[..., None], axis=-1)[..., 0]
    return {"key": packer.words(key.astype(np.uint16)), "share": packer.values(share)}


def _numbers(trace: Trace, name: str) -> np.ndarray | None:
    """Return a step as floats, hidden scores as -inf; None where the trace has none."""
    if name not in trace:
        return None
    value = np.asarray(trace[name])
    if value.dtype.kind not in "fiub":
        return None
    if value.dtype not in (np.float32, np.float64):
        value = value.astype(np.float32)
    return masked_to_infinity(name, value)


def _with_sound_config(trace: Trace) -> Trace:
    """Return the trace, without its config if that is none: what a file says of itself may be anything."""
    try:
        config_of(trace)
        return trace
    except (InputError, TypeError, RecursionError):
        return replace(trace, metadata={key: text for key, text in trace.metadata.items() if key != "config"})


def _model(c: BlockConfig) -> dict[str, Any]:
    """Return sizes, parameters, and the softmax scale with what it is made of."""
    letters = {letter: size for letter, size in axis_sizes(c, 0, 0, 0).items() if size}
    scaled = c.yarn is not None and bool(c.yarn.mscale_all_dim)
    return {
        "letters": letters,
        "parameters": {part: count["parameters"] for part, count in totals(components(c)).items()},
        "softmax_scale": c.softmax_scale,
        "mscale": yarn_mscale(c.yarn.factor, c.yarn.mscale_all_dim) if scaled and c.yarn else None,
        "yarn": None if c.yarn is None else asdict(c.yarn),
        "eps": c.rms_norm_eps,
    }


def _sizes(trace: Trace) -> dict[str, int]:
    """Return B, T, S and H as the arrays have them; 1 where none tells."""
    sizes = {"B": 1, "T": 1, "S": 1, "H": 1}
    for step, value in trace.headers():
        if len(step.axes) == value.ndim:
            sizes |= {axis: size for axis, size in zip(step.axes, value.shape, strict=True) if axis in sizes}
    return sizes


def _about(trace: Trace) -> dict[str, str]:
    """Return a trace's metadata, cut to what fits a page; config, labels and positions are told elsewhere."""
    others = [key for key in trace.metadata if key not in ("config", "labels", "positions")]
    return {_short(key): _short(trace.metadata[key]) for key in others[:80]}


def _positions(trace: Trace) -> list[int] | None:
    """Return the token's positions if they are such."""
    try:
        positions = json.loads(trace.metadata.get("positions", "null"))
    except (ValueError, RecursionError):
        return None
    fine = isinstance(positions, list) and all(type(p) is int and 0 <= p < 1 << 31 for p in positions)
    return positions if fine else None


def _short(text: object) -> str:
    text = str(text)
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
