"""Opening what `--trace` names: a trace of ours, or another program's dump of a block that the options name."""

from __future__ import annotations

import argparse

from blocklab.block.config import BlockConfig
from blocklab.errors import InputError
from blocklab.show.explore_dump import trace_of_dump
from blocklab.store.checkpoint import checkpoint_config
from blocklab.store.trace import Trace, load_trace


def open_trace(path: str, options: argparse.Namespace) -> Trace:
    """Read a trace; a file that is none of ours is read as a dump of the block of --checkpoint or --preset.

    Without these, only tensors that are named as our steps are shown.
    Errors: InputError, naming the file, where no name means a step.
    """
    try:
        trace = load_trace(path)
    except InputError as error:
        if "expected a trace" not in str(error):
            raise
        if not (options.checkpoint or options.preset):
            hint = "for a dump with other names, say of which block: --checkpoint DIR"
            raise InputError(f"{error}; {hint}") from None
    else:
        if "config" in trace.metadata or not (options.checkpoint or options.preset):
            return trace
    config = checkpoint_config(options.checkpoint) if options.checkpoint else BlockConfig.preset(options.preset)
    return trace_of_dump(path, config, options.layer)[0]
