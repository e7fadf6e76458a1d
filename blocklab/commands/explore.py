"""Write one self-contained page to explore a run: the block as a diagram, every step's values, two runs compared."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping

from blocklab.check.choose import attention_forms, make_run
from blocklab.check.dump import read_dump
from blocklab.commands.options import (
    Setup,
    add_input_options,
    add_model_options,
    add_recipe_options,
    read_model,
    read_setup,
    refuse_run_options,
)
from blocklab.commands.traces import open_trace
from blocklab.errors import InputError
from blocklab.numerics import get_recipe
from blocklab.show.explore import explorer_page
from blocklab.show.explore_curves import AloneTap
from blocklab.show.waterfall import ErrorTap
from blocklab.store.trace import Recorder, Trace, recorded
from blocklab.store.writing import atomic_write, refuse_overwriting, require_targets
from blocklab.tables import format_bytes

Curves = Mapping[str, Mapping[str, float]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab explore`."""
    parser.add_argument("-o", "--output", default="explore.html", metavar="FILE", help="default: explore.html")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="show a saved trace instead of running the block; with --checkpoint or --preset, a dump of that block"
        " from another program",
    )
    parser.add_argument("--against", metavar="FILE", help="a second trace, shown beside the first with the errors")
    parser.add_argument(
        "--reference",
        metavar="RECIPE",
        help='our own run to compare with, in this recipe, or "none" (default: float64 for a new run)',
    )
    add_model_options(parser)
    add_input_options(parser)
    add_recipe_options(parser)


def run(options: argparse.Namespace) -> int:
    """Write the page and say what is in it."""
    if options.against and options.reference is not None:
        raise InputError("--reference and --against: expected one of them, since both name what to compare with")
    require_targets(options.output)
    refuse_overwriting([options.output], [options.trace, options.against, options.input, options.checkpoint])
    curves: Curves = {}
    against = open_trace(options.against, options, strict=False) if options.against else None
    if options.trace:
        compared = options.reference not in (None, "none")
        refuse_run_options(options, "recipe", *(() if compared else ("seed",)))
        trace = open_trace(options.trace, options, strict=False)
        reference = _our_run(options) if compared else None
    else:
        trace, reference, curves = _new_run(read_setup(options), None if against else options.reference or "float64")
    against = against or reference
    page = explorer_page(trace, against, curves)
    atomic_write(options.output, page)
    beside = "" if against is None else f", against {against.metadata.get('recipe', 'a second trace')}"
    steps = sum(1 for _ in trace.headers())
    print(f"{options.output}: {steps} steps{beside}, {format_bytes(len(page))}; open it in a browser")
    return 0


def _new_run(setup: Setup, reference: str | None) -> tuple[Trace, Trace | None, Curves]:
    """Run the block, and again in the reference recipe; measure what each step adds, and what FP8 has to do with it."""
    exact = None if reference in (None, "none") else get_recipe(str(reference))
    trace = setup.trace()
    if exact is None or exact == setup.recipe:
        return trace, None, {}
    against = dataclasses.replace(setup, recipe=exact).trace("*")
    alone = AloneTap(against, setup.recipe)
    setup.run(alone)
    curves = {"alone": alone.errors}
    if setup.recipe.fp8_linear:
        plain = ErrorTap(against)
        without = setup.recipe.replace(name=f"{setup.recipe.name} without FP8", fp8_linear=False)
        dataclasses.replace(setup, recipe=without).run(plain)
        curves["without FP8"] = plain.errors
    return trace, against, curves


def _our_run(options: argparse.Namespace) -> Trace:
    """Run the block that a dump is of, from the dump's input, positions and mask."""
    if not (options.checkpoint or options.preset):
        raise InputError(
            "--reference runs the block beside the dump of --trace: say which, by --checkpoint or --preset"
        )
    model, _ = read_model(options)
    dump = read_dump(options.trace, model.config, options.layer)
    recipe, attention = get_recipe(options.reference), attention_forms(dump)[0]
    ours, _ = make_run(dump, model.weights, recipe, attention)
    recorder = Recorder("*")
    ours.go(recorder)
    about = "our own run from the same input"
    return recorded(recorder, ours.R, ours.M, model.config, recipe, attention, model=about)
