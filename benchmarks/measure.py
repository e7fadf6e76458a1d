"""Measuring calls and processes in turn, and the table of what came out."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

BUDGET, ROUNDS = 40.0, 7
"""Seconds that the rounds of one comparison may take together, about, and how many there are at most."""

REST = 0.03
"""Seconds between two calls, in which the idle threads of the library measured before stop spinning."""

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """One line of the table: `ours` and `theirs` in `unit`, of which the ratio counts; `target` is its largest."""

    name: str
    ours: float
    beside: str
    theirs: float
    unit: str
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


@dataclass(frozen=True)
class Process:
    """What one process took: seconds from its start to its end, and bytes resident at its peak."""

    seconds: float
    peak: int
    said: dict


def medians(calls: Sequence[Callable[[], object]], budget: float = BUDGET) -> list[float]:
    """Return the median seconds of each call, measured in turn, after a round that does not count."""
    times: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    _round(calls, [[] for _ in calls])
    rounds = round(budget / (time.perf_counter() - start))
    for _ in range(min(max(rounds, 1), ROUNDS)):
        _round(calls, times)
    return [statistics.median(of_call) for of_call in times]


def _round(calls: Sequence[Callable[[], object]], times: list[list[float]]) -> None:
    for call, of_call in zip(calls, times, strict=True):
        time.sleep(REST)
        start = time.perf_counter()
        call()
        of_call.append(time.perf_counter() - start)


def processes(commands: Sequence[Sequence[str]], rounds: int) -> list[Process]:
    """Return the medians of `python -m benchmarks.child COMMAND` for each command, run in turn `rounds` times."""
    runs = [[_process(command) for command in commands] for _ in range(rounds)]
    return [
        Process(
            statistics.median(run.seconds for run in of_command),
            int(statistics.median(run.peak for run in of_command)),
            of_command[-1].said,
        )
        for of_command in zip(*runs, strict=True)
    ]


def _process(command: Sequence[str]) -> Process:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"benchmarks.child {' '.join(command)}: exit code {done.returncode}")
    said = json.loads(done.stdout.splitlines()[-1])
    return Process(seconds, said["peak"], said)


_WIDTHS = "{:<62}{:>10}  {:<28}{:>10}{:>7}{:>7}"


def header() -> str:
    """Return the head of the table."""
    return _WIDTHS.format("what", "ours", "beside", "theirs", "ratio", "target")


def line(row: Row) -> str:
    """Return one row of the table."""
    target = "" if row.target is None else f"{row.target:.2f}"
    return _WIDTHS.format(
        row.name, _number(row.ours, row.unit), row.beside, _number(row.theirs, row.unit), f"{row.ratio:.2f}", target
    ).rstrip()


def _number(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
