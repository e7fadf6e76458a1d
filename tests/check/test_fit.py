"""Options of a recipe that nobody told of are found from a dump."""

from dataclasses import replace

import pytest
from validation_runs import DEEPSEEK, SETTINGS, dump_of, make_run

from blocklab.check.mistakes import inject
from blocklab.check.validation import validate


@pytest.mark.parametrize(
    "options",
    [
        {"scale": "ue8m0"},
        {"quotient": "reciprocal"},
        {"group": 64},
        {"activation_format": "e5m2"},
        {"rotation": "each", "norm": "twice"},
        {"granularity": "token", "quotient": "reciprocal"},
    ],
    ids=str,
)
def test_options_of_a_right_block_are_found(options):
    run = make_run("deepseek-fp8").with_recipe(**options)
    report = validate(dump_of(run, run), run.weights)
    assert report.verdict == "pass", report.sentence
    assert sorted(report.recipe.split(",")) == sorted(["deepseek-fp8", *(f"{k}={v}" for k, v in options.items())])
    assert any("more: " in note for note in report.notes)


def test_an_option_of_the_tensor_core_is_found(monkeypatch):
    """Its registers cannot add products whose scales differ, so blocks of weights are as wide as a promotion here."""
    setting = SETTINGS["deepseek-fp8"]
    config = replace(setting.config, weight_block_size=(64, 128))
    monkeypatch.setitem(SETTINGS, "wide", replace(setting, config=config))
    run = make_run("wide").with_recipe(scale="ue8m0", accumulate="hopper")
    report = validate(dump_of(run, run), run.weights)
    assert (report.verdict, report.recipe) == ("pass", "deepseek-fp8,scale=ue8m0,accumulate=hopper")


@pytest.mark.parametrize(("mistake", "steps"), [("gate-up-swapped", None), ("rope-half-split", DEEPSEEK)])
def test_a_mistake_beside_an_option_is_named(mistake, steps):
    run = make_run("deepseek-fp8").with_recipe(scale="ue8m0")
    report = validate(dump_of(inject(run, mistake), run, steps), run.weights)
    assert report.recipe == "deepseek-fp8,scale=ue8m0"
    assert report.diagnosis[0].mistake == mistake
    assert report.diagnosis[0].explains


def test_a_mistake_of_the_catalogue_is_no_option():
    run = make_run("deepseek-fp8")
    report = validate(dump_of(inject(run, "activation-per-token"), run), run.weights)
    assert (report.verdict, report.recipe) == ("diverged", "deepseek-fp8")
    assert report.diagnosis[0].mistake == "activation-per-token"


@pytest.mark.parametrize("mistake", [None, "missing-mscale"])
def test_options_are_proposed_for_a_named_recipe(mistake):
    run = make_run("deepseek-fp8").with_recipe(group=64)
    wrong = run if mistake is None else inject(run, mistake)
    report = validate(dump_of(wrong, run), run.weights, "deepseek-fp8")
    assert (report.verdict, report.recipe, report.proposal) == ("diverged", "deepseek-fp8", "deepseek-fp8,group=64")
    assert report.sentence.endswith("try --recipe deepseek-fp8,group=64.")


def test_what_no_option_explains_is_left_to_the_recipe():
    run = make_run("deepseek-bf16")
    spoiled = run.rewriting(q_latent=lambda seen, value, run: value * 1.25, gate=lambda seen, value, run: value * 0.75)
    report = validate(dump_of(spoiled, run), run.weights)
    assert (report.verdict, report.recipe, report.first_divergence) == ("diverged", "deepseek-bf16", "q_latent")
