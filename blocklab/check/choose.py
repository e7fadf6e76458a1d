"""Which recipe and which form of attention a dump was computed with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blocklab.block.weights import BlockWeights
from blocklab.check.compare import StepResult, check
from blocklab.check.dump import Dump
from blocklab.check.given import Given, given_by
from blocklab.check.run import Run
from blocklab.errors import InputError
from blocklab.numerics import RECIPES, Recipe, get_recipe
from blocklab.store.trace_file import narrowed

NEAR = 0.05
"""Relative error of a step that another recipe may explain: FP8 and float64 are closer than this."""

TOKENS = 16
"""Tokens of the first sequence on which recipes are tried."""


@dataclass(frozen=True)
class Choice:
    """A recipe and a form of attention, and how well they explain the first tokens of a dump.

    failing  steps that fail locally, or are rounded otherwise than the recipe says
    total    steps compared
    """

    recipe: Recipe
    attention: str
    failing: int
    total: int
    unlike: float

    @property
    def rank(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.failing, self.unlike


def make_run(dump: Dump, weights: BlockWeights, recipe: Recipe, attention: str) -> tuple[Run, Given]:
    """Return the run that a dump claims to be."""
    given = given_by(dump, weights.config, recipe)
    prefill = dump.metadata.get("prefill", "")
    run = Run(dump.x, given.positions, given.R, given.M, weights, recipe, attention, given.cache)
    return run.change(prefill=int(prefill) if prefill.isdecimal() and len(prefill) < 10 else None), given


def storage_of(dump: Dump) -> str:
    """Return "bfloat16" if most tensors of the dump hold bfloat16 numbers only, else "float32" or "float64".

    Most, since an implementation that stores bfloat16 may well show a float32 value from inside a step.
    """
    arrays = [match.readings[0].values for match in dump.matched]
    if 2 * sum(map(_on_bfloat16_grid, arrays)) > len(arrays):
        return "bfloat16"
    wide = [array.dtype == np.float64 and not _fits_float32(array) for array in arrays]
    return "float64" if 2 * sum(wide) > len(arrays) else "float32"


def foreign_storage(dump: Dump, recipe: Recipe) -> str | None:
    """Return the format of the dump's values where the recipe would not give such values, else None."""
    storage = storage_of(dump)
    narrower = storage == "bfloat16" and recipe.storage == "float16"
    return None if storage == recipe.storage or narrower else storage


def _on_bfloat16_grid(array: np.ndarray) -> bool:
    return narrowed(array, "bfloat16") is not None


def _fits_float32(array: np.ndarray) -> bool:
    return narrowed(array, "float32") is not None


def attention_forms(dump: Dump) -> tuple[str, ...]:
    """Return the form of attention that a dump names or shows; both where it does neither."""
    named = dump.metadata.get("attention")
    if named in ("naive", "absorb"):
        return (named,)
    if dump.steps & {"q_absorbed", "z_latent"}:
        return ("absorb",)
    return ("naive",) if dump.steps & {"kv_up", "k_nope", "v"} else ("naive", "absorb")


def recipes_for(dump: Dump, weights: BlockWeights) -> list[Recipe]:
    """Return the recipes whose storage format the values of the dump have."""
    storage = storage_of(dump)
    quantised = all(w.scale is not None for name, w in weights.named().items() if not name.endswith("norm.weight"))
    return [r for r in RECIPES.values() if r.storage == storage and (quantised or not r.fp8_linear)]


def choose(
    dump: Dump, weights: BlockWeights, recipes: Sequence[str | Recipe], attentions: Sequence[str]
) -> list[Choice]:
    """Try recipes and forms of attention on the first tokens of a dump; the best first.

    The slow emulated tensor core is tried only where nothing else explains every step. Of several recipes, those that
    the weights do not allow are left out.
    """
    small = dump.first_tokens(TOKENS)
    found: list[Choice] = []
    for recipe in sorted(map(get_recipe, recipes), key=lambda r: r.accumulate == "hopper"):
        if recipe.accumulate == "hopper" and any(choice.failing == 0 for choice in found):
            continue
        try:
            found += _tried(dump, small, weights, recipe, attentions)
        except InputError:
            if len(recipes) == 1:
                raise
    return sorted(found, key=lambda choice: choice.rank)


def _tried(
    dump: Dump, small: Dump, weights: BlockWeights, recipe: Recipe, attentions: Sequence[str]
) -> Iterator[Choice]:
    for attention in attentions:
        run, given = make_run(dump, weights, recipe, attention)
        results = check(small, run.first_tokens(TOKENS), given.their_table, end_to_end=False)
        failing = sum(not r.local.passed or r.local.suspect for r in results)
        yield Choice(recipe, attention, failing, len(results), _unlike(results))


def _unlike(results: Sequence[StepResult]) -> float:
    """Return the mean error of the steps in units of the storage format's last place, each at most one."""
    return float(np.mean([min(1.0, (1 - r.local.measures.equal) * r.local.measures.p99_ulp) for r in results]))
