"""Run one block and print every step as it is computed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from blocklab import __version__
from blocklab.block.config import PRESETS
from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.taps import Chain
from blocklab.errors import InputError
from blocklab.numerics import RECIPES, Recipe, get_recipe
from blocklab.show.run_table import RunTable, widest_shape
from blocklab.show.tables import format_bytes
from blocklab.store.inputs import (
    Model,
    Tokens,
    open_model,
    parse_positions,
    tokens_from_file,
    tokens_from_ids,
    tokens_from_seed,
    tokens_from_text,
)
from blocklab.store.trace import Recorder, recorded
from blocklab.store.trace_file import save_tensors


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab run`."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--preset", choices=PRESETS, default="kimi-k2-small", help="default: kimi-k2-small")
    model.add_argument("--checkpoint", metavar="DIR", help="a checkpoint in the published layout")
    parser.add_argument("--layer", type=int, default=0, help="which dense layer of the checkpoint (default: 0)")
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument("--input", metavar="FILE", help="activations: `input` of a safetensors or npz file")
    tokens.add_argument("--token-ids", metavar="1,2,3", help="rows of the embedding")
    tokens.add_argument("--text", help="bytes as tokens, for presets and checkpoints made by synth")
    parser.add_argument("--batch", type=int, help="of the seeded input (default: 1)")
    parser.add_argument("--tokens", type=int, help="of the seeded input (default: 16)")
    parser.add_argument("--seed", type=int, default=0, help="of synthetic weights and input (default: 0)")
    parser.add_argument("--positions", metavar="START|LIST", help="default: from 0")
    parser.add_argument(
        "--recipe",
        default="deepseek-fp8",
        metavar="NAME[,OPTION=VALUE]",
        help=f"where to round: {', '.join(RECIPES)} (default: deepseek-fp8)",
    )
    parser.add_argument("--attention", choices=("naive", "absorb"), default="naive", help="default: naive")
    parser.add_argument("--steps", default="*", metavar="GLOB", help='which steps, as in "q*,pattern,*.in.*"')
    parser.add_argument("--trace", metavar="FILE", help="save the steps as safetensors")
    parser.add_argument("--output", metavar="FILE", help="save the block's output as safetensors")
    parser.add_argument("--digest", action="store_true", help="print the sha256 of each step's values")
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Run the block and print, save and digest as asked."""
    recipe = get_recipe(options.recipe)
    if options.seed < 0:
        raise InputError(f"seed: expected 0 or more; found {options.seed}")
    model = open_model(options.preset, options.checkpoint, options.layer, options.seed)
    tokens = _tokens(model, options)
    B, T, _ = tokens.x.shape
    positions = parse_positions(options.positions, T)
    R, M = rotary_table(model.config, positions, recipe.rotary_table), causal_mask(T)

    write = None if options.json else lambda line: print(line, flush=True)
    if write:
        write(_header(model, tokens, positions, recipe, options.attention))
    table = RunTable(options.steps, recipe, widest_shape(model.config, B, T, T), options.digest, write)
    recorder = Recorder(options.steps) if options.trace else None
    start = time.perf_counter()
    tap = Chain(recorder, table) if recorder else table
    y = dense_block(tokens.x, R, M, model.weights, recipe, options.attention, tap=tap)
    seconds = time.perf_counter() - start

    if recorder:
        labels = {"labels": json.dumps(tokens.labels)} if tokens.labels else {}
        about = {"model": model.name, "source": tokens.source, "positions": json.dumps(positions.tolist()), **labels}
        recorded(recorder, R, M, model.config, recipe, options.attention, **about).save(options.trace)
    if options.output:
        save_tensors(options.output, {"output": y}, recipe.storage, {"recipe": recipe.name, "model": model.name})
    if options.json:
        print(json.dumps(_as_json(model, tokens, recipe, options.attention, table, seconds), indent=2))
    else:
        print(_footer(seconds))
    return 0


def _tokens(model: Model, options: argparse.Namespace) -> Tokens:
    chosen = [n for n in ("input", "token_ids", "text") if getattr(options, n) is not None]
    sized = [n for n in ("batch", "tokens") if getattr(options, n) is not None]
    if chosen and sized:
        raise InputError(f"--{sized[0]} is for the seeded input; --{chosen[0].replace('_', '-')} brings its own size")
    if options.text is not None:
        return tokens_from_text(model, options.text)
    if options.input is not None:
        return tokens_from_file(model, options.input)
    if options.token_ids is not None:
        try:
            ids = [int(i) for i in options.token_ids.split(",")]
        except ValueError:
            raise InputError(f"token ids: expected integers such as 1,2,3; found {options.token_ids!r}") from None
        return tokens_from_ids(model, ids)
    return tokens_from_seed(model, options.batch or 1, options.tokens or 16, options.seed)


def _header(model: Model, tokens: Tokens, positions: np.ndarray, recipe: Recipe, attention: str) -> str:
    c = model.config
    B, T, _ = tokens.x.shape
    sizes = {"D": c.hidden_size, "H": c.num_attention_heads, "Q": c.q_lora_rank, "C": c.kv_lora_rank}
    sizes |= {"N": c.qk_nope_head_dim, "R": c.qk_rope_head_dim, "V": c.v_head_dim, "F": c.intermediate_size}
    formats = sorted({w.format for w in model.weights.named().values()})
    where = f"{positions[0]}..{positions[-1]}" if (np.diff(positions) == 1).all() else ",".join(map(str, positions))
    lines = [
        f"blocklab {__version__}: one dense block, {model.name}",
        "sizes    " + ", ".join(f"{axis} {size}" for axis, size in sizes.items() if size is not None),
        f"weights  {format_bytes(sum(w.nbytes for w in model.weights.named().values()))}, {' and '.join(formats)}",
        f"recipe   {recipe.name}: {_describe(recipe)}; {attention} attention",
        f"input    {tokens.source}; batch {B}, {T} tokens, positions {where}, causal mask",
    ]
    if tokens.labels:
        lines.append("tokens   " + " ".join(tokens.labels))
    return "\n".join(lines) + "\n"


def _describe(recipe: Recipe) -> str:
    dots = {"float32": "in BLAS float32", "exact": "exact", "hopper": "in 14-bit Hopper registers"}[recipe.accumulate]
    linears = f"linears in FP8, groups of {recipe.group}" if recipe.fp8_linear else f"linears in {recipe.storage}"
    return f"steps stored as {recipe.storage}, {linears}, dots {dots}"


def _footer(seconds: float) -> str:
    return f"\n{seconds:.2f} s, peak memory {format_bytes(_peak_memory())}"


def _peak_memory() -> int:
    """Return the largest resident size of this process so far, memory-mapped weights included."""
    import resource

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024


def _as_json(
    model: Model, tokens: Tokens, recipe: Recipe, attention: str, table: RunTable, seconds: float
) -> dict[str, Any]:
    return {
        "model": model.name,
        "config": asdict(model.config),
        "recipe": recipe.name,
        "attention": attention,
        "input": {"source": tokens.source, "shape": list(tokens.x.shape), "labels": tokens.labels},
        "steps": table.rows,
        "seconds": seconds,
        "peak_bytes": _peak_memory(),
    }
