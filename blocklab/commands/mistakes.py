"""List the catalogue of mistakes that validate looks for: what each does and where it shows."""

from __future__ import annotations

import argparse

from blocklab.check import catalogue, catalogue_table
from blocklab.json_file import json_text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab mistakes`."""
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Print the catalogue."""
    print(json_text(catalogue()) if options.json else catalogue_table())
    return 0
