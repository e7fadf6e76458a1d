"""A dump of somebody's implementation as a trace, for the explorer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from blocklab.block.config import BlockConfig
from blocklab.block.steps import STEPS
from blocklab.check.dump import Dump, Matched, read_dump
from blocklab.store.statistics import statistics
from blocklab.store.trace import Trace


def trace_of_dump(path: str | Path, config: BlockConfig, layer: int | None = None) -> tuple[Trace, Dump]:
    """Return a dump's tensors under the names of our steps, in our axes, and the dump.

    Where a tensor can be read in several ways, the plainest is shown. The metadata says how each was matched and
    what was not. Errors: InputError, as `read_dump`.
    """
    dump = read_dump(path, config, layer)
    first = {step: dump.of(step)[0] for step in STEPS if dump.of(step)}
    values = {step: match.readings[0].values for step, match in first.items()}
    if "resid_pre" not in values:
        values = {"resid_pre": dump.x, **values}
    metadata = {**dump.metadata, "config": json.dumps(asdict(config))}
    metadata |= {f"shown as {step}": _how(match) for step, match in first.items()}
    if dump.not_compared:
        metadata["not shown"] = "; ".join(f"{entry.dump_name}: {entry.why}" for entry in dump.not_compared)
    return Trace(
        values,
        {name: statistics(value) for name, value in values.items()},
        {name: dump.formats.get(match.dump_name, "") for name, match in first.items()},
        dump.given,
        metadata,
    ), dump


def _how(match: Matched) -> str:
    reading = match.readings[0].how
    several = f", the plainest of {len(match.readings)} readings" if len(match.readings) > 1 else ""
    return f"{match.dump_name}: {match.how}{f', {reading}' if reading else ''}{several}"
