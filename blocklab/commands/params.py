"""Count the parameters and bytes of a block, from a preset or from a checkpoint's headers."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from blocklab.block.config import PRESETS, BlockConfig
from blocklab.block.rotary import correction_range
from blocklab.commands.options import NO_LAYER
from blocklab.errors import InputError
from blocklab.json_file import json_text
from blocklab.store.accounting import Component, cache_numbers, components, totals
from blocklab.store.checkpoint import checkpoint_config, parameter_table
from blocklab.tables import format_bytes, format_table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab params`."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--preset", choices=PRESETS, default="kimi-k2", help="a built-in config (default: kimi-k2)")
    source.add_argument("--checkpoint", metavar="DIR", help="a checkpoint; only headers are read")
    parser.add_argument("--layer", type=int, help="which dense layer of the checkpoint (default: 0)")
    parser.add_argument("--cache", action="store_true", help="what one token leaves in a cache, too")
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Print the accounting."""
    if options.checkpoint:
        config = checkpoint_config(options.checkpoint)
        parts = parameter_table(options.checkpoint, options.layer or 0)
    elif options.layer is not None:
        raise InputError(NO_LAYER)
    else:
        config = BlockConfig.preset(options.preset)
        parts = components(config)
    print(json_text(_as_json(config, parts)) if options.json else _as_text(config, parts, options.cache))
    return 0


def _as_json(config: BlockConfig, parts: list[Component]) -> dict[str, Any]:
    rows = [asdict(c) | {"parameters": c.parameters, "bytes": c.bytes} for c in parts]
    scale = {"softmax_scale": config.softmax_scale}
    yarn = {} if config.yarn is None else {"yarn_correction_range": correction_range(config)}
    return {"components": rows, **totals(parts), **scale, **yarn, "cache_numbers_per_token": cache_numbers(config)}


def _as_text(config: BlockConfig, parts: list[Component], cache: bool) -> str:
    sums = totals(parts)
    whole = sums["total"]["parameters"]
    rows = [
        (c.name, " x ".join(map(str, c.shape)), c.dtype, f"{c.parameters:,}", format_bytes(c.bytes), "") for c in parts
    ]
    rows += [("", "", "", "", "", "")]
    rows += [
        (part, "", "", f"{n['parameters']:,}", format_bytes(n["bytes"]), f"{n['parameters'] / whole:.1%}")
        for part, n in sums.items()
    ]
    lines = [format_table(("parameter", "shape", "format", "parameters", "bytes", "share"), rows, "<<<>>>"), ""]
    lines.append("attention counts its two latent norms; block scales and rotary buffers are left out")
    lines.append(f"softmax scale {config.softmax_scale!r}")
    if config.yarn is not None:
        low, high = correction_range(config)
        lines.append(
            f"YaRN correction range {low}..{high}: of {config.qk_rope_head_dim // 2} pairs, those up to {low} keep"
            f" their frequency, from {high} on it is divided by {config.yarn.factor:g}"
        )
    if cache:
        lines += ["", _cache_text(config)]
    return "\n".join(lines)


def _cache_text(config: BlockConfig) -> str:
    numbers = cache_numbers(config)
    rows = [
        (kind, f"{n:,}", format_bytes(2 * n), format_bytes(2 * n * config.max_position_embeddings), f"{share:.1%}")
        for kind, n in numbers.items()
        for share in (n / numbers["full"],)
    ]
    headers = ("cache, one layer", "numbers a token", "bfloat16", f"{config.max_position_embeddings:,} tokens", "share")
    return format_table(headers, rows, "<>>>>")
