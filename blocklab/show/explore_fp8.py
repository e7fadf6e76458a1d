"""How the inputs of linears look in FP8: which codes they use, what is lost, and how the scales vary."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklab.block.steps import Step
from blocklab.errors import InputError
from blocklab.numerics import Format, decode, get_format, quantize
from blocklab.show.explore_pack import Packer, choose_reduction, reduce
from blocklab.show.facts import quantised_input
from blocklab.store.trace import Trace


def fp8_views(trace: Trace, wires: dict[str, Step], packer: Packer, limit: int) -> dict[str, dict[str, Any]]:
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
            **code_use(codes, _format_of(trace, name)),
            "scale_min": float(scale.min()),
            "scale_max": float(scale.max()),
            "picture": _scale_picture(scale, packer, limit),
        }
    return views


def code_use(codes: np.ndarray, fmt: Format) -> dict[str, Any]:
    """Return how often each of the 256 codes occurs, what the codes are, and the shares that say what is lost.

    values     value of each code without its sign; None for infinity and NaN
    subnormal  codes below the smallest normal number and not zero, which have fewer digits
    largest    codes of the largest number
    """
    counts = np.bincount(codes.reshape(-1), minlength=256)
    magnitudes = counts[:128] + counts[128:]
    values = np.asarray(decode(np.arange(128, dtype=np.uint8), fmt))
    known = np.isfinite(values)
    total = int(counts.sum())
    return {
        "format": fmt.name,
        "codes": counts.tolist(),
        "values": [float(value) if fine else None for value, fine in zip(values, known, strict=True)],
        "first_normal": 1 << fmt.fraction_bits,
        "largest_code": int(known.sum()) - 1,
        "zero": float(magnitudes[0] / total),
        "subnormal": float(magnitudes[1 : 1 << fmt.fraction_bits].sum() / total),
        "largest": float(magnitudes[known.sum() - 1] / total),
        "special": int(magnitudes[~known].sum()),
    }


def _format_of(trace: Trace, name: str) -> Format:
    """Return the format of a linear's quantised input: e4m3fn, unless the trace says e5m2."""
    return get_format("e5m2" if trace.formats.get(f"{name}.in.codes") == "e5m2" else "e4m3fn")


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
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, which cannot be quantised
        narrow = value.astype(np.float32, copy=False)
    try:
        return _sound(quantize(narrow.reshape(*narrow.shape[:2], -1), block=(1, 128)))
    except InputError:
        return None


def _scale_picture(scale: np.ndarray, packer: Packer, limit: int) -> dict[str, Any]:
    """Return the base-2 logarithms of scales [..., T, groups], packed as [B, 1, T, groups]."""
    logs = np.log2(scale.astype(np.float64))
    grid = logs.reshape(-1, 1, *logs.shape[-2:]) if logs.ndim > 1 else logs.reshape(1, 1, 1, -1)
    how = choose_reduction(grid.shape, limit, square=False)
    return packer.values(reduce(grid, how)) | {"every": [how.rows, how.columns], "sequences": how.sequences}
