"""Bringing a tensor of somebody else's dump into the axes of its step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blocklab.block.steps import STEPS
from blocklab.errors import InputError

_LAYOUTS = {
    ("B", "T", "W"): ("B T W", "T B W", "BT W"),
    ("B", "T", "H", "W"): ("B T H W", "B T HW", "B H T W", "T B HW", "T B H W", "BT HW", "BT H W", "BH T W"),
    ("B", "H", "T", "S"): ("B H T S", "BH T S", "B T H S"),
}
"""Layouts that are tried, best known first; letters together are one axis, and singleton axes do not count."""


@dataclass(frozen=True)
class Reading:
    """One way to read a tensor as a step: the values in the step's axes, and how they got there."""

    how: str
    values: np.ndarray


def readings(step: str, array: np.ndarray, target: tuple[int, ...], R: int | None, label: str) -> list[Reading]:
    """Return every way to read `array` as `step` of shape `target`, the plainest first.

    R  rotary width of the last axis, where that is known

    Several remain where two axes have the same size, and for a rotary part, which may be in half-split order;
    whoever has values to compare with picks one.
    Errors: InputError with both shapes where none fits.
    """
    found: list[Reading] = []
    for how, values in _in_layouts(step, array, target):
        found.append(Reading(how, values))
        if R is not None and STEPS[step].axes[-1].endswith("R"):
            interleaved = _interleave(values, R)
            found.append(Reading(", ".join(filter(None, (how, "rotary part in half-split order"))), interleaved))
    if not found:
        expected = ", ".join(f"{axis} {size}" for axis, size in zip(STEPS[step].axes, target, strict=True))
        raise InputError(f"{label}: expected {step} [{expected}], heads flattened or not; found {list(array.shape)}")
    return found


def _in_layouts(step: str, array: np.ndarray, target: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    axes = tuple("T" if axis == "S" and STEPS[step].axes[1] == "S" else axis for axis in STEPS[step].axes)
    letters = axes if axes == ("B", "H", "T", "S") else (*axes[:-1], "W")
    size = dict(zip(letters, target, strict=True))
    seen: list[tuple[int, ...]] = []
    for layout in _LAYOUTS[letters]:
        order = layout.replace(" ", "")
        grouped = tuple(math.prod(size[letter] for letter in axis) for axis in layout.split())
        if _squeezed(array.shape) != _squeezed(grouped) or array.size != math.prod(target):
            continue
        # Two layouts that differ by singleton axes only are the same reading.
        permutation = tuple(order.index(letter) for letter in letters if size[letter] > 1)
        if permutation in seen:
            continue
        seen.append(permutation)
        values = array.reshape([size[letter] for letter in order]).transpose([order.index(a) for a in letters])
        yield ("" if array.shape == target else f"from {list(array.shape)} as [{layout}]"), values
    if step == "k_rot" and (shared := _same_for_all_heads(array, target)) is not None:
        yield f"from {list(array.shape)}, the same for all heads", shared


def _same_for_all_heads(array: np.ndarray, target: tuple[int, ...]) -> np.ndarray | None:
    """Return one head's rotary key of an array that repeats it for every head, or None."""
    for axis in (2, 1):
        if array.ndim == 4 and array.shape[:axis] + array.shape[axis + 1 :] == target:
            one = array.take(0, axis)
            if np.array_equal(np.broadcast_to(np.expand_dims(one, axis), array.shape), array, equal_nan=True):
                return one
    return None


def _interleave(values: np.ndarray, R: int) -> np.ndarray:
    """Return the values with the rotary part taken from half-split order (all first, then all second of a pair)."""
    rotary = values[..., -R:]
    pairs = np.stack([rotary[..., : R // 2], rotary[..., R // 2 :]], axis=-1)  # [..., R/2, 2]
    return np.concatenate([values[..., :-R], pairs.reshape(rotary.shape)], axis=-1)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
