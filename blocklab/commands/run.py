"""Run one block and print every step as it is computed."""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from blocklab import __version__
from blocklab.block.steps import STEPS, step_of, steps_of
from blocklab.block.taps import Chain
from blocklab.commands.options import (
    Setup,
    add_input_options,
    add_model_options,
    add_recipe_options,
    read_setup,
)
from blocklab.errors import InputError
from blocklab.json_file import json_text
from blocklab.numerics import Recipe
from blocklab.show.run_table import RunTable, widest_shape
from blocklab.store.accounting import axis_sizes
from blocklab.store.trace import Recorder, select_steps
from blocklab.store.trace_file import save_tensors
from blocklab.store.writing import refuse_overwriting, require_safetensors
from blocklab.tables import format_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab run`."""
    add_model_options(parser)
    add_input_options(parser)
    add_recipe_options(parser)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="gpu: an NVIDIA one, through cupy")
    parser.add_argument("--steps", default="*", metavar="GLOB", help='which steps, as in "q*,pattern,*.in.*"')
    parser.add_argument("--trace", metavar="FILE", help="save the steps as safetensors")
    parser.add_argument("--output", metavar="FILE", help="save the block's output as safetensors")
    parser.add_argument("--digest", action="store_true", help="print the sha256 of each step's values")
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Run the block and print, save and digest as asked."""
    select_steps(options.steps)  # a glob that matches nothing is refused before anything is printed
    require_safetensors(*filter(None, (options.trace, options.output)))
    refuse_overwriting([options.trace, options.output], [options.input, options.checkpoint])
    setup = read_setup(options)
    model, tokens, recipe = setup.model, setup.tokens, setup.recipe
    B, T, _ = tokens.x.shape
    write = None if options.json else lambda line: print(line, flush=True)
    if write:
        write(_header(setup))
    table = RunTable(options.steps, recipe, widest_shape(model.config, B, T, T), options.digest, write)
    recorder = Recorder(options.steps) if options.trace else None
    start = time.perf_counter()
    y = setup.run(Chain(recorder, table) if recorder else table, kept=recorder)
    seconds = time.perf_counter() - start
    if not table.rows:
        raise InputError(
            f"--steps {options.steps}: none of them is computed in {recipe.name}, {setup.attention} attention"
        )

    if recorder:
        setup.recorded(recorder).save(options.trace)
    if options.output:
        save_tensors(options.output, {"output": y}, recipe.storage, {"recipe": recipe.name, "model": model.name})
    if options.json:
        print(json_text(_as_json(setup, table, seconds)))
    else:
        peak = _peak_memory()
        memory = "" if peak is None else f", peak memory {format_bytes(peak)}"
        print("\n".join(["", *_rate(setup, table), f"{seconds:.2f} s{memory}"]))
    return 0


def _header(setup: Setup) -> str:
    model, tokens, positions, recipe = setup.model, setup.tokens, setup.positions, setup.recipe
    B, T, _ = tokens.x.shape
    sizes = {axis: size for axis, size in axis_sizes(model.config, B, T, T).items() if axis not in "BTS" and size}
    formats = sorted({w.format for w in model.weights.named().values()})
    where = f"{positions[0]}..{positions[-1]}" if (np.diff(positions) == 1).all() else ",".join(map(str, positions))
    lines = [
        f"blocklab {__version__}: one dense block, {model.name}",
        "sizes    " + ", ".join(f"{axis} {size}" for axis, size in sizes.items()),
        f"weights  {format_bytes(sum(w.nbytes for w in model.weights.named().values()))}, {' and '.join(formats)}",
        f"recipe   {recipe.name}: {_describe(recipe)}; {setup.attention} attention",
        f"input    {tokens.source}; batch {B}, {T} tokens, positions {where}, causal mask",
    ]
    if tokens.labels:
        lines.append("tokens   " + " ".join(tokens.labels))
    return "\n".join(lines) + "\n"


def _describe(recipe: Recipe) -> str:
    dots = {"float32": "in BLAS float32", "exact": "exact", "hopper": "in 14-bit Hopper registers"}[recipe.accumulate]
    linears = f"linears in FP8, groups of {recipe.group}" if recipe.fp8_linear else f"linears in {recipe.storage}"
    return f"steps stored as {recipe.storage}, {linears}, dots {dots}"


def _rate(setup: Setup, table: RunTable) -> list[str]:
    """Return one line that says how fast the printed linears ran, or none where none was printed."""
    B, T, _ = setup.tokens.x.shape
    weights = setup.model.weights.named()
    products, milliseconds = 0, 0.0
    for row in table.rows:
        wire = steps_of(setup.model.config, setup.attention)[step_of(row["step"]).name]
        if row["step"] in STEPS and wire.kind == "linear" and wire.weight is not None:
            products += B * T * math.prod(weights[wire.weight].shape)
            milliseconds += row["milliseconds"]
    if not milliseconds:
        return []
    rate = products / milliseconds * 1e3
    return [f"linears: {products:.3g} products in {milliseconds / 1e3:.2f} s, {rate:.2g} a second"]


def _peak_memory() -> int | None:
    """Return the largest resident size of this process so far; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024


def _as_json(setup: Setup, table: RunTable, seconds: float) -> dict[str, Any]:
    model, tokens = setup.model, setup.tokens
    return {
        "model": model.name,
        "config": asdict(model.config),
        "recipe": setup.recipe.name,
        "attention": setup.attention,
        "input": {"source": tokens.source, "shape": list(tokens.x.shape), "labels": tokens.labels},
        "steps": table.rows,
        "seconds": seconds,
        "peak_bytes": _peak_memory(),
    }
