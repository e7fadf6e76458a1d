"""How the inputs of linears look in FP8: which codes they use, what is lost, and how the scales vary."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from blocklab.errors import InputError
from blocklab.numerics import quantize
from blocklab.show.explore_pack import Packer, choose_reduction, reduce
from blocklab.show.facts import fp8_facts, quantised_input
from blocklab.show.wiring import Wire
from blocklab.store.trace import Trace


def fp8_views(trace: Trace, wires: dict[str, Wire], packer: Packer, limit: int) -> dict[str, dict[str, Any]]:
    """Return, for each linear, how its input is used in FP8.

    wires  how each step of the diagram comes about
    Where the run did not quantise, the input is quantised as the FP8 recipes would, and the view says so.
    """
    views = {}
    for name, wire in wires.items():
        if wire.kind != "linear":
            continue
        recorded = _sound(quantised_input(trace, name))
        found = recorded or _would_be(trace, wire.inputs[0])
        if found is None:
            continue
        codes, scale = found
        views[name] = {
            "input": wire.inputs[0],
            "recorded": recorded is not None,
            "codes": np.bincount(codes.reshape(-1), minlength=256).tolist(),
            **asdict(fp8_facts(codes, scale)),
            "picture": _scale_picture(scale, packer, limit),
        }
    return views


def _sound(found: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return codes and scales if they are that: a file may hold anything under their names."""
    if found is None:
        return None
    codes, scale = found
    fine = codes.dtype == np.uint8 and codes.size and scale.size and np.isfinite(scale).all() and scale.min() > 0
    return found if fine else None


def _would_be(trace: Trace, source: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Quantise a step [B, T, ...] per token, in groups of 128."""
    value = trace.get(source)
    if value is None or value.dtype.kind != "f" or value.size == 0 or value.ndim < 3:
        return None
    try:
        return _sound(quantize(value.reshape(*value.shape[:2], -1).astype(np.float32, copy=False), block=(1, 128)))
    except InputError:
        return None


def _scale_picture(scale: np.ndarray, packer: Packer, limit: int) -> dict[str, Any]:
    """Return the base-2 logarithms of scales [..., T, groups], packed as [B, 1, T, groups]."""
    logs = np.log2(scale.astype(np.float64))
    grid = logs.reshape(-1, 1, *logs.shape[-2:]) if logs.ndim > 1 else logs.reshape(1, 1, 1, -1)
    how = choose_reduction(grid.shape, limit, square=False)
    return packer.values(reduce(grid, how)) | {"every": [how.rows, how.columns], "sequences": how.sequences}
