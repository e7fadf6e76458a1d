"""Where error comes from: each step's distance from float64, recipe by recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklab.block.dense import dense_block
from blocklab.block.rotary import rotary_table
from blocklab.block.steps import STEPS
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError
from blocklab.numerics import get_recipe
from blocklab.show import style
from blocklab.show.about import form_of, positions_of
from blocklab.show.pooling import masked_to_infinity
from blocklab.store.inputs import require_activations
from blocklab.store.trace import Recorder, Trace
from blocklab.xp import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RECIPES = ("float32", "bfloat16", "deepseek-bf16", "deepseek-fp8", "hopper-fp8")
"""The recipes that are held against float64, each with one more kind of rounding."""


@dataclass(frozen=True)
class Waterfall:
    """Relative norm errors from float64.

    errors  recipe -> step -> |recipe - float64| / |float64|
    step    the step that is looked at
    """

    errors: Mapping[str, Mapping[str, float]]
    step: str

    def share_of_fp8(self) -> float:
        """Return which share of the squared error of deepseek-fp8 is not there in deepseek-bf16."""
        plain, fp8 = (self.errors[recipe][self.step] for recipe in ("deepseek-bf16", "deepseek-fp8"))
        return 1 - (plain / fp8) ** 2 if fp8 else 0.0


class ErrorTap:
    """A tap that measures each step against a reference and keeps one number a step."""

    def __init__(self, reference: Mapping[str, np.ndarray]) -> None:
        """Compare with these arrays."""
        self.reference = reference
        self.errors: dict[str, float] = {}

    def wants(self, name: str) -> bool:
        """Whether the reference has the step."""
        return name in self.reference

    def __call__(self, name: str, value: Array) -> Array:
        """Measure and return the value."""
        reference, ours = (masked_to_infinity(name, np.asarray(a)) for a in (self.reference[name], value))
        self.errors[name] = relative_error(reference, ours)
        return value


def relative_error(reference: np.ndarray, other: np.ndarray) -> float:
    """Return |other - reference| / |reference| over places that are finite on both sides."""
    both = np.isfinite(reference) & np.isfinite(other)
    a, b = reference[both].astype(np.float64), other[both].astype(np.float64)
    norm = float(np.linalg.norm(a))
    return float(np.linalg.norm(b - a)) / norm if norm else 0.0


def waterfall(
    weights: BlockWeights,
    x: np.ndarray,
    positions: np.ndarray,
    M: np.ndarray,
    step: str = "mlp_out",
    recipes: Sequence[str] = RECIPES,
    attention: str = "naive",
) -> Waterfall:
    """Run a block in float64, then in each recipe from the same input, and measure every step.

    FP8 recipes are left out where the weights are not FP8.
    """
    scaled = all(w.scale is not None for w in weights.named().values() if len(w.shape) == 2)
    exact = Recorder()
    dense_block(x, rotary_table(weights.config, positions), M, weights, "float64", attention, tap=exact)
    errors = {}
    for name in recipes:
        recipe = get_recipe(name)
        if recipe.fp8_linear and not scaled:
            continue
        tap = ErrorTap(exact.values)
        R = rotary_table(weights.config, positions, recipe.rotary_table)
        dense_block(x, R, M, weights, recipe, attention, tap=tap)
        errors[name] = tap.errors
    if step not in exact.values:
        raise InputError(f"no step {step!r} in {attention} attention; the steps are {', '.join(exact.values)}")
    return Waterfall(errors, step)


def waterfall_of(trace: Trace, weights: BlockWeights, step: str = "mlp_out") -> Waterfall:
    """Run the block again, from a trace's input, in every recipe."""
    if "resid_pre" not in trace:
        raise InputError("recipes: the trace has no resid_pre to start from")
    x = trace["resid_pre"]
    require_activations(x, "recipes: resid_pre")
    T = x.shape[1]
    positions, mask = positions_of(trace), trace.given.get("attention_mask")
    M = np.tri(T, dtype=bool) if mask is None else np.asarray(mask)
    if M.shape[-1] != T:
        raise InputError(f"recipes: the trace continues a cache: {M.shape[-1]} keys for {T} queries")
    return waterfall(weights, x, np.arange(T) if positions is None else positions, M, step, attention=form_of(trace))


def draw_waterfall(data: Waterfall, note: str = "") -> Figure:
    """Draw each recipe's error along the steps, and beside it the errors of the one step that is looked at."""
    made = style.figure(11.0, 4.8)
    lines, bars = made.subplots(1, 2, width_ratios=(5, 2))
    _draw_lines(lines, data)
    _draw_bars(bars, data)
    style.label(lines, "Error of each step, from float64 through each recipe", "", "relative norm error", note)
    both = {"deepseek-bf16", "deepseek-fp8"} <= data.errors.keys()
    cause = f"FP8 caused {data.share_of_fp8():.1%} of its square" if both else ""
    style.label(bars, f"Error of {data.step} alone", "relative norm error", "", cause)
    return made


def _draw_lines(ax: Axes, data: Waterfall) -> None:
    names = [name for name in STEPS if any(name in errors for errors in data.errors.values())]
    for stroke, (recipe, errors) in zip(style.STROKES, data.errors.items(), strict=False):
        values = [errors.get(name, np.nan) or np.nan for name in names]
        ax.plot(range(len(names)), values, label=recipe, **stroke.options)
    ax.axvline(names.index(data.step), color=style.GRID, linewidth=6, zorder=0)
    style.log_scale(ax, "y", (error for errors in data.errors.values() for error in errors.values()))
    style.lines_only(ax)
    ax.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=style.SMALL)
    ax.legend(fontsize=style.TEXT, frameon=False, ncols=3, loc="center")


def _draw_bars(ax: Axes, data: Waterfall) -> None:
    recipes = list(data.errors)
    values = [data.errors[recipe][data.step] for recipe in recipes]
    for place, (value, stroke) in enumerate(zip(values, style.STROKES, strict=False)):
        ax.barh(place, value, color=stroke.color, height=0.6)
        ax.text(value, place, f" {value:.2%}" if value > 1e-4 else f" {value:.1e}", va="center", fontsize=style.TEXT)
    ax.set_yticks(range(len(recipes)), recipes, fontsize=style.TEXT)
    ax.invert_yaxis()
    ax.set_xlim(0, max(values) * 1.35 or 1)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    style.lines_only(ax, "x")
