"""Validation: is somebody's block right, and if not, where is it wrong and what is the mistake?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from blocklab.block.weights import BlockWeights
from blocklab.check.choose import (
    NEAR,
    Choice,
    attention_forms,
    choose,
    foreign_storage,
    make_run,
    recipes_for,
    storage_of,
)
from blocklab.check.compare import StepResult, check
from blocklab.check.diagnose import diagnose
from blocklab.check.dump import Dump, read_dump, settled
from blocklab.check.report import Report
from blocklab.numerics import Recipe, get_recipe


def validate(
    dump: str | Path | Mapping[str, Any],
    weights: BlockWeights,
    recipe: str | Recipe = "auto",
    attention: str | None = None,
    layer: int | None = None,
) -> Report:
    """Compare what somebody's implementation computed with the block, step by step, and name the mistake if any.

    dump       a safetensors or npz file, or a mapping of names to arrays, with at least `input`
    weights    of the checkpoint that it ran
    recipe     a name of RECIPES or a Recipe; "auto" picks the one that explains the dump best
    attention  "naive" or "absorb"; None takes what the dump names or shows
    layer      whose tensors to take where names give several layers

    Two comparisons run together: end to end, from `input`; and local, each step from their recorded inputs. The
    first step that fails locally is the culprit, however far errors have spread.
    Errors: InputError, one line, for a dump that cannot be compared.
    """
    read = settled(read_dump(dump, weights.config, layer), weights.self_attn.kv_a_layernorm.values())
    chosen, notes = _chosen(read, weights, recipe, attention)
    run, given = make_run(read, weights, chosen.recipe, chosen.attention)
    results = check(read, run, given.their_table)
    report = Report(
        read.source,
        chosen.recipe.name,
        chosen.attention,
        tuple(results),
        read.not_compared,
        notes=(*notes, *given.notes),
    )
    if all(r.local.passed and not r.local.suspect for r in results):
        return report
    if foreign_storage(read, chosen.recipe):
        return _propose(report, read, weights, chosen)
    diagnoses = diagnose(read, run, given.their_table, results)
    report = replace(report, diagnoses=tuple(diagnoses))
    if report.passed:
        return replace(report, notes=(*report.notes, *_otherwise_rounded(results)))
    near = all(r.local.residual < NEAR for r in results)
    return _propose(report, read, weights, chosen) if near and recipe != "auto" else report


def _otherwise_rounded(results: list[StepResult]) -> list[str]:
    """Return a note on steps that are within tolerance, but rounded otherwise, if there are any."""
    steps = {r.step: 1 - r.local.measures.equal for r in results if r.local.suspect}
    if not steps:
        return []
    shares = ", ".join(f"{step} ({share:.0%} of the elements)" for step, share in steps.items())
    return [f"rounded otherwise than the recipe says, but within what that explains, as in fused attention: {shares}"]


def _chosen(dump: Dump, weights: BlockWeights, recipe: str | Recipe, attention: str | None) -> tuple[Choice, list[str]]:
    """Return the recipe and the attention to compare with, and notes on how they were found."""
    forms = attention_forms(dump) if attention is None else (attention,)
    auto = recipe == "auto"
    recipes: Sequence[str | Recipe] = recipes_for(dump, weights) if auto else [recipe]
    if len(recipes) == 1 and len(forms) == 1:
        note = f"recipe {get_recipe(recipes[0]).name}: the values of the dump are {storage_of(dump)} numbers"
        return Choice(get_recipe(recipes[0]), forms[0]), [note] if auto else []
    ranking = choose(dump, weights, recipes, forms)
    best, notes = ranking[0], []
    if auto:
        others = dict.fromkeys(c.recipe.name for c in ranking if c.recipe.name != best.recipe.name)
        notes.append(f"recipe {best.recipe.name} {_explains(best)}, better than {', '.join(others) or 'no other'}")
    if len(forms) > 1:
        notes.append(f"attention {best.attention} fits best; the dump does not say")
    return best, notes


def _explains(choice: Choice) -> str:
    right = choice.total - (choice.failing or 0)
    return f"explains {right} of {choice.total} steps of the first tokens"


def _propose(report: Report, dump: Dump, weights: BlockWeights, chosen: Choice) -> Report:
    """Propose the recipe that explains the dump best, if it explains all, or if the dump is stored in its format."""
    foreign = foreign_storage(dump, chosen.recipe)
    others = [r for r in recipes_for(dump, weights) if r.name != chosen.recipe.name]
    ranking = choose(dump, weights, others, (chosen.attention,)) if others else []
    if not ranking or not (foreign or ranking[0].failing == 0):
        return replace(report, foreign=foreign)
    best = ranking[0]
    note = f"recipe {best.recipe.name} {_explains(best)}"
    return replace(report, foreign=foreign, notes=(*report.notes, note), proposal=best.recipe.name)
