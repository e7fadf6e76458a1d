"""Validation: is somebody's block right, and if not, where is it wrong and what is the mistake?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from blocklab.block.weights import BlockWeights
from blocklab.check.choose import Choice, attention_forms, choose, make_run, recipes_for, storage_of
from blocklab.check.compare import StepResult, check
from blocklab.check.diagnose import Diagnosis, diagnose
from blocklab.check.dump import Dump, read_dump
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
    read = read_dump(dump, weights.config, layer)
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
    diagnoses = diagnose(read, run, given.their_table, results)
    report = replace(report, diagnoses=tuple(diagnoses), notes=(*report.notes, *_otherwise_rounded(results, diagnoses)))
    return _with_proposal(report, read, weights, chosen, auto=recipe == "auto")


def _otherwise_rounded(results: list[StepResult], diagnoses: list[Diagnosis]) -> list[str]:
    """Return notes on steps within tolerance that are rounded otherwise, where no mistake explains it."""
    explained = {d.step for d in diagnoses}
    return [
        f"{r.step}: {1 - r.local.measures.equal:.0%} of the elements differ, all within the roundings since the last"
        " recorded values: another order of roundings, as in fused attention, gives this"
        for r in results
        if r.local.suspect and r.step not in explained
    ]


def _chosen(dump: Dump, weights: BlockWeights, recipe: str | Recipe, attention: str | None) -> tuple[Choice, list[str]]:
    """Return the recipe and the attention to compare with, and notes on how they were found."""
    forms = attention_forms(dump) if attention is None else (attention,)
    auto = recipe == "auto"
    recipes: Sequence[str | Recipe] = recipes_for(dump, weights) if auto else [recipe]
    if len(recipes) == 1 and len(forms) == 1:
        return Choice(get_recipe(recipes[0]), forms[0], 0, 0, 0.0), _auto_note(dump, recipes, auto)
    ranking = choose(dump, weights, recipes, forms)
    best = ranking[0]
    notes = []
    if auto:
        worse = [c for c in ranking[1:] if c.attention == best.attention]
        others = ", ".join(f"{c.recipe.name} {c.total - c.failing}" for c in worse)
        notes.append(
            f"recipe {best.recipe.name} explains the dump best: {best.total - best.failing} of {best.total} steps"
            + (f" ({others})" if others else "")
        )
    if len(forms) > 1:
        notes.append(f"attention {best.attention} fits best; the dump does not say")
    return best, notes


def _auto_note(dump: Dump, recipes: Sequence[str | Recipe], auto: bool) -> list[str]:
    if not auto:
        return []
    return [f"recipe {get_recipe(recipes[0]).name}: the values of the dump are {storage_of(dump)} numbers"]


def _with_proposal(report: Report, dump: Dump, weights: BlockWeights, chosen: Choice, auto: bool) -> Report:
    """Say so if the values look like another storage format, or another recipe leaves fewer steps failing."""
    storage = storage_of(dump)
    foreign = storage != chosen.recipe.storage and not (storage == "bfloat16" and chosen.recipe.storage == "float16")
    explained = any(d.run is not None for d in report.diagnoses)
    notes = []
    if foreign:
        notes.append(
            f"all values of the dump are {storage} numbers, which recipe {chosen.recipe.name}"
            f" ({chosen.recipe.storage}) would not give"
        )
    if auto or (explained and not foreign):
        return report
    others = [r for r in recipes_for(dump, weights) if r.name != chosen.recipe.name]
    if not others:
        return replace(report, notes=(*report.notes, *notes))
    ranking = choose(dump, weights, others, (chosen.attention,))
    if ranking and (foreign or ranking[0].failing == 0):
        best = ranking[0]
        notes.append(
            f"recipe {best.recipe.name} explains {best.total - best.failing} of {best.total} steps of the first tokens"
        )
        return replace(report, notes=(*report.notes, *notes), proposal=best.recipe.name)
    return replace(report, notes=(*report.notes, *notes))
