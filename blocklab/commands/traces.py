"""Opening what `--trace` names: a trace of ours, or another program's dump of a block that the options name."""

from __future__ import annotations

import argparse

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.commands.options import NO_LAYER
from blocklab.errors import InputError
from blocklab.show.about import config_of, positions_of
from blocklab.show.explore_dump import trace_of_dump
from blocklab.store.checkpoint import checkpoint_config
from blocklab.store.lazy import header
from blocklab.store.trace import NotATrace, Trace, load_trace


def open_trace(path: str, options: argparse.Namespace, strict: bool = True) -> Trace:
    """Read a trace; a file that is none of ours is read as a dump of the block of --checkpoint or --preset.

    Without these, only tensors that are named as our steps are shown.
    strict  refuse steps that are not in their axes, and a config or positions that are none
    Errors: InputError, naming the file, where no name means a step.
    """
    trace = _opened(path, options)
    if strict:
        require_axes(trace, path)
        _require_metadata(trace, path)
    return trace


def _require_metadata(trace: Trace, path: str) -> None:
    try:
        config_of(trace)
        positions_of(trace)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def require_axes(trace: Trace, path: str) -> None:
    """Refuse steps that are no floats in their axes, and quantised inputs that are no codes with scales.

    The axes are those of the table of steps; each is of one size throughout.
    Errors: InputError naming the file and the step.
    """
    sizes: dict[str, int] = {}
    for step, value in trace.headers():
        fine = value.dtype.kind == "f" and value.ndim == len(step.axes) and value.size > 0
        if not fine or any(sizes.setdefault(a, n) != n for a, n in zip(step.axes, value.shape, strict=True)):
            expected = ", ".join(f"{axis} {sizes[axis]}" if axis in sizes else axis for axis in step.axes)
            raise InputError(
                f"{path}: {step.name}: expected floats [{expected}]; found {value.dtype}{list(value.shape)};"
                " for a dump with other axes, say of which block: --checkpoint DIR"
            )
    for name in trace:
        pair = name.removesuffix(".codes") + ".scale"
        if not name.endswith(".in.codes") or pair not in trace:
            continue
        codes, scale = header(trace.arrays, name), header(trace.arrays, pair)
        kinds = codes.dtype == np.uint8 and scale.dtype.kind == "f"
        if not (kinds and scale.ndim == codes.ndim >= 2 and codes.size and scale.size):
            raise InputError(
                f"{path}: {name}: expected uint8 codes [.., K] beside scales [.., groups]; found"
                f" {codes.dtype}{list(codes.shape)} and {scale.dtype}{list(scale.shape)}"
            )


def require_block(trace: Trace, config: BlockConfig, path: str) -> None:
    """Refuse another block than the one that the trace says it is of."""
    traced = config_of(trace)
    if traced is not None and traced != config:
        raise InputError(
            f"{path}: the trace is of another block than these weights: name it by --preset or --checkpoint"
        )


def _opened(path: str, options: argparse.Namespace) -> Trace:
    trace: Trace | None = None
    try:
        trace = load_trace(path)
    except NotATrace as error:
        if not (options.checkpoint or options.preset):
            hint = "for a dump with other names, say of which block: --checkpoint DIR"
            raise InputError(f"{error}; {hint}") from None
    else:
        if not (options.checkpoint or options.preset):
            if options.layer is not None and "checkpoint" not in trace.metadata:
                raise InputError(NO_LAYER)
            return trace
    config = checkpoint_config(options.checkpoint) if options.checkpoint else BlockConfig.preset(options.preset)
    if trace is not None and "config" in trace.metadata:
        require_block(trace, config, path)
        return trace
    return trace_of_dump(path, config, options.layer)[0]
