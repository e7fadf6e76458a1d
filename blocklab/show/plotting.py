"""Pictures of a trace by name: one function for the command, for scripts and for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.steps import STEPS, steps_of
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError
from blocklab.show.about import config_of, form_of, positions_of
from blocklab.show.attention_plot import draw_gaze, draw_patterns, patterns
from blocklab.show.channels_plot import channels, draw_channels
from blocklab.show.fp8_histogram import draw_grid_use, step_grid_use
from blocklab.show.heatmap import draw_heat_map, error_view, heat_map
from blocklab.show.pooling import masked_to_infinity
from blocklab.show.rotary_plots import angles, draw_angles, draw_ramp, ramp
from blocklab.show.views import view
from blocklab.show.waterfall import draw_waterfall, waterfall_of
from blocklab.show.weight_scales import block_scales, draw_block_scales
from blocklab.store.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "heatmap": "values, positions down and channels across",
    "pattern": "where each head looks; with a token, all heads from it",
    "channels": "loudness of each channel, outliers named",
    "histogram": "use of the FP8 grid, once quantised 1 x 128",
    "error": "difference from another trace",
    "recipes": "error from float64 through each recipe, step by step (runs the block again)",
    "scales": "scales of the FP8 weight that the step uses",
    "angles": "rotary angles over positions and pairs",
    "ramp": "what YaRN does to the frequencies",
}
"""Kind of picture -> what it shows."""

NEED_WEIGHTS = ("recipes", "scales")


def plot(
    trace: Trace,
    step: str,
    kind: str = "",
    *,
    against: Trace | None = None,
    weights: BlockWeights | None = None,
    batch: int = 0,
    head: int | None = None,
    token: int | None = None,
) -> Figure:
    """Return a picture of one step of a trace, as a matplotlib figure; `blocklab.show.save` writes it.

    kind     one of KINDS; by default "error" with another trace, "pattern" for the pattern, else "heatmap"
    against  the other trace of an error map: the picture shows trace - against
    weights  of the traced block; kinds "recipes" and "scales" need them
    batch, head, token  which entry, head and position
    Errors: InputError for a step or kind that does not exist, and for what the trace does not have.
    """
    kind = kind or ("error" if against is not None else "pattern" if step == "pattern" else "heatmap")
    if kind not in KINDS:
        raise InputError(f"plot: no kind {kind!r}; there are {', '.join(KINDS)}")
    if step.partition(".in.")[0] not in STEPS:
        raise InputError(f"plot: no step {step!r}; the steps are {', '.join(STEPS)}")
    _refuse_unused(kind, against=against is not None, head=head is not None, token=token is not None)
    note = about(trace)
    if kind in ("angles", "ramp"):
        return _rotary(trace, kind, trace.metadata.get("model", "").partition(",")[0])
    if kind in NEED_WEIGHTS:
        return _with_weights(trace, step, kind, weights, note)
    check_step(trace, step)
    _require_suitable(step, kind)
    largest = float(np.max(np.abs(trace[step]), where=np.isfinite(trace[step]), initial=0))
    if largest > 1e300:
        raise InputError(f"plot: {step} has values up to {largest:.1g}, beyond what an axis can show")
    note = "; ".join(filter(None, (note, not_numbers(trace, step))))
    if kind == "pattern":
        data = patterns(trace, None if head is None else [head], batch)
        return draw_patterns(data) if token is None else draw_gaze(data, token, note)
    if kind == "channels":
        return draw_channels(channels(trace, step), note)
    if kind == "histogram":
        return draw_grid_use(step_grid_use(trace, step), f"{step} on the FP8 grid", note)
    if kind == "error":
        return _error(trace, step, against, batch, head, token)
    return draw_heat_map(heat_map(view(trace, step, batch, head, token)), note)


def _refuse_unused(kind: str, **given: bool) -> None:
    """Refuse what a kind of picture does not look at."""
    used = {"heatmap": ("head", "token"), "error": ("against", "head", "token"), "pattern": ("head", "token")}
    for name, is_given in given.items():
        if is_given and name not in used.get(kind, ()):
            kinds = ", ".join(k for k, names in used.items() if name in names)
            raise InputError(f"plot: kind {kind} takes no {name}; expected kind {kinds}")


def _require_suitable(step: str, kind: str) -> None:
    """Refuse steps that a kind of picture cannot show."""
    if kind == "pattern" and step != "pattern":
        raise InputError(f"plot: kind pattern shows where heads look: expected step pattern; found {step}")
    if kind in ("channels", "histogram") and step in STEPS and "S" in STEPS[step].axes[2:]:
        raise InputError(f"plot: kind {kind} needs channels: expected another step; found {step} [{STEPS[step].shape}]")


def not_numbers(trace: Trace, step: str) -> str:
    """Return how many values of a step are no finite numbers, hidden scores aside; "" where all are."""
    value = masked_to_infinity(step, trace[step])
    nan = int(np.isnan(value).sum())
    infinite = int(np.isinf(value).sum()) if step != "attn_masked" else 0
    return f"left out: {nan} NaN, {infinite} infinite" if nan or infinite else ""


def about(trace: Trace) -> str:
    """Return what a trace says about itself in one line."""
    parts = (trace.metadata.get("model"), trace.metadata.get("recipe"), trace.metadata.get("source"))
    return "; ".join(part for part in parts if part)


def check_step(trace: Trace, step: str) -> None:
    """Refuse a step that the trace does not have."""
    if step not in trace:
        raise InputError(f"plot: the trace has no {step}; it has {', '.join(trace) or 'statistics only'}")
    if not trace[step].size:
        raise InputError(f"plot: {step} is empty: {list(trace[step].shape)}")


def _error(trace: Trace, step: str, against: Trace | None, batch: int, head: int | None, token: int | None) -> Figure:
    if against is None:
        raise InputError("plot: an error map needs another trace to compare with (--against FILE)")
    check_step(against, step)
    shown, relative = error_view(against, trace, step, batch, head, token)
    names = [t.metadata.get("recipe", "a dump") for t in (trace, against)]
    note = f"{names[0]} minus {names[1]}: {relative:.3g} of the norm"
    return draw_heat_map(heat_map(shown), note, "error / rms of the step")


def _rotary(trace: Trace, kind: str, note: str) -> Figure:
    config = _config(trace, kind)
    if kind == "ramp":
        return draw_ramp(ramp(config), note)
    positions = positions_of(trace)
    row = np.arange(256) if positions is None else np.atleast_2d(positions)[0]
    return draw_angles(angles(config, row), note)


def _with_weights(trace: Trace, step: str, kind: str, weights: BlockWeights | None, note: str) -> Figure:
    if weights is None:
        raise InputError(f"plot: kind {kind} needs the weights of the block")
    if kind == "recipes":
        return draw_waterfall(waterfall_of(trace, weights, step), note)
    if step not in STEPS:
        raise InputError(f"plot: kind {kind} needs a step with a weight; found {step}")
    name = steps_of(weights.config, form_of(trace))[step].weight
    if name is None:
        raise InputError(f"plot: {step} uses no weight, and so has no scales")
    return draw_block_scales(block_scales(weights, name))


def _config(trace: Trace, kind: str) -> BlockConfig:
    config = config_of(trace)
    if config is None:
        raise InputError(f"plot: kind {kind} needs the config of the block, which the trace does not have")
    return config
