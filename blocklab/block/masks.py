"""Masks: which query may see which key.

A boolean mask says True where a query may look. An additive mask is added to the scores: 0 where it may
look, -inf or the lowest finite number where not. Shapes: [T, S], [B, T, S] or [B, 1 or H, T, S].
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from blocklab.errors import InputError, brief
from blocklab.numerics.options import is_count
from blocklab.xp import Array, array_module


def causal_mask(T: int, S: int | None = None) -> np.ndarray:
    """Return bool [T, S]: query i of the last T positions sees keys 0 .. S - T + i.

    S defaults to T; with a cache S counts the cached keys too, and the mask is aligned lower right.
    Errors: InputError for S < T, and for sizes that are not integers.
    """
    S = T if S is None else S
    if not is_count(T, 0) or not is_count(S, 0) or S < T:
        raise InputError(f"causal mask: expected integers 0 <= T <= S, found T={brief(T)}, S={brief(S)}")
    T, S = int(T), int(S)
    with _within_memory(f"causal mask: [T, S] = [{T}, {S}]"):
        return np.tri(T, S, S - T, dtype=bool)


def padding_mask(left_padding: Array, S: int) -> np.ndarray:
    """Return bool [B, 1, 1, S]: True for keys that are real, False for the first left_padding[b].

    Errors: InputError for padding or a length that is not a non-negative integer.
    """
    return (_after_padding("padding mask: S", left_padding, S) >= 0)[:, None, None, :]  # [B, 1, 1, S]


def padded_positions(left_padding: Array, T: int) -> np.ndarray:
    """Return int [B, T]: positions that count from the first real token; padded places get 0.

    Errors: InputError for padding or a length that is not a non-negative integer.
    """
    return np.maximum(_after_padding("padded positions: T", left_padding, T), 0)


def _after_padding(label: str, left_padding: Array, count: int) -> np.ndarray:
    """Return int [B, count]: how far each place is behind the first real one."""
    try:
        padding = np.asarray(left_padding)
    except (ValueError, TypeError):  # ragged lists
        padding = np.asarray(None)
    if padding.ndim != 1 or padding.dtype.kind not in "iu" or (padding.size and not (padding >= 0).all()):
        what = label.partition(":")[0]
        raise InputError(f"{what}: left_padding must be non-negative integers [B]; found {brief(left_padding)}")
    if not is_count(count, 0):
        raise InputError(f"{label}: expected a non-negative integer, found {brief(count)}")
    with _within_memory(f"{label} = {count}"):
        return np.arange(int(count)) - padding.astype(np.int64)[:, None]


@contextmanager
def _within_memory(what: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, ValueError):  # ValueError: more than an array can have
        raise InputError(f"{what} does not fit into memory: take fewer tokens") from None


HIDDEN = -32752.0
"""Half the lowest finite float16: what a mask adds from here down hides, and so is a masked score that far down."""


def as_boolean(mask: Array) -> Array:
    """Return a mask as booleans: True where an additive mask does not hide, though it may bias.

    Everything from HIDDEN down counts as hidden.
    Errors: InputError for integers, and for floats that look like 0/1 flags.
    """
    check_mask(mask)
    return mask if mask.dtype.kind == "b" else mask > HIDDEN


def hide(scores: Array, mask: Array) -> Array:
    """Return scores with -inf where a boolean mask hides, or with an additive mask added.

    A row that is hidden everywhere gives a pattern of zeros under -inf, and of 1/S under the lowest finite number of
    the format that the sum is stored in (lower ones are stored as -inf).
    """
    if mask.dtype.kind == "b":
        return array_module(scores, mask).where(mask, scores, scores.dtype.type(-float("inf")))
    return scores + mask.astype(scores.dtype, copy=False)


def hidden_as_infinity(scores: Array) -> Array:
    """Return masked scores with -inf wherever they are hidden, whatever number hides them."""
    low = scores <= HIDDEN
    return array_module(scores).where(low, scores.dtype.type(-float("inf")), scores) if low.any() else scores


def combine_masks(mask: Array, *others: Array) -> Array:
    """Return the boolean mask that lets through what all masks let through.

    Additive masks are combined as booleans, since two lowest finite numbers add up to -inf.
    Errors: InputError for masks of unclear meaning, and for shapes that do not broadcast.
    """
    combined, *fitted = (_head_axis(as_boolean(m)) for m in (mask, *others))
    try:
        np.broadcast_shapes(combined.shape, *(m.shape for m in fitted))
    except ValueError:
        found = " and ".join(str(list(m.shape)) for m in (mask, *others))
        raise InputError(f"combine masks: expected shapes that broadcast, found {found}") from None
    for other in fitted:
        combined = combined & other
    return combined


def check_mask(mask: Array) -> None:
    """Refuse a mask whose meaning is unclear: integers, floats that look like 0/1 flags, NaN, +inf."""
    kind = getattr(getattr(mask, "dtype", None), "kind", None)
    if kind not in ("b", "f"):
        found = getattr(mask, "dtype", type(mask).__name__)
        raise InputError(
            f"mask: expected booleans (True = may look) or floats to add (0 and -inf); found {found}."
            " Use causal_mask(T), or convert flags with .astype(bool)"
        )
    if kind == "f":
        xp = array_module(mask)
        if bool(xp.any(xp.isnan(mask))) or bool(xp.any(mask > 0)):
            raise InputError(
                "mask: an additive mask is 0 where a query may look and negative where not; found positive"
                " values or NaN. If 1 means may look, pass mask.astype(bool); if 1 means hidden, pass mask == 0"
            )


def fit_mask(mask: Array, B: int, H: int, T: int, S: int) -> Array:
    """Return `mask` with four axes that broadcast to [B, H, T, S].

    Errors: InputError with both shapes if it does not fit.
    """
    check_mask(mask)
    fitted = _head_axis(mask)
    sizes = (B, H, T, S)
    fits = fitted.ndim == 4 and all(m in (1, n) for m, n in zip(fitted.shape, sizes, strict=True))
    if not fits or fitted.shape[3] != S:
        raise InputError(
            f"mask: expected [T, S] = [{T}, {S}], [B, T, S] or [B, 1 or H, T, S] with B={B}, H={H};"
            f" found {list(mask.shape)}"
        )
    return fitted


def _head_axis(mask: Array) -> Array:
    if mask.ndim == 2:
        return mask[None, None]  # [1, 1, T, S]
    return mask[:, None] if mask.ndim == 3 else mask  # [B, 1, T, S]
