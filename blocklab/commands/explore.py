"""Write one self-contained page to explore a run: the block as a diagram, every step's values, two runs compared."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping

from blocklab.block.config import BlockConfig
from blocklab.check.choose import attention_forms, make_run
from blocklab.commands.options import (
    Setup,
    add_input_options,
    add_model_options,
    add_recipe_options,
    read_model,
    read_setup,
)
from blocklab.errors import InputError
from blocklab.numerics import get_recipe
from blocklab.show.explore import explorer_page
from blocklab.show.explore_curves import AloneTap
from blocklab.show.explore_dump import trace_of_dump
from blocklab.show.tables import format_bytes
from blocklab.show.waterfall import ErrorTap
from blocklab.store.checkpoint import checkpoint_config
from blocklab.store.trace import Recorder, Trace, load_trace, recorded
from blocklab.store.writing import atomic_write

_OF_A_RUN = ("seed", "input", "token_ids", "text", "batch", "tokens", "positions")
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
    curves: Curves = {}
    against = load_trace(options.against) if options.against else None
    if not options.trace:
        trace, reference, curves = _new_run(read_setup(options), None if against else options.reference or "float64")
    elif options.checkpoint or options.preset:
        trace, reference = _dump(options)
    else:
        trace, reference = _saved(options), None
    against = against or reference
    page = explorer_page(trace, against, curves)
    atomic_write(options.output, page)
    compared = "" if against is None else f", against {against.metadata.get('recipe', 'a second trace')}"
    steps = sum(1 for _ in trace.steps())
    print(f"{options.output}: {steps} steps{compared}, {format_bytes(len(page))}; open it in a browser")
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


def _saved(options: argparse.Namespace) -> Trace:
    """Read a trace that names its steps as we do."""
    _refuse(options, (*_OF_A_RUN, "layer", "reference"))
    try:
        return load_trace(options.trace)
    except InputError as error:
        if "expected a trace" not in str(error):
            raise
        raise InputError(f"{error}; for a dump with other names, say of which block: --checkpoint DIR") from None


def _dump(options: argparse.Namespace) -> tuple[Trace, Trace | None]:
    """Read a dump of a block, and run the block along it where a reference is asked for."""
    _refuse(options, _OF_A_RUN)
    config = checkpoint_config(options.checkpoint) if options.checkpoint else BlockConfig.preset(options.preset)
    trace, dump = trace_of_dump(options.trace, config, options.layer)
    if options.reference in (None, "none"):
        return trace, None
    recipe, attention = get_recipe(options.reference), attention_forms(dump)[0]
    ours, _ = make_run(dump, read_model(options)[0].weights, recipe, attention)
    recorder = Recorder("*")
    ours.go(recorder)
    return trace, recorded(recorder, ours.R, ours.M, config, recipe, attention, model="our own run from the same input")


def _refuse(options: argparse.Namespace, names: tuple[str, ...]) -> None:
    given = [name for name in names if getattr(options, name) is not None]
    if given:
        raise InputError(f"--{given[0].replace('_', '-')} is for a new run; --trace shows one that is saved")
