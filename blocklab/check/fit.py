"""Which options of a recipe a dump was computed with, where no recipe as it is explains the dump."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from blocklab.block.weights import BlockWeights
from blocklab.check.choose import Choice, first_tokens, make_run, wrong_steps
from blocklab.check.dump import Dump
from blocklab.check.graph import chain_to
from blocklab.check.stepwise import StepResult
from blocklab.check.variation import EVERY_LINEAR
from blocklab.errors import InputError
from blocklab.numerics import Recipe

MOST_OPTIONS = 3
"""Options that are changed one after the other."""

TOGETHER = 3
"""Linears that fail for one reason; gate and up alone may be exchanged."""

CLEARLY = 0.9
"""Share of the error that is left at most where an option is taken that explains no step more by itself."""


class Option(NamedTuple):
    """What an implementation may choose without being wrong: fields of a recipe, the steps that show it, in words."""

    changes: dict[str, Any]
    acts: tuple[str, ...]
    words: str


FP8 = (
    Option({"scale": "ue8m0"}, EVERY_LINEAR, "scales are powers of two, as DeepSeek-V3.1's"),
    Option({"quotient": "reciprocal"}, EVERY_LINEAR, "inputs are multiplied by 1 / scale"),
    Option({"granularity": "token"}, EVERY_LINEAR, "a token has one scale"),
    Option({"group": 64}, EVERY_LINEAR, "64 channels share a scale"),
    Option({"group": 32}, EVERY_LINEAR, "32 channels share a scale"),
    Option({"activation_format": "e5m2"}, EVERY_LINEAR, "inputs are e5m2"),
)
"""Options of FP8 linears."""

TENSOR_CORE = (Option({"accumulate": "hopper"}, EVERY_LINEAR, "dots are summed in the H100's registers"),)
"""An option that is slow to try, and is tried where no other helps."""


class Fitted(NamedTuple):
    """A recipe with options that explain more steps than without.

    note     says so
    settles  whether all linears that failed together are right now, and not by what the catalogue calls a mistake
    """

    choice: Choice
    note: str
    settles: bool


def rounding(recipe: Recipe) -> tuple[Option, ...]:
    """Return the options of rotation and norm: published code of one origin rounds both once, or both often."""
    rotation, norm = ("each", "twice") if recipe.rotation == "once" else ("once", "once")
    words = "a rotation rounds every product" if rotation == "each" else "a rotation rounds once"
    alone = Option({"rotation": rotation}, ("q_rot", "k_rot"), words)
    both = Option({"rotation": rotation, "norm": norm}, ("q_rot", "k_rot"), f"{words}, a norm {norm}")
    return (alone, both) if recipe.norm != norm else (alone,)


@dataclass(frozen=True)
class _Try:
    """A recipe, the options that made it, and how the first tokens of the dump compare with it."""

    recipe: Recipe
    results: list[StepResult]
    taken: tuple[Option, ...] = ()

    @property
    def wrong(self) -> tuple[str, ...]:
        """The steps that differ."""
        return wrong_steps(self.results)

    @property
    def error(self) -> float:
        """The sum of what is left at every step."""
        return sum(r.local.residual for r in self.results)


def fit(dump: Dump, weights: BlockWeights, choices: Sequence[Choice]) -> Fitted | None:
    """Change options of the best recipe with FP8 linears, and of the best without, one after the other.

    Each time the option is taken that leaves least. Returns the recipe that explains most of the first tokens; None
    where no option explains a step more.
    """
    best: Fitted | None = None
    quick_first = sorted(choices, key=lambda c: c.recipe.accumulate == "hopper")
    for fp8 in (True, False):
        base = next((c for c in quick_first if c.recipe.fp8_linear is fp8), None)
        fitted = base and _fit_one(dump, weights, base)
        if fitted and (best is None or (fitted.choice.failing or 0) < (best.choice.failing or 0)):
            best = fitted
    return best


def linears_fail_together(choice: Choice) -> bool:
    """Whether so many linears are wrong that how their inputs are quantised is the likely reason."""
    return len(set(choice.wrong or ()) & set(EVERY_LINEAR)) >= TOGETHER


def _fit_one(dump: Dump, weights: BlockWeights, base: Choice) -> Fitted | None:
    first = best = _Try(base.recipe, first_tokens(dump, weights, base.recipe, base.attention))
    while best.wrong and len(best.taken) < MOST_OPTIONS:
        nearer = _nearer(dump, weights, base.attention, best)
        if nearer is None:
            break
        best = nearer
    gained, words = len(first.wrong) - len(best.wrong), ", ".join(option.words for option in best.taken)
    if gained <= 0:
        return None
    choice = Choice(best.recipe, base.attention, total=len(best.results), wrong=best.wrong)
    before = replace(choice, recipe=first.recipe, wrong=first.wrong)
    note = f"recipe {first.recipe.name} {before.words}, {best.recipe.name} {gained} more: {words}"
    mistaken = len(best.taken) == 1 and "granularity" in best.taken[0].changes
    settles = set(EVERY_LINEAR).isdisjoint(best.wrong) and not mistaken
    return Fitted(choice, note, settles)


def _nearer(dump: Dump, weights: BlockWeights, attention: str, now: _Try) -> _Try | None:
    """Return what comes nearest with one option more, or None where none explains more."""
    fp8 = now.recipe.fp8_linear
    for options in ((*(FP8 if fp8 else ()), *rounding(now.recipe)), TENSOR_CORE if fp8 else ()):
        tried = _changed(dump, weights, attention, now, options)
        nearest = min(tried, key=lambda t: t.error, default=now)
        if len(nearest.wrong) < len(now.wrong) or nearest.error < CLEARLY * now.error:
            return nearest
    return None


def _changed(dump: Dump, weights: BlockWeights, attention: str, now: _Try, options: Sequence[Option]) -> Iterator[_Try]:
    """Yield what each option gives, for those that act where steps fail."""
    case, _ = make_run(dump, weights, now.recipe, attention)
    suspected = set().union(*(chain_to(step, dump.steps, case) for step in now.wrong))
    for option in options:
        again = any(option.changes.keys() & other.changes.keys() for other in now.taken)
        if again or suspected.isdisjoint(option.acts):
            continue
        recipe = now.recipe.replace(**option.changes)
        with suppress(InputError):  # a tensor core cannot add products whose scales differ
            yield _Try(recipe, first_tokens(dump, weights, recipe, attention), (*now.taken, option))
