"""Spreading the tiles of a product over threads; numpy's loops and BLAS let go of the interpreter while they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import ModuleType
from typing import TypeVar

import numpy as np

from blocklab.xp import Array, array_module

Part = TypeVar("Part")

PART = 1 << 17
"""Elements that one thread computes at one time: enough to be worth it, few enough for its cache."""


def spread_rows(tile: Callable[[slice], None], count: int, step: int, multiple: int, xp: ModuleType) -> None:
    """Call `tile` for slices of `step` of `count` rows, on as many threads as BLAS would use; in one on a GPU.

    Every thread has the same number of tiles, of rows in multiples of `multiple`, where there are enough rows. Tiles
    must not depend on each other.
    """
    if xp is not np:
        step, threads = 8 * step, 1
    else:
        threads = worker_count()
        rounds = -(-count // (step * threads))
        step = -(-count // (rounds * threads * multiple)) * multiple
    parts = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    spread(tile, parts, threads)


def spread(call: Callable[[Part], object], parts: Sequence[Part], threads: int) -> None:
    """Call `call` for each part, on `threads` threads that warn of what the caller would be warned of.

    Calls must not depend on each other.
    """
    if threads == 1 or len(parts) <= 1:
        for part in parts:
            call(part)
    else:
        with ThreadPoolExecutor(min(threads, len(parts))) as pool:
            contexts = [copy_context() for _ in parts]  # with the caller's np.errstate
            list(pool.map(lambda context, part: context.run(call, part), contexts, parts))


def elementwise(call: Callable[..., Array], dtype: str, *arrays: Array) -> Array:
    """Return `call` of arrays of one shape, which must treat every element alike: computed in parts, on threads."""
    xp = array_module(*arrays)
    if xp is not np:
        return call(*arrays)
    out = np.empty(arrays[0].shape, dtype)
    target, flat = out.reshape(-1), [x.reshape(-1) for x in arrays]

    def fill(part: slice) -> None:
        target[part] = call(*(x[part] for x in flat))

    spread(fill, [slice(start, start + PART) for start in range(0, out.size, PART)], worker_count())
    return out


def worker_count() -> int:
    """Return how many threads to use: OPENBLAS_NUM_THREADS or OMP_NUM_THREADS, else the processors we may run on."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdecimal():
            return max(int(os.environ[name]), 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
