"""Step through the block in the terminal: each step's formula, shape, parameters, values and statistics."""

from __future__ import annotations

import argparse
import shutil
import sys

from blocklab.commands.options import (
    add_input_options,
    add_model_options,
    add_recipe_options,
    read_setup,
    refuse_run_options,
)
from blocklab.commands.traces import open_trace
from blocklab.errors import InputError
from blocklab.show.stepper import print_all, walk
from blocklab.store.trace import Trace, select_steps


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab step`."""
    parser.add_argument("--trace", metavar="FILE", help="walk through a saved trace instead of running the block")
    parser.add_argument("--steps", default="*", metavar="GLOB", help='which steps, as in "q*,pattern"')
    parser.add_argument("--token", type=int, metavar="T", help="the query whose attention is told (default: the last)")
    add_model_options(parser)
    add_input_options(parser)
    add_recipe_options(parser)


def run(options: argparse.Namespace) -> int:
    """Walk through the steps, asking after each; print them all where nobody can answer."""
    if options.trace:
        refuse_run_options(options, "recipe", "seed")
    trace = open_trace(options.trace, options) if options.trace else read_setup(options).trace()
    names = chosen_steps(trace, options.steps)
    check_token(trace, options.token)
    width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        walk(trace, names, width, options.token, print, input)
    else:
        print_all(trace, names, width, options.token, print)
    return 0


def chosen_steps(trace: Trace, patterns: str) -> list[str]:
    """Return the steps of a trace that match comma-separated globs, in order."""
    wanted = select_steps(patterns)
    names = [step.name for step, _ in trace.headers()]
    chosen = [name for name in names if wanted(name)]
    if not chosen:
        raise InputError(f"steps: the trace has none that match {patterns!r}; it has {', '.join(names)}")
    return chosen


def check_token(trace: Trace, token: int | None) -> None:
    """Refuse a position that the trace does not have."""
    first = next(value for _, value in trace.headers())
    T = trace["pattern"].shape[2] if "pattern" in trace else first.shape[1]
    if token is not None and not 0 <= token < T:
        raise InputError(f"token: expected 0 to {T - 1}; found {token}")
