"""Make all committed pictures again, with the text that says what to see in each."""

from __future__ import annotations

import argparse

from blocklab.show.figures import make_figures
from blocklab.tables import format_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab figures`."""
    parser.add_argument("-o", "--output", metavar="DIR", default="figures", help="a folder (default: figures)")


def run(options: argparse.Namespace) -> int:
    """Make the pictures and list them."""
    for path in make_figures(options.output):
        print(f"{path}  {format_bytes(path.stat().st_size)}")
    return 0
