"""Which options of a recipe a dump was computed with, where no recipe as it is explains the dump."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from blocklab.block.weights import BlockWeights
from blocklab.check.choose import Choice, first_tokens, make_run
from blocklab.check.dump import Dump
from blocklab.check.graph import chain_to
from blocklab.check.stepwise import StepResult
from blocklab.check.variation import EVERY_LINEAR
from blocklab.errors import InputError
from blocklab.numerics import Recipe

MOST_OPTIONS = 3
"""Options that are changed one after the other."""

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
    def failing(self) -> list[StepResult]:
        """The steps that differ."""
        return [r for r in self.results if not r.local.passed or r.local.suspect]

    @property
    def error(self) -> float:
        """The sum of what is left at every step."""
        return sum(r.local.residual for r in self.results)


def fit(dump: Dump, weights: BlockWeights, choices: Sequence[Choice]) -> tuple[Choice, str] | None:
    """Change options of the best recipe with FP8 linears, and of the best without, one after the other.

    Each time the option is taken that leaves least. Returns the recipe that explains most of the first tokens, and a
    note; None where no option explains a step more.
    """
    best = None
    quick_first = sorted(choices, key=lambda c: c.recipe.accumulate == "hopper")
    for fp8 in (True, False):
        base = next((c for c in quick_first if c.recipe.fp8_linear is fp8), None)
        fitted = base and _fit_one(dump, weights, base)
        if fitted and (best is None or (fitted[0].failing or 0) < (best[0].failing or 0)):
            best = fitted
    return best


def _fit_one(dump: Dump, weights: BlockWeights, base: Choice) -> tuple[Choice, str] | None:
    first = best = _Try(base.recipe, first_tokens(dump, weights, base.recipe, base.attention))
    while best.failing and len(best.taken) < MOST_OPTIONS:
        nearer = _nearer(dump, weights, base.attention, best)
        if nearer is None:
            break
        best = nearer
    if len(best.failing) >= len(first.failing):
        return None
    choice = Choice(best.recipe, base.attention, total=len(best.results), failing=len(best.failing))
    before = replace(choice, recipe=first.recipe, failing=len(first.failing))
    gained, words = len(first.failing) - len(best.failing), ", ".join(option.words for option in best.taken)
    return choice, f"recipe {first.recipe.name} {before.words}, {best.recipe.name} {gained} more: {words}"


def _nearer(dump: Dump, weights: BlockWeights, attention: str, now: _Try) -> _Try | None:
    """Return what comes nearest with one option more, or None where none explains more."""
    fp8 = now.recipe.fp8_linear
    for options in ((*(FP8 if fp8 else ()), *rounding(now.recipe)), TENSOR_CORE if fp8 else ()):
        tried = _changed(dump, weights, attention, now, options)
        nearest = min(tried, key=lambda t: t.error, default=now)
        if len(nearest.failing) < len(now.failing) or nearest.error < CLEARLY * now.error:
            return nearest
    return None


def _changed(dump: Dump, weights: BlockWeights, attention: str, now: _Try, options: Sequence[Option]) -> Iterator[_Try]:
    """Yield what each option gives, for those that act where steps fail."""
    run, _ = make_run(dump, weights, now.recipe, attention)
    suspected = set().union(*(chain_to(r.step, dump.steps, run) for r in now.failing))
    for option in options:
        again = any(option.changes.keys() & other.changes.keys() for other in now.taken)
        if again or suspected.isdisjoint(option.acts):
            continue
        recipe = now.recipe.replace(**option.changes)
        with suppress(InputError):  # a tensor core cannot add products whose scales differ
            yield _Try(recipe, first_tokens(dump, weights, recipe, attention), (*now.taken, option))
