"""Validation: is somebody's block right, and if not, where is it wrong and what is the mistake?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.block.masks import as_boolean
from blocklab.block.weights import BlockWeights, require_weights
from blocklab.check.case import Case
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
from blocklab.check.diagnose import diagnose
from blocklab.check.dump import Dump, read_dump, settled
from blocklab.check.fit import fit, linears_fail_together
from blocklab.check.report import Report
from blocklab.check.stepwise import StepResult, blind_queries, check
from blocklab.numerics import Recipe, get_recipe

MOST_SCORES = 1 << 24
"""Scores [B, H, T, S] that are compared at one time; a comparison holds about ten arrays of them."""


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
    require_weights(weights)
    read = settled(read_dump(dump, weights.config, layer), weights.self_attn.kv_a_layernorm.values())
    choices, notes = _choices(read, weights, recipe, attention)
    if recipe == "auto":
        return _with_options(read, weights, choices, notes)
    report, explained = _report(read, weights, choices[0], notes)
    first = next((r for r in report.steps if r.step == report.first_divergence), None)
    wanted = report.foreign or (first and not explained and first.local.residual < NEAR)
    return _propose(report, read, weights, choices[0]) if wanted else report


def _with_options(dump: Dump, weights: BlockWeights, choices: list[Choice], notes: list[str]) -> Report:
    """Return the report for the best recipe, or for its options where they explain what it does not.

    Mistakes of the catalogue are tried first, unless linears fail together, as an option makes them.
    """
    together = linears_fail_together(choices[0])
    fitted = fit(dump, weights, choices) if together else None
    if fitted and fitted.settles:
        return _report(dump, weights, fitted.choice, [fitted.note, *notes[1:]])[0]
    report, explained = _report(dump, weights, choices[0], notes)
    for other in () if explained else choices[1:2]:
        # A mistake can make a dump look more like another recipe; the right one explains it with a mistake.
        second, explained = _report(dump, weights, other, notes)
        if explained:
            note = f"recipe {choices[0].recipe.name} comes nearer at first, but leaves steps unexplained"
            return replace(second, notes=(note, *second.notes))
    if not explained and not together:
        fitted = fit(dump, weights, choices)
    return report if explained or not fitted else _report(dump, weights, fitted.choice, [fitted.note, *notes[1:]])[0]


def _report(dump: Dump, weights: BlockWeights, choice: Choice, notes: Sequence[str]) -> tuple[Report, bool]:
    """Return the report for one recipe, and whether it explains every step, be it with mistakes."""
    case, given = make_run(dump, weights, choice.recipe, choice.attention)
    dump, case, shortened = _shortened(dump, case)
    results = check(dump, case, given.their_table)
    blind = blind_queries(case)
    if blind is not None:
        shortened = [*shortened, f"{blind.sum()} of {blind.size} queries see no key, and are left out where that shows"]
    names = (choice.recipe.name, choice.attention)
    report = Report(dump.source, *names, tuple(results), dump.not_compared, notes=(*notes, *given.notes, *shortened))
    if all(_clean(r) for r in results):
        return report, True
    foreign = foreign_storage(dump, choice.recipe)
    if foreign:
        return replace(report, foreign=foreign), False
    diagnoses, left = diagnose(dump, case, given.their_table, results)
    report = replace(report, diagnoses=tuple(diagnoses))
    if report.passed:
        report = replace(report, notes=(*report.notes, *_otherwise_rounded(results)))
    return report, all(_clean(r) for r in left)


def _shortened(dump: Dump, case: Case) -> tuple[Dump, Case, list[str]]:
    """Return the first tokens alone where the scores of all would not fit into memory, and a note that says so."""
    B, T, _ = case.x.shape
    H, count = case.config.num_attention_heads, T
    while count > 1 and B * H * count * (case.past + count) > MOST_SCORES:
        count //= 2
    visible = as_boolean(case.M)
    if count == T or visible[..., :count, case.past + count :].any():
        return dump, case, []
    tokens = np.arange(count)
    note = f"only the first {count} of {T} tokens are compared: the scores of all would not fit into memory"
    return dump.take(slice(None), tokens, case.past), case.take(slice(None), tokens), [note]


def _clean(result: StepResult) -> bool:
    return result.local.passed and not result.local.suspect


def _otherwise_rounded(results: list[StepResult]) -> list[str]:
    """Return a note on steps that are within tolerance, but rounded otherwise, if there are any."""
    steps = {r.step: 1 - r.local.measures.equal for r in results if r.local.suspect}
    if not steps:
        return []
    shares = ", ".join(f"{step} ({share:.0%} of the elements)" for step, share in steps.items())
    return [f"rounded otherwise than the recipe says, but within what that explains, as in fused attention: {shares}"]


def _choices(
    dump: Dump, weights: BlockWeights, recipe: str | Recipe, attention: str | None
) -> tuple[list[Choice], list[str]]:
    """Return recipes and attention to compare with, the best first, and notes on how they were found."""
    forms = attention_forms(dump) if attention is None else (attention,)
    auto = recipe == "auto"
    recipes: Sequence[str | Recipe] = recipes_for(dump, weights) if auto else [recipe]
    if len(recipes) == 1 and len(forms) == 1:
        note = f"recipe {get_recipe(recipes[0]).name}: the values of the dump are {storage_of(dump)} numbers"
        return [Choice(get_recipe(recipes[0]), forms[0])], [note] if auto else []
    ranking = choose(dump, weights, recipes, forms)
    best, notes = ranking[0], []
    told_apart = len({choice.unlike for choice in ranking if choice.recipe == best.recipe}) > 1
    ranking = [choice for choice in ranking if choice.attention == best.attention]
    if auto:
        others = ", ".join(c.recipe.name for c in ranking[1:])
        notes.append(f"recipe {best.recipe.name} {best.words}" + (f", better than {others}" if others else ""))
    if told_apart:
        notes.append(f"attention {best.attention} fits best; the dump does not say")
    return ranking, notes


def _propose(report: Report, dump: Dump, weights: BlockWeights, chosen: Choice) -> Report:
    """Propose the recipe, with or without options, that explains all; or one that stores what the dump is stored in."""
    others = [r for r in recipes_for(dump, weights) if r.name != chosen.recipe.name]
    ranking = choose(dump, weights, others, (chosen.attention,)) if others else []
    fitted = None if ranking and ranking[0].failing == 0 else fit(dump, weights, [chosen])
    if fitted:
        best, note = fitted.choice, fitted.note
    elif ranking and (report.foreign or ranking[0].failing == 0):
        best, note = ranking[0], f"recipe {ranking[0].recipe.name} {ranking[0].words}"
    else:
        return report
    return replace(report, notes=(*report.notes, note), proposal=best.recipe.name)
