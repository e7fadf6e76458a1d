"""What a trace says about the run it comes from; a foreign dump may say nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig, Yarn
from blocklab.block.steps import attention_of, steps_of
from blocklab.block.weights import weight_shapes
from blocklab.errors import InputError, brief, shown
from blocklab.numerics import Recipe, get_recipe
from blocklab.store.inputs import checked_positions, told_positions
from blocklab.store.trace import Trace


def config_of(trace: Trace) -> BlockConfig | None:
    """Return the sizes of the block, or None where the trace names none.

    Errors: InputError for a config in the metadata that is no block's.
    """
    settings = _json(trace, "config")
    if not isinstance(settings, dict):
        return None
    yarn, size = settings.get("yarn"), settings.get("weight_block_size")
    try:
        known = {"yarn": Yarn(**yarn) if yarn else None, "weight_block_size": tuple(size) if size else None}
        return BlockConfig(**(settings | known))
    except InputError as error:
        raise InputError(f"metadata config: {error}") from None
    except TypeError:
        raise InputError(f"metadata config: expected the settings of a block; found {brief(settings)}") from None


def recipe_of(trace: Trace) -> Recipe | None:
    """Return the recipe of the run, or None where the trace names none that exists."""
    try:
        return get_recipe(trace.metadata["recipe"]) if "recipe" in trace.metadata else None
    except InputError:
        return None


def form_of(trace: Trace) -> str:
    """Return "naive" or "absorb", from the metadata or else from the steps."""
    return trace.metadata.get("attention", attention_of(trace))


LONGEST = 24
"""Characters of a label."""


def labels_of(trace: Trace, count: int) -> list[str] | None:
    """Return the texts of `count` positions, cut where they are long; None where the trace has none or others."""
    labels = _json(trace, "labels")
    if not isinstance(labels, list) or len(labels) != count:
        return None
    texts = (shown(str(label)) for label in labels)
    return [text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in texts]


def positions_of(trace: Trace) -> np.ndarray | None:
    """Return the positions of the tokens, [T] or [B, T], or None where the trace does not say.

    Errors: InputError for what is no position for each token: integers from 0 on.
    """
    if "position_ids" in trace.given:
        where, found = "position_ids", np.asarray(trace.given["position_ids"])
    elif "positions" in trace.metadata:
        where = "metadata positions"
        found = told_positions(trace.metadata["positions"], where)
    else:
        return None
    sizes = {axis: n for step, value in trace.headers() for axis, n in zip(step.axes, value.shape, strict=False)}
    return checked_positions(found, sizes["B"], sizes["T"], where) if "T" in sizes else found


def parameters_of(trace: Trace, step: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of the parameters that a step uses; no shape where the trace has no config."""
    config = config_of(trace)
    weight = steps_of(config, form_of(trace))[step].weight
    if weight is None:
        return []
    return [(weight, weight_shapes(config)[weight] if config else ())]


def _json(trace: Trace, key: str) -> Any:
    try:
        return json.loads(trace.metadata[key])
    except (KeyError, ValueError, RecursionError):
        return None
