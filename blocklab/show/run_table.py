"""The table of a run, printed line by line as the steps are computed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from blocklab.block.config import BlockConfig
from blocklab.block.steps import STEPS, step_of
from blocklab.numerics import Recipe, decode
from blocklab.store.accounting import step_shapes
from blocklab.store.statistics import Statistics, statistics
from blocklab.store.trace import axes_text, select_steps, value_digest, value_formats
from blocklab.tables import format_number, format_row
from blocklab.xp import Array

_HEADERS = ("step", "shape", "format", "ms", "rms", "max", "what happens")
_ALIGN = "<<<>>><"


class RunTable:
    """A tap that prints a line for every step as it is computed, and keeps what it printed for JSON."""

    def __init__(
        self, steps: str, recipe: Recipe, widest: int, digest: bool, write: Callable[[str], object] | None
    ) -> None:
        """Print the steps that match `steps` through `write` (None: print nothing).

        widest  the length of the longest shape text, which sets the width of its column
        digest  print the sha256 of each value instead of its note
        """
        self.wants = select_steps(steps)
        self.recipe = recipe
        self.digest = digest
        self.write = write
        self.rows: list[dict[str, Any]] = []
        self.widths = (max(map(len, STEPS)), widest, len("bfloat16"), 8, 9, 9, 0)
        self.clock = time.perf_counter()
        self._print((*_HEADERS[:-1], "sha256" if digest else _HEADERS[-1]))

    def __call__(self, name: str, value: Array) -> Array:
        """Print the line of one value and return it."""
        milliseconds = (time.perf_counter() - self.clock) * 1e3
        numbers = statistics(decode(value, self.recipe.activation_format) if name.endswith(".in.codes") else value)
        stored = value_formats({name: value}, self.recipe)[name]
        sha256 = value_digest(value) if self.digest else None
        self.rows.append(
            {"step": name, "axes": list(step_of(name).axes), "format": stored, "milliseconds": milliseconds}
            | asdict(numbers)
            | ({"sha256": sha256} if sha256 else {})
        )
        self._print(
            (
                *(name, axes_text(name, value.shape), stored, f"{milliseconds:.2f}"),
                *(format_number(numbers.rms), format_number(numbers.peak), sha256 or _note(name, numbers)),
            )
        )
        self.clock = time.perf_counter()
        return value

    def _print(self, cells: tuple[str, ...]) -> None:
        if self.write:
            self.write(format_row(cells, self.widths, _ALIGN))


def widest_shape(config: BlockConfig, B: int, T: int, S: int) -> int:
    """Return the length of the longest shape text of a run."""
    return max(len(axes_text(name, shape)) for name, shape in step_shapes(config, B, T, S).items())


def _note(name: str, numbers: Statistics) -> str:
    note = step_of(name).note
    if name.endswith(".in.codes"):
        note = f"input of {name.partition('.')[0]}, quantised"
    if name.endswith(".in.scale"):
        note = f"scales of {name.partition('.')[0]}.in.codes"
    if numbers.hidden:
        note += f" ({numbers.hidden / max(1, _size(numbers.shape)):.0%} hidden)"
    if numbers.nan:
        note += f" ({numbers.nan} NaN)"
    return note


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
