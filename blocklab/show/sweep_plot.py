"""A sweep as a picture: one line of dots for each recipe, one dot for each seed, on a scale of errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from blocklab.check.sweep import Case, Outcome
from blocklab.errors import InputError
from blocklab.show import style


def plot_sweep(outcomes: Sequence[Outcome], path: str | Path) -> None:
    """Write a dot plot of relative errors: rows are what was varied beside the seed, strokes are steps.

    Raises InputError where no case was measured, and for a file that is neither PNG nor SVG.
    """
    measured = [o for o in outcomes if o.errors]
    if not measured:
        raise InputError(f"{path}: no case of the sweep was measured; the first failed with: {outcomes[0].failure}")
    recipes = list(dict.fromkeys(o.case.recipe for o in measured))
    ordered = sorted(measured, key=lambda o: (recipes.index(o.case.recipe), o.case.attention, o.case.tokens))
    rows = list(dict.fromkeys(_row(o.case, measured) for o in ordered))
    steps = list(dict.fromkeys(step for o in measured for step in o.errors))
    figure = style.figure(8.0, 1.3 + 0.28 * len(rows))
    ax = figure.add_subplot()
    for i, step in enumerate(steps):
        points = [(o.errors[step], rows.index(_row(o.case, measured))) for o in measured if o.errors.get(step)]
        stroke = style.STROKES[i % len(style.STROKES)]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        ax.scatter(xs, ys, s=24, c=stroke.color, marker=stroke.marker, alpha=0.75, label=step)
    ax.set_xscale("log")
    ax.tick_params(axis="x", which="minor", labelsize=style.SMALL)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    seeds = len({o.case.seed for o in measured})
    note = f"{measured[0].case.checkpoint or measured[0].case.preset}; a dot for each of {seeds} seeds"
    style.label(ax, "Error against float64", "relative norm error", "", note)
    style.lines_only(ax, "both")
    if len(steps) > 1:
        ax.legend(fontsize=style.SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    style.save(figure, path)


def _row(case: Case, measured: Sequence[Outcome]) -> str:
    """Name a row by its recipe, and by the length and the kind of attention where there are several."""
    words = [case.recipe]
    if len({o.case.attention for o in measured}) > 1:
        words.append(case.attention)
    if len({o.case.tokens for o in measured}) > 1:
        words.append(f"{case.tokens} tokens")
    return ", ".join(words)
