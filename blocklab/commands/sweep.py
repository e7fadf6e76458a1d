"""Measure the error of many recipes, options, seeds and lengths against float64, to a table and a plot."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from blocklab.block.config import PRESETS, BlockConfig
from blocklab.check.sweep import Case, Outcome, grid, sweep, write_table
from blocklab.commands.options import DEFAULT_PRESET, NO_LAYER, told_number
from blocklab.errors import InputError
from blocklab.json_file import json_text
from blocklab.numerics import RECIPES
from blocklab.numerics.threads import worker_count
from blocklab.show.sweep_plot import plot_sweep
from blocklab.store.checkpoint import checkpoint_config, parameter_table
from blocklab.store.inputs import checked_positions, parse_positions, require_size, tokens_from_file, told_positions
from blocklab.store.trace_file import load_tensors
from blocklab.store.writing import PICTURES, refuse_overwriting, require_targets
from blocklab.tables import format_number, format_row

TOKENS = 16
"""Length of the input where nothing is said."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab sweep`."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--preset", choices=PRESETS, help="default: kimi-k2-small")
    model.add_argument("--checkpoint", metavar="DIR", help="a checkpoint in the published layout")
    parser.add_argument("--layer", type=int, help="which dense layer of the checkpoint (default: 0)")
    parser.add_argument("--input", metavar="FILE", help="activations; a trace also says which block it came from")
    parser.add_argument("--positions", metavar="START|LIST", help="default: from 0")
    parser.add_argument("--attention", choices=("naive", "absorb"), default="naive", help="default: naive")
    parser.add_argument(
        "--recipe",
        action="append",
        metavar="NAME[,OPTION=VALUE]",
        help=f"may be given several times: {', '.join(RECIPES)} (default: bfloat16, deepseek-fp8 and hopper-fp8)",
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="OPTION=A,B,...",
        help="values of a recipe's option, as in group=32,64,128; given several times, all combinations",
    )
    parser.add_argument(
        "--seeds", type=_integers, metavar="0,1,...", help="of synthetic weights and input (default: 0)"
    )
    parser.add_argument(
        "--tokens", type=_integers, metavar="16,64,...", help=f"lengths of the input (default: {TOKENS})"
    )
    parser.add_argument("--batch", type=int, default=1, help="default: 1")
    parser.add_argument("--steps", default="resid_post", metavar="GLOB", help="which steps (default: resid_post)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--table", metavar="FILE", help="write the table as CSV")
    parser.add_argument("-o", "--output", metavar="FILE", help="draw the errors: .png or .svg")
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Measure all cases, printing each as it is done; 1 when one of them failed."""
    if options.workers < 1:
        raise InputError(f"workers: expected 1 or more; found {options.workers}")
    require_targets(*filter(None, (options.table, options.output)))
    if options.output:
        require_targets(options.output, endings=PICTURES)
    refuse_overwriting([options.table, options.output], [options.input, options.checkpoint])
    vary = _varied(options.vary)
    cases = grid(
        options.recipe or ["bfloat16", "deepseek-fp8", "hopper-fp8"],
        vary,
        options.seeds or _default_seeds(options),
        options.tokens or [TOKENS],
        batch=options.batch,
        attention=options.attention,
        **_block(options),
    )
    report = None if options.json else _printer(cases)
    with _processes(min(options.workers, len(cases))) as executor:
        outcomes = sweep(cases, executor, options.steps, report)
    if options.table:
        write_table(options.table, outcomes, vary)
    if options.output:
        plot_sweep(outcomes, options.output)
    if options.json:
        print(json_text([asdict(o) for o in outcomes]))
    return 1 if any(o.failure for o in outcomes) else 0


def _varied(options: list[str]) -> dict[str, list[str]]:
    """Parse ["group=32,64"] to {"group": ["32", "64"]}."""
    found = {}
    for text in options:
        name, equals, values = text.partition("=")
        if not equals or not all(values.split(",")):
            raise InputError(f"--vary {text}: expected OPTION=VALUE,VALUE,..., as in group=32,64,128")
        if name in found:
            raise InputError(f"--vary {text}: expected {name} once, with all its values")
        found[name] = values.split(",")
    return found


def _block(options: argparse.Namespace) -> dict[str, Any]:
    """Return which block and input: those of the options, else those that a trace says it came from.

    What is wrong with them is wrong with every case, and is refused here.
    """
    origin = _origin(options)
    preset, checkpoint = options.preset or origin.get("preset"), options.checkpoint or origin.get("checkpoint")
    layer = options.layer if options.layer is not None else told_number(origin, "layer", options.input)
    if checkpoint is not None:
        parameter_table(checkpoint, layer)
    elif options.layer is not None:
        raise InputError(NO_LAYER)
    config = checkpoint_config(checkpoint) if checkpoint else BlockConfig.preset(preset or DEFAULT_PRESET)
    found = {"preset": preset, "checkpoint": checkpoint, "layer": layer, "input": options.input}
    found["positions"] = _positions(options, origin, config)
    return {name: value for name, value in found.items() if value is not None}


def _positions(options: argparse.Namespace, origin: Mapping[str, str], config: BlockConfig) -> str | None:
    """Return the positions of the options, else those that a trace tells; refuse what no length of input can have."""
    if options.input is None:
        lengths = options.tokens or [TOKENS]
        require_size(options.batch, min(lengths))
        for T in lengths if options.positions is not None else ():
            parse_positions(options.positions, T)
        return options.positions
    B, T, _ = tokens_from_file(config, options.input).x.shape
    if options.positions is not None or "positions" not in origin:
        parse_positions(options.positions, T)
        return options.positions
    where = f"{options.input}: metadata positions"
    told = checked_positions(told_positions(origin["positions"], where), B, T, where)
    return ",".join(map(str, np.atleast_2d(told)[0]))


def _origin(options: argparse.Namespace) -> Mapping[str, str]:
    if options.input is None:
        return {}
    if options.tokens or options.batch != 1:
        raise InputError("--tokens and --batch are for the seeded input; --input brings its own size")
    known = load_tensors(options.input).metadata
    return {} if options.preset or options.checkpoint else known


def _default_seeds(options: argparse.Namespace) -> list[int]:
    return [told_number(_origin(options), "seed", options.input)]


def _integers(text: str) -> list[int]:
    numbers = [int(n) for n in text.split(",")]
    if min(numbers) < 0:
        raise ValueError
    return numbers


_integers.__name__ = "comma-separated integers"


@contextmanager
def _processes(count: int) -> Iterator[Executor | None]:
    """Open a pool of processes that share the processors; None for one.

    A Ctrl-C reaches this process alone, which then ends the others: one that it met in the middle of starting, or of
    waiting for work, would leave the rest waiting for ever.
    """
    if count == 1:
        yield None
        return
    with _refused(count):
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
    try:
        with _refused(count), _inherited(count):
            for _ in range(count):
                pool.submit(os.getpid)  # starts a process
        yield pool
    except BaseException:
        with _ignored_interrupts():
            # The pool's own thread, in Python 3.11, fails over cases that were cancelled when its processes end.
            told, threading.excepthook = threading.excepthook, lambda _: None
            for process in multiprocessing.active_children():
                process.terminate()
            pool.shutdown()
            threading.excepthook = told
        raise
    pool.shutdown()


@contextmanager
def _refused(count: int) -> Iterator[None]:
    """Say which option asked for processes that cannot be started."""
    try:
        yield
    except OSError as error:
        raise InputError(f"--workers {count}: processes cannot be started: {error.strerror or error}") from None


@contextmanager
def _inherited(count: int) -> Iterator[None]:
    """Set what processes that are started now inherit: interrupts ignored, and a share of the processors for BLAS."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = str(max(1, worker_count() // count))
    try:
        with _ignored_interrupts():
            yield
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # to which alone interrupts come
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _printer(cases: list[Case]) -> Callable[[Outcome], None]:
    """Return what prints a line for each outcome, under a header that is printed at once."""
    widths = (max(len("recipe"), *(len(c.recipe) for c in cases)), 4, 6, 14, 9, 7, 0)
    align = "<>><>><"
    print(format_row(("recipe", "seed", "tokens", "step", "error", "s", ""), widths, align), flush=True)

    def report(outcome: Outcome) -> None:
        case, seconds = outcome.case, f"{outcome.seconds:.2f}"
        length = "" if case.input else str(case.tokens)
        start = (case.recipe, str(case.seed), length)
        for step, error in outcome.errors.items():
            print(format_row((*start, step, format_number(error), seconds, ""), widths, align), flush=True)
        if outcome.failure:
            print(format_row((*start, "", "", seconds, outcome.failure), widths, align), flush=True)

    return report
