"""Write a seeded checkpoint in the published layout, so that nobody needs a download to run full size."""

from __future__ import annotations

import argparse
import time

from blocklab.block.config import PRESETS
from blocklab.errors import InputError
from blocklab.store.synth_checkpoint import write_synthetic
from blocklab.tables import format_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab synth`."""
    parser.add_argument("directory", metavar="DIR", help="a new or empty folder")
    parser.add_argument("--preset", choices=PRESETS, default="kimi-k2-small", help="default: kimi-k2-small")
    parser.add_argument("--dtype", choices=("fp8", "bfloat16"), default="fp8", help="of the matrices (default: fp8)")
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="how many files (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")


def run(options: argparse.Namespace) -> int:
    """Write the checkpoint and say what was written."""
    if options.seed < 0:
        raise InputError(f"seed: expected 0 or more; found {options.seed}")
    start = time.perf_counter()
    size = write_synthetic(options.directory, options.preset, options.dtype, options.seed, options.shards)
    seconds = time.perf_counter() - start
    files = "1 file" if options.shards == 1 else f"{options.shards} files"
    print(f"{options.directory}: {options.preset}, {options.dtype}, {files}, {format_bytes(size)}, {seconds:.1f} s")
    return 0
