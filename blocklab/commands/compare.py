"""Compare two traces or dumps, step by step, without running a block."""

from __future__ import annotations

import argparse

from blocklab.check import compare
from blocklab.json_file import json_text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab compare`."""
    parser.add_argument("a", metavar="A", help="a trace or dump: what is judged")
    parser.add_argument("b", metavar="B", help="a trace or dump: the reference")
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Compare two files; exit code 0 where they agree, 1 where they do not."""
    comparison = compare(options.a, options.b)
    print(json_text(comparison.to_json()) if options.json else comparison.table())
    return comparison.exit_status
