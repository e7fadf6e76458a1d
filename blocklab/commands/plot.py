"""Draw a picture of one step of a trace, as PNG or SVG."""

from __future__ import annotations

import argparse

from blocklab.commands.options import add_model_options, read_model
from blocklab.commands.traces import open_trace
from blocklab.show.plotting import KINDS, NEED_WEIGHTS, plot
from blocklab.show.style import save
from blocklab.store.writing import PICTURES, refuse_overwriting, require_targets


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `blocklab plot`."""
    kinds = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument(
        "trace", metavar="TRACE", help="a trace of ours, or with --checkpoint or --preset another program's dump"
    )
    parser.add_argument("step", metavar="STEP", help="a step, as in attn_norm")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="ends in .png or .svg")
    parser.add_argument("--kind", choices=tuple(KINDS), metavar="KIND", help=kinds)
    parser.add_argument("--against", metavar="TRACE", help="another trace: draws the difference TRACE - other")
    parser.add_argument("--batch", type=int, default=0, metavar="B", help="which sequence (default: 0)")
    parser.add_argument("--head", type=int, metavar="H", help="one head alone")
    parser.add_argument("--token", type=int, metavar="T", help="one position alone: all heads from there")
    add_model_options(parser)


def run(options: argparse.Namespace) -> int:
    """Draw the picture and say where it is."""
    require_targets(options.output, endings=PICTURES)
    refuse_overwriting([options.output], [options.trace, options.against, options.checkpoint])
    trace = open_trace(options.trace, options)
    against = open_trace(options.against, options) if options.against else None
    weights = read_model(options, trace.metadata, options.trace)[0].weights if options.kind in NEED_WEIGHTS else None
    made = plot(
        trace,
        options.step,
        options.kind or "",
        against=against,
        weights=weights,
        batch=options.batch,
        head=options.head,
        token=options.token,
    )
    save(made, options.output)
    print(options.output)
    return 0
