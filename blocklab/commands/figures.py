"""Make all committed pictures again, with the text that says what to see in each."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from blocklab.errors import InputError
from blocklab.tables import format_bytes

MAKERS = Path(__file__).parents[2] / "figures" / "make.py"
"""What draws the pictures: in a checkout of the repository, and not in an installed package."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab figures`."""
    parser.add_argument("-o", "--output", metavar="DIR", default="figures", help="a folder (default: figures)")


def run(options: argparse.Namespace) -> int:
    """Make the pictures and list them."""
    if not MAKERS.is_file():
        raise InputError(
            f"figures: expected {MAKERS}, in a checkout that is installed with pip install -e .; found none"
        )
    sys.path.insert(0, str(MAKERS.parents[1]))
    make = importlib.import_module("figures.make")
    for path in make.make_figures(options.output):
        print(f"{path}  {format_bytes(path.stat().st_size)}")
    return 0
