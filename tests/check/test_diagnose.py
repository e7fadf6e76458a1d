"""Diagnosis: several mistakes, none of the catalogue, and those that a dump cannot tell apart."""

import math
from dataclasses import replace

import numpy as np
import pytest
from validation_runs import DEEPSEEK, TRANSFORMERS, dump_of, make_run

from blocklab.check.choose import storage_of
from blocklab.check.dump import read_dump as read
from blocklab.check.mistakes import inject
from blocklab.check.validation import validate
from blocklab.errors import InputError
from formulas import rms_norm


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


@pytest.mark.parametrize("step", ["attn_norm", "q_latent_norm", "kv_latent_norm", "mlp_norm"])
@pytest.mark.parametrize(
    ("setting", "mistake"), [("bfloat16", "norm-rounds-once"), ("deepseek-bf16", "norm-rounds-twice")]
)
def test_one_norm_that_rounds_otherwise_is_found_alone(setting, mistake, step):
    run = make_run(setting)
    wrong = run.rewriting(**{step: lambda seen, value, run: _rounded_otherwise(step, seen, run, mistake)})
    report = validate(dump_of(wrong, run), run.weights, run.recipe)
    assert report.first_divergence == step, report.sentence
    assert report.diagnosis[0].mistake == mistake
    assert "in this norm alone" in report.sentence
    assert {d.step for d in report.diagnoses} == {step}


def _rounded_otherwise(step, seen, run, mistake):
    attention, eps = run.weights.self_attn, run.config.rms_norm_eps
    recipe = run.recipe.replace(norm="once" if mistake == "norm-rounds-once" else "twice")
    source, gain = {
        "attn_norm": ("resid_pre", run.weights.input_layernorm),
        "q_latent_norm": ("q_latent", attention.q_a_layernorm),
        "kv_latent_norm": ("kv_latent", attention.kv_a_layernorm),
        "mlp_norm": ("resid_mid", run.weights.post_attention_layernorm),
    }[step]
    return rms_norm(seen[source], gain, eps, recipe)


@pytest.mark.parametrize("step", ["gate", "up"])
def test_one_product_with_the_other_weights(step):
    run = make_run("deepseek-bf16")
    other = "up" if step == "gate" else "gate"
    mlp = replace(run.weights.mlp, **{f"{step}_proj": getattr(run.weights.mlp, f"{other}_proj")})
    wrong = run.change(weights=replace(run.weights, mlp=mlp))
    report = validate(dump_of(wrong, run, TRANSFORMERS), run.weights, run.recipe)
    assert report.first_divergence == step
    assert [f.mistake for f in report.diagnosis if f.explains] == ["gate-up-swapped"]
    assert f"{step} is computed with {other}'s weights" in report.sentence


def test_what_is_confined_is_said_to_be():
    run = make_run("float32")
    spoiled = run.rewriting(
        pattern=lambda seen, value, run: value * np.where(np.arange(3) == 1, 1.01, 1)[:, None, None],
        up=lambda seen, value, run: value * np.where(np.arange(20) < 7, 1, 1.01)[:, None].astype(np.float32),
    )
    results = {r.step: r for r in validate(dump_of(spoiled, run), run.weights, "float32").steps}
    assert results["pattern"].local.only_in == "head 1"
    assert results["up"].local.only_in == ""
    one = run.rewriting(gate=lambda seen, value, run: value + (np.arange(320) // 128 == 2) * np.float32(0.1))
    report = validate(dump_of(one, run), run.weights, "float32")
    assert "only in channels 256 to 319" in report.sentence


def test_a_float16_implementation_is_recognised():
    run = make_run("bfloat16").with_recipe(storage="float16")
    report = validate(dump_of(run, run, TRANSFORMERS), run.weights, "auto")
    assert report.verdict == "pass", report.sentence
    assert report.recipe == "bfloat16,storage=float16"


def test_a_mistake_that_explains_most_is_named():
    run = make_run("float32")
    wrong = inject(run, "missing-mscale")
    wrong = wrong.rewriting(pattern=lambda seen, value, run: value * np.float32(1.0005))
    report = validate(dump_of(wrong, run, TRANSFORMERS), run.weights, "float32")
    assert "missing-mscale) explains most" in report.sentence
    assert not any(f.explains for f in report.diagnosis)


@pytest.mark.parametrize("recipe", ["auto", "bfloat16"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"position_ids": np.arange(5)}, r"position_ids: expected \[24\] or \[1, 24\]; found \[5\]"),
        ({"position_ids": np.arange(24) + 0.5}, "position_ids: expected integers"),
        ({"attention_mask": np.tril(np.ones((24, 24), np.float32))}, "attention_mask"),
        ({"input": np.zeros((1, 24, 224), np.float32)}, "input: expected values, found zeros only"),
    ],
)
def test_what_a_dump_cannot_have_been_given_is_refused(recipe, given, words):
    run = make_run("bfloat16")
    with pytest.raises(InputError, match=words):
        validate(dump_of(run, run) | given, run.weights, recipe)


def test_gelu_in_float32_is_gelu():
    """Computed in float32, 1 + erf(x / sqrt 2) is 0 for x below -5, where ours is not; silu's tolerance is narrower."""
    run = make_run("float32")
    erf = np.vectorize(math.erf, otypes=[np.float32])
    half, root = np.float32(0.5), np.float32(math.sqrt(2))
    wrong = run.rewriting(gate_act=lambda seen, value, run: half * seen["gate"] * (1 + erf(seen["gate"] / root)))
    report = validate(dump_of(wrong, run), run.weights, "float32")
    assert report.diagnosis[0].mistake == "gelu-for-silu"
    assert report.diagnosis[0].explains


@pytest.mark.parametrize(("mistake", "step"), [("missing-kv-norm", "kv_latent_norm"), ("gate-up-swapped", "gate")])
def test_parts_of_fused_tensors_are_not_taken_for_each_other(mistake, step):
    """q_latent and kv_down, and gate and up, have one name in such a dump."""
    run, dump = spoiled("float32", mistake)
    dump["fused_qkv_a_proj"] = np.concatenate([dump.pop("q_latent"), dump.pop("kv_down")], axis=-1)
    dump["gate_up_proj"] = np.concatenate([dump.pop("gate"), dump.pop("up")], axis=-1)
    report = validate(dump, run.weights, "float32")
    assert report.first_divergence == step
    assert report.diagnosis[0].mistake == mistake


def test_an_error_in_a_part_of_a_fused_tensor_is_no_crash():
    run, dump = spoiled("float32")
    noisy = dump.pop("kv_down") * np.linspace(0.9, 1.1, 176, dtype=np.float32)
    dump["fused_qkv_a_proj"] = np.concatenate([dump.pop("q_latent"), noisy], axis=-1)
    report = validate(dump, run.weights, "float32")
    assert report.first_divergence == "kv_down"


def test_one_nan_in_the_pattern_is_no_mistake_of_the_mask():
    run = make_run("deepseek-fp8")
    dump = dump_of(run, run)
    dump["pattern"] = dump["pattern"].copy()
    dump["pattern"][0, 0, 0, 0] = np.nan
    report = validate(dump, run.weights, run.recipe)
    assert report.first_divergence == "pattern"
    assert not report.diagnoses[0].findings
    assert "1 NaN in theirs, 0 in ours: no mistake of the catalogue explains it" in report.sentence
