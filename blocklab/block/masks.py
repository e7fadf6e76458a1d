"""Masks: which query may see which key.

A boolean mask says True where a query may look. An additive mask is added to the scores: 0 where it may
look, -inf or the lowest finite number where not. Shapes: [T, S], [B, T, S] or [B, 1 or H, T, S].
"""

from __future__ import annotations

import numpy as np

from blocklab.errors import InputError
from blocklab.xp import Array, array_module


def causal_mask(T: int, S: int | None = None) -> np.ndarray:
    """Return bool [T, S]: query i of the last T positions sees keys 0 .. S - T + i.

    S defaults to T; with a cache S counts the cached keys too, and the mask is aligned lower right.
    Errors: InputError for S < T, and for what are no integers.
    """
    S = T if S is None else S
    if not all(isinstance(n, (int, np.integer)) for n in (T, S)) or S < T or T < 0:
        raise InputError(f"causal mask: expected integers 0 <= T <= S, found T={T!r}, S={S!r}")
    return np.tri(T, S, S - T, dtype=bool)


def padding_mask(left_padding: Array, S: int) -> np.ndarray:
    """Return bool [B, 1, 1, S]: True for keys that are real, False for the first left_padding[b]."""
    padding = np.asarray(left_padding)
    if padding.ndim != 1 or padding.dtype.kind not in "iu" or (padding.size and not (padding >= 0).all()):
        raise InputError(f"padding mask: left_padding must be non-negative integers [B]; found {left_padding!r}")
    return (np.arange(S) >= padding[:, None])[:, None, None, :]  # [B, 1, 1, S]


def padded_positions(left_padding: Array, T: int) -> np.ndarray:
    """Return int [B, T]: positions that count from the first real token; padded places get 0."""
    return np.maximum(np.arange(T) - np.asarray(left_padding).astype(np.int64)[:, None], 0)


def as_boolean(mask: Array) -> Array:
    """Return a mask as booleans: True where an additive mask does not hide, though it may bias.

    Everything from half the lowest finite float16 (-32752) down counts as hidden.
    Errors: InputError for integers, and for floats that look like 0/1 flags.
    """
    check_mask(mask)
    return mask if mask.dtype.kind == "b" else mask > -32752.0


def combine_masks(mask: Array, *others: Array) -> Array:
    """Return the boolean mask that lets through what all masks let through.

    Additive masks are combined as booleans, since two lowest finite numbers add up to -inf.
    """
    combined = _head_axis(as_boolean(mask))
    for other in others:
        combined = combined & _head_axis(as_boolean(other))
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
