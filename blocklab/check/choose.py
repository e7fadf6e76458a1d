"""Which recipe and which form of attention a dump was computed with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from blocklab.block.weights import BlockWeights
from blocklab.check.case import Case
from blocklab.check.dump import Dump
from blocklab.check.given import Given, given_by
from blocklab.check.stepwise import StepResult, check
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

    unlike   mean over the steps of the share of elements that differ, times how far in ulp, at most 1
    total    steps compared
    wrong    those that fail locally, or are rounded otherwise than the recipe says; None where that was not looked at
    """

    recipe: Recipe
    attention: str
    unlike: float = 0.0
    total: int = 0
    wrong: tuple[str, ...] | None = None

    @property
    def failing(self) -> int | None:
        """How many steps are wrong, None where that was not looked at."""
        return None if self.wrong is None else len(self.wrong)

    @property
    def words(self) -> str:
        """How much of the dump is explained."""
        return f"explains {self.total - (self.failing or 0)} of {self.total} steps of the first tokens"


def make_run(dump: Dump, weights: BlockWeights, recipe: Recipe, attention: str) -> tuple[Case, Given]:
    """Return the run that a dump claims to be."""
    given = given_by(dump, weights.config, recipe)
    prefill = dump.metadata.get("prefill", "")
    case = Case(dump.x, given.positions, given.R, given.M, weights, recipe, attention, given.cache)
    return case.change(prefill=int(prefill) if prefill.isdecimal() and len(prefill) < 10 else None), given


def storage_of(dump: Dump) -> str:
    """Return "bfloat16" or "float16" if most tensors of the dump hold such numbers only, else "float32" or "float64".

    Most, since an implementation that stores bfloat16 may well show a float32 value from inside a step.
    """
    arrays = [match.readings[0].values for match in dump.matched]
    for narrow in ("bfloat16", "float16"):
        if 2 * sum(narrowed(array, narrow) is not None for array in arrays) > len(arrays):
            return narrow
    wide = [array.dtype == np.float64 and not _fits_float32(array) for array in arrays]
    return "float64" if 2 * sum(wide) > len(arrays) else "float32"


def foreign_storage(dump: Dump, recipe: Recipe) -> str | None:
    """Return the format of the dump's values where the recipe would not give such values, else None."""
    storage = storage_of(dump)
    narrower = storage == "bfloat16" and recipe.storage == "float16"
    return None if storage == recipe.storage or narrower else storage


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
    """Return the recipes whose storage format the values of the dump have; float16 takes the place of bfloat16."""
    storage = storage_of(dump)
    if storage == "float16":
        return [RECIPES[name].replace(storage="float16") for name in ("bfloat16", "deepseek-bf16")]
    quantised = all(w.scale is not None for name, w in weights.named().items() if not name.endswith("norm.weight"))
    return [r for r in RECIPES.values() if r.storage == storage and (quantised or not r.fp8_linear)]


def choose(
    dump: Dump, weights: BlockWeights, recipes: Sequence[str | Recipe], attentions: Sequence[str]
) -> list[Choice]:
    """Try recipes and forms of attention on the first tokens of a dump; the best first, and that one judged.

    The slow emulated tensor core is tried only where nothing else explains every step.
    Errors: InputError for what the dump says of its run and cannot be: positions, mask, rotary table, cache.
    """
    all_recipes = [get_recipe(recipe) for recipe in recipes]
    quick = [r for r in all_recipes if r.accumulate != "hopper"] or all_recipes
    slow = [r for r in all_recipes if r not in quick]
    found = [_tried(dump, weights, r, attention) for r in quick for attention in attentions]
    best = _judged(dump, weights, min(found, key=lambda choice: choice.unlike))
    for recipe in slow if best.failing else ():
        with suppress(InputError):  # a tensor core cannot add products whose scales differ
            found += [_tried(dump, weights, recipe, attention) for attention in attentions]
    found.sort(key=lambda choice: choice.unlike)
    if (found[0].recipe, found[0].attention) != (best.recipe, best.attention):
        best = _judged(dump, weights, found[0])
    return [best, *found[1:]]


def _tried(dump: Dump, weights: BlockWeights, recipe: Recipe, attention: str) -> Choice:
    results = first_tokens(dump, weights, recipe, attention, judge=False)
    unlike = [min(1.0, (1 - r.local.measures.equal) * r.local.measures.p99_ulp) for r in results]
    return Choice(recipe, attention, float(np.mean(unlike)), len(results))


def _judged(dump: Dump, weights: BlockWeights, choice: Choice) -> Choice:
    results = first_tokens(dump, weights, choice.recipe, choice.attention)
    return replace(choice, wrong=wrong_steps(results))


def wrong_steps(results: Sequence[StepResult]) -> tuple[str, ...]:
    """Return the steps that fail, or that are rounded otherwise than the recipe says."""
    return tuple(r.step for r in results if not r.local.passed or r.local.suspect)


def first_tokens(
    dump: Dump, weights: BlockWeights, recipe: Recipe, attention: str, judge: bool = True
) -> list[StepResult]:
    """Compare the first tokens of the first sequence locally; without `judge` no tolerances are derived."""
    case, given = make_run(dump, weights, recipe, attention)
    T = case.x.shape[1]
    tokens = np.arange(T if recipe.granularity == "tensor" else min(TOKENS, T))  # a scale of all tokens needs them all
    small, short = dump.take(slice(1), tokens, case.past), case.take(slice(1), tokens)
    return check(small, short, given.their_table, end_to_end=False, judge=judge)
