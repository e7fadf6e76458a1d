"""A step of a trace as a matrix with named axes: what a heat map shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocklab.block.steps import AXES, STEPS, step_of
from blocklab.errors import InputError
from blocklab.show.about import labels_of
from blocklab.show.pooling import masked_to_infinity
from blocklab.store.trace import Trace

_SHORT = {"B": "batch", "T": "position", "S": "key position", "H": "head"}


@dataclass(frozen=True)
class View:
    """A matrix and what its axes are.

    row_labels, column_labels  texts of the positions, where the trace has some
    every    columns between two heads that lie side by side; 0 where columns are one axis
    """

    values: np.ndarray
    rows: str
    columns: str
    title: str
    row_labels: list[str] | None = None
    column_labels: list[str] | None = None
    every: int = 0

    def column_name(self, column: int) -> str:
        """Return "426", or "head 3, 12" where heads lie side by side."""
        return f"head {column // self.every}, {column % self.every}" if self.every else str(column)


def view(trace: Trace, name: str, batch: int = 0, head: int | None = None, token: int | None = None) -> View:
    """Return a step [B, T, X], [B, T, H, X] or [B, H, T, S] as a matrix.

    head   one head: positions down, its channels (or keys) across
    token  one position: heads down, channels (or keys) across
    Without either, positions are down and all channels across, head beside head.
    Errors: InputError for a batch entry, head or token that the step does not have.
    """
    value = masked_to_infinity(name, trace[name])
    if name != "attn_masked" and value.dtype.kind == "f":  # nothing is hidden: infinities are as wrong as NaN
        value = np.where(np.isinf(value), np.nan, value)
    title = f"{name}: {step_of(name).note}" if name in STEPS else name
    axes = STEPS[name].axes if name in STEPS else ()
    if value.ndim not in (3, 4) or (name in STEPS and len(axes) != value.ndim):
        return View(value.reshape(-1, value.shape[-1] if value.ndim else 1), "row", "column", title)
    _check(name, "batch", batch, value.shape[0])
    value = value[batch]
    if value.ndim == 2:
        if head is not None:
            raise InputError(f"{name}: it has no heads to choose from: its axes are {STEPS[name].shape}")
        axis = _meaning(axes[2]) if axes else "channel"
        if token is not None:
            _check(name, "token", token, value.shape[0])
            return View(value[token][None], f"position {token}", axis, title)
        return View(value, "position", axis, title, labels_of(trace, value.shape[0]))
    attention = bool(axes) and axes[1] == "H"
    by_head = value if attention else value.transpose(1, 0, 2)  # [H, T, X]
    return _heads(trace, name, by_head, axes, attention, head, token, title)


def _heads(
    trace: Trace,
    name: str,
    value: np.ndarray,
    axes: tuple[str, ...],
    attention: bool,
    head: int | None,
    token: int | None,
    title: str,
) -> View:
    H, T, X = value.shape
    across = _meaning(axes[3]) if axes else "channel"
    keys = labels_of(trace, X) if attention else None
    queries = labels_of(trace, T)
    if head is not None:
        _check(name, "head", head, H)
        return View(value[head], "position", across, f"{title}, head {head}", queries, keys)
    if token is not None:
        _check(name, "token", token, T)
        label = f" {queries[token]!r}" if queries else ""
        return View(value[:, token], "head", across, f"{title}, from position {token}{label}", None, keys)
    flat = value.transpose(1, 0, 2).reshape(T, H * X)
    return View(flat, "position", f"{across}, head beside head", title, queries, None, X)


def _meaning(axis: str) -> str:
    return " + ".join(_SHORT.get(letter, f"channel of the {AXES[letter]}") for letter in axis.split("+"))


def _check(name: str, what: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise InputError(f"{name}: {what}: expected 0 to {size - 1}; found {index}")
