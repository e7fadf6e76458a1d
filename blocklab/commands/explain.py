"""Explain how one number of a step came about, from the step's inputs to the last rounding."""

from __future__ import annotations

import argparse

from blocklab.commands.options import (
    DEFAULT_RECIPE,
    add_input_options,
    add_model_options,
    add_recipe_options,
    read_model,
    read_setup,
    refuse_run_options,
)
from blocklab.commands.traces import open_trace, require_block
from blocklab.errors import InputError, brief
from blocklab.json_file import json_text
from blocklab.show.explanation import explain, explanation_json, explanation_text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab explain`."""
    parser.add_argument("step", metavar="STEP", help="a step, as in q_latent")
    parser.add_argument("index", metavar="INDEX", help="one integer an axis, as in 0,5,3")
    parser.add_argument("--trace", metavar="FILE", help="explain a number of a saved trace, with its block's weights")
    parser.add_argument("--json", action="store_true", help="machine output")
    add_model_options(parser)
    add_input_options(parser)
    add_recipe_options(parser)


def run(options: argparse.Namespace) -> int:
    """Explain, and return 1 where the recomputed value is not the traced one."""
    index = parse_index(options.step, options.index)
    if options.trace:
        refuse_run_options(options)
        trace = open_trace(options.trace, options)
        if options.recipe and "recipe" in trace.metadata:
            raise InputError(f"--recipe: the trace of {options.trace} says {brief(trace.metadata['recipe'])} itself")
        model, _ = read_model(options, trace.metadata, options.trace)
        require_block(trace, model.config, options.trace)
        recipe, weights = "" if "recipe" in trace.metadata else options.recipe or DEFAULT_RECIPE, model.weights
    else:
        setup = read_setup(options)
        trace, recipe, weights = setup.trace("*"), "", setup.model.weights
    found = explain(trace, weights, options.step, index, recipe)
    print(json_text(explanation_json(found)) if options.json else explanation_text(found))
    return 0 if found.accepted else 1


def parse_index(step: str, text: str) -> list[int]:
    """Return the integers of "0,5,3"."""
    try:
        return [int(i) for i in text.split(",")]
    except ValueError:
        raise InputError(f"explain {step}: expected an index such as 0,5,3; found {text!r}") from None
