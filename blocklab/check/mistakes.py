"""The catalogue of mistakes: what goes wrong in real implementations of this block, each as a variation of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocklab.check.case import Case
from blocklab.check.mistakes_activations import ACTIVATIONS
from blocklab.check.mistakes_block import BLOCK
from blocklab.check.mistakes_heads import HEADS
from blocklab.check.mistakes_mask import MASK
from blocklab.check.mistakes_rotary import ROTARY
from blocklab.check.mistakes_weights import WEIGHTS
from blocklab.check.variation import Mistake
from blocklab.errors import InputError

MISTAKES: Mapping[str, Mistake] = {
    mistake.id: mistake for mistake in (*ROTARY, *HEADS, *MASK, *BLOCK, *WEIGHTS, *ACTIVATIONS)
}
"""The catalogue by id."""


def inject(case: Case, mistake: str) -> Case:
    """Return the run with the usual form of a mistake of the catalogue.

    Errors: InputError for an id that does not exist and for a run in which the mistake cannot be made.
    """
    if mistake not in MISTAKES:
        raise InputError(f"no mistake {mistake!r}; there are {', '.join(MISTAKES)}")
    spoiled = MISTAKES[mistake].inject(case)
    if spoiled is None:
        raise InputError(f"{mistake}: this run cannot have it: {MISTAKES[mistake].where}")
    return spoiled


def catalogue() -> list[dict[str, Any]]:
    """Return id, what it does and where it shows, for every mistake: what `blocklab mistakes --json` prints."""
    return [{"mistake": m.id, "what": m.what, "where": m.where} for m in MISTAKES.values()]


def catalogue_table() -> str:
    """Return the catalogue as text: an id, and under it what it does and where it shows."""
    return "\n".join(f"{m.id}\n    {m.what}\n    shows: {m.where}" for m in MISTAKES.values())
