"""Diagnosis: several mistakes, none of the catalogue, and those that a dump cannot tell apart."""

import numpy as np
import pytest
from validation_runs import DEEPSEEK, TRANSFORMERS, dump_of, make_run

from blocklab.check.choose import storage_of
from blocklab.check.dump import read_dump as read
from blocklab.check.mistakes import inject
from blocklab.check.validation import validate


def spoiled(setting, *mistakes, steps=None):
    run = make_run(setting)
    wrong = run
    for mistake in mistakes:
        wrong = inject(wrong, mistake)
    return run, dump_of(wrong, run, steps)


@pytest.mark.parametrize("steps", [None, TRANSFORMERS, DEEPSEEK])
def test_two_mistakes_at_different_steps_are_found_one_after_the_other(steps):
    run, dump = spoiled("float32", "missing-kv-norm", "gelu-for-silu", steps=steps)
    report = validate(dump, run.weights, "float32")
    found = [(f.step, f.mistake) for f in report.diagnosis if f.explains]
    shown = "gate_act" if steps is None else "mlp_out"
    assert found == [("kv_latent_norm", "missing-kv-norm"), (shown, "gelu-for-silu")]
    assert "(missing-kv-norm). Then `" in report.sentence


@pytest.mark.parametrize("pair", [("missing-mscale", "missing-mask"), ("wrong-theta", "missing-mscale")])
def test_two_mistakes_at_the_same_step_are_found_together(pair):
    run, dump = spoiled("float32", *pair, steps=TRANSFORMERS)
    report = validate(dump, run.weights, "float32")
    best = report.diagnosis[0]
    assert report.first_divergence == "pattern"
    assert best.explains
    assert {best.mistake, best.beside} == set(pair)
    assert f"({best.mistake}), beside {best.beside}" in report.sentence


def test_a_mistake_in_all_norms_is_named_once():
    run, dump = spoiled("float32", "wrong-eps", steps=TRANSFORMERS)
    report = validate(dump, run.weights, "float32")
    assert sum(not r.local.passed for r in report.steps) == 4
    assert [f.mistake for f in report.diagnosis if f.explains] == ["wrong-eps"]


@pytest.mark.parametrize("eps", [3e-3, 2.5e-5, 1e-9])
def test_an_eps_that_nobody_uses_is_read_off(eps):
    run = make_run("float32")
    dump = dump_of(run.with_config(rms_norm_eps=eps), run, TRANSFORMERS)
    report = validate(dump, run.weights, "float32")
    assert f"rms_norm_eps {eps:g} instead of 1e-06 (wrong-eps)" in report.sentence


def test_one_weight_of_many_is_named():
    run = make_run("deepseek-bf16")
    weight = run.weights.self_attn.o_proj
    report = validate(_with_lost_scales(run, "self_attn__o_proj__weight", weight), run.weights, run.recipe)
    assert report.first_divergence == "attn_out"
    assert (report.diagnosis[0].mistake, report.diagnosis[0].explains) == ("scale-missing", True)
    assert "in self_attn.o_proj (scale-missing)" in report.sentence


def _with_lost_scales(run, name, weight):
    import dataclasses

    from blocklab.check.variation import with_weights

    lost = dataclasses.replace(weight, scale=np.ones_like(weight.scale))
    return dump_of(with_weights(run, **{name: lost}), run, TRANSFORMERS)


def test_scales_missing_everywhere_are_one_mistake():
    run, dump = spoiled("deepseek-bf16", "scale-missing", steps=TRANSFORMERS)
    report = validate(dump, run.weights, run.recipe)
    assert report.diagnosis[0].detail == "codes without their scales, in every weight"
    assert [f.step for f in report.diagnosis if f.explains] == ["q_latent"]


def test_what_no_mistake_explains_is_said_so():
    run = make_run("float32")
    dump = dump_of(run, run, TRANSFORMERS)
    dump["kv_up"] = dump["kv_up"] + np.random.default_rng(0).standard_normal(dump["kv_up"].shape).astype(np.float32)
    report = validate(dump, run.weights, "float32")
    assert (report.verdict, report.first_divergence) == ("diverged", "kv_up")
    assert not any(f.explains for f in report.diagnosis)
    assert "no mistake of the catalogue explains it" in report.sentence


def test_mistakes_that_cannot_be_told_apart_are_named_together():
    """With two tokens, seeing one key too many is seeing all keys."""
    run = make_run("float32")
    short = run.take(slice(1), np.arange(2))
    report = validate(dump_of(inject(short, "missing-mask"), short, TRANSFORMERS), run.weights, "float32")
    explaining = {f.mistake for f in report.diagnosis if f.explains}
    assert explaining == {"missing-mask", "mask-off-by-one"}
    assert "cannot tell it from" in report.sentence


@pytest.mark.parametrize("prefill", [5, 9])
def test_a_decode_with_the_mask_aligned_upper_left(prefill):
    """A joined dump of prefill and decode: its metadata says how many tokens came first."""
    run = make_run("float32")

    class Joined(dict):
        metadata = {"prefill": str(prefill)}  # noqa: RUF012

    wrong = inject(run.change(prefill=prefill), "mask-upper-left")
    report = validate(Joined(dump_of(wrong, run, TRANSFORMERS)), run.weights, "float32")
    assert report.diagnosis[0].mistake == "mask-upper-left"
    assert f"every token after the first {prefill} sees key 0 alone" in report.sentence


def test_another_storage_format_is_not_called_wrong_without_saying_so():
    run = make_run("bfloat16")
    dump = dump_of(run, run, TRANSFORMERS)
    assert storage_of(read(dump, run.config)) == "bfloat16"
    report = validate(dump, run.weights, "float32")
    assert report.proposal == "bfloat16"
    assert report.to_json()["proposed_recipe"] == "bfloat16"
    assert report.sentence.startswith(
        "The values of the dump are bfloat16 numbers, which recipe float32 would not give"
    )
    assert report.sentence.endswith("try --recipe bfloat16.")
    assert validate(dump, run.weights, "auto").verdict == "pass"


@pytest.mark.parametrize(("setting", "given"), [("deepseek-fp8", "deepseek-bf16"), ("deepseek-bf16", "bfloat16")])
def test_a_recipe_that_explains_everything_is_proposed(setting, given):
    run = make_run(setting)
    report = validate(dump_of(run, run, DEEPSEEK), run.weights, given)
    assert report.verdict == "diverged"
    assert report.proposal == setting


def test_auto_with_a_mistake_still_picks_the_recipe():
    run, dump = spoiled("deepseek-bf16", "missing-mask", steps=DEEPSEEK)
    report = validate(dump, run.weights)
    assert report.recipe == "deepseek-bf16"
    assert report.diagnosis[0].mistake == "missing-mask"
    assert any(
        note.startswith("recipe deepseek-bf16 explains 14 of 15 steps of the first tokens, better than")
        for note in report.notes
    )
