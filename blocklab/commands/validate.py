"""Check somebody's block, step by step from a dump of it, and name the mistake if there is one."""

from __future__ import annotations

import argparse

from blocklab.check import validate
from blocklab.commands.options import add_model_options, read_model
from blocklab.errors import InputError
from blocklab.json_file import json_text
from blocklab.numerics import RECIPES
from blocklab.store.writing import PICTURES, refuse_overwriting, require_targets


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab validate`."""
    parser.add_argument("dump", metavar="DUMP", help="safetensors or npz: `input` and what was recorded after it")
    add_model_options(parser)
    parser.add_argument(
        "--recipe",
        default="auto",
        metavar="NAME[,OPTION=VALUE]",
        help=f"auto (default: what explains the dump best), or {', '.join(RECIPES)}",
    )
    parser.add_argument("--attention", choices=("naive", "absorb"), help="default: what the dump shows")
    parser.add_argument("--plot", metavar="FILE", help="draw the error by step and query position (PNG or SVG)")
    parser.add_argument("--json", action="store_true", help="machine output")


def run(options: argparse.Namespace) -> int:
    """Validate a dump; exit code 0 for a pass, 1 for a divergence."""
    if not (options.checkpoint or options.preset):
        raise InputError("validate: expected --checkpoint DIR (or --preset NAME): which weights the dump was made with")
    if options.plot:
        require_targets(options.plot, endings=PICTURES)
        refuse_overwriting([options.plot], [options.dump, options.checkpoint])
    model, _ = read_model(options)
    report = validate(options.dump, model.weights, options.recipe, options.attention, options.layer)
    if options.plot:
        from blocklab.show.validation_plot import plot_validation

        plot_validation(report, options.plot)
    print(json_text(report.to_json()) if options.json else report.table())
    return report.exit_status
