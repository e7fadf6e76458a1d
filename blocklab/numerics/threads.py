"""Spreading the tiles of a product over threads; numpy's loops and BLAS let go of the interpreter while they run."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np


def spread_rows(tile: Callable[[slice], None], count: int, step: int, multiple: int, xp: ModuleType) -> None:
    """Call `tile` for slices of `step` of `count` rows, on as many threads as BLAS would use; in one on a GPU.

    Few rows are shared out evenly, in multiples of `multiple`. Tiles must not depend on each other.
    """
    if xp is not np:
        step, threads = 8 * step, 1
    else:
        threads = worker_count()
        share = -(-count // threads)
        step = min(step, -(-share // multiple) * multiple)
    parts = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    if threads == 1 or len(parts) == 1:
        for part in parts:
            tile(part)
    else:
        with ThreadPoolExecutor(min(threads, len(parts))) as pool:
            list(pool.map(tile, parts))


def worker_count() -> int:
    """Return how many threads to use: OPENBLAS_NUM_THREADS or OMP_NUM_THREADS, else the processors we may run on."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return max(int(os.environ[name]), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
