"""A sweep as a picture: one line of dots for each recipe, one dot for each seed, on a scale of errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from blocklab.check.sweep import Case, Outcome
from blocklab.errors import InputError
from blocklab.show import style


def plot_sweep(outcomes: Sequence[Outcome], path: str | Path) -> None:
    """Write a dot plot of relative errors: rows are what was varied beside the seed, strokes are steps.

    Where there are more steps than strokes, rows are steps and strokes what was varied.
    Raises InputError where no case was measured, and for a file that is neither PNG nor SVG.
    """
    measured = [o for o in outcomes if o.errors]
    if not measured:
        raise InputError(f"{path}: no case of the sweep was measured; the first failed with: {outcomes[0].failure}")
    recipes = list(dict.fromkeys(o.case.recipe for o in measured))
    ordered = sorted(measured, key=lambda o: (recipes.index(o.case.recipe), o.case.attention, o.case.tokens))
    points = [(_row(o.case, measured), step, error) for o in ordered for step, error in o.errors.items()]
    steps = list(dict.fromkeys(step for o in measured for step in o.errors))
    if len(steps) > len(style.STROKES):
        points = sorted(((step, row, error) for row, step, error in points), key=lambda p: steps.index(p[0]))
    rows = list(dict.fromkeys(row for row, _, _ in points))
    dots = list(dict.fromkeys(dot for _, dot, _ in points))
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator

    figure = style.figure(8.0, 1.3 + max(0.28 * len(rows), 0.17 * len(dots)))
    ax = figure.add_subplot()
    for i, dot in enumerate(dots):
        found = [(error, rows.index(row)) for row, name, error in points if name == dot and error]
        color = style.STROKES[i % len(style.STROKES)].color
        marker = style.STROKES[(i + i // len(style.STROKES)) % len(style.STROKES)].marker
        xs, ys = [x for x, _ in found], [y for _, y in found]
        ax.scatter(xs, ys, s=24, c=color, marker=marker, alpha=0.75, label=dot)
    style.log_scale(ax, "x", (error for _, _, error in points))
    if ax.get_xscale() == "log":
        ax.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        ax.xaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(9, 9)))
        ax.tick_params(axis="x", which="minor", labelsize=style.SMALL)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    seeds = sorted({o.case.seed for o in measured})
    alone = f", {dots[0]}" if len(dots) == 1 else ""
    dot = f"seed {seeds[0]}" if len(seeds) == 1 else f"a dot for each of {len(seeds)} seeds"
    note = f"{measured[0].case.checkpoint or measured[0].case.preset}{alone}; {dot}"
    style.label(ax, "Error against float64", "relative norm error", "", note)
    style.lines_only(ax, "both")
    if len(dots) > 1:
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
