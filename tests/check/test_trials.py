"""What makes trials cheap changes nothing: shorter runs, runs from attn_out on, runs cut to what a step sees."""

import numpy as np
import pytest
from validation_runs import SETTINGS, TRANSFORMERS, dump_of, make_run

from blocklab.check.dump import read_dump
from blocklab.check.graph import chain_to
from blocklab.check.mistakes import inject
from blocklab.check.shrink import shrink_dump, shrink_run, unseen_axes
from blocklab.check.stepwise import check
from blocklab.check.validation import validate
from blocklab.store.trace import Recorder


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_from_attn_out_is_the_second_half_of_the_block(setting):
    run = make_run(setting)
    whole, half = Recorder(), Recorder()
    run.go(whole)
    run.go_from(whole.values["attn_out"], half)
    assert {"resid_mid", "mlp_norm", "gate", "up", "gate_act", "act", "mlp_out", "resid_post"} < half.values.keys()
    for name, value in half.values.items():
        assert np.array_equal(value, whole.values[name]), name


@pytest.mark.parametrize("cached", [0, 5])
@pytest.mark.parametrize("step", ["pattern", "kv_up", "gate", "q_latent_norm", "attn_out"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_shrunk_run_computes_the_step_alike(setting, step, cached):
    run = make_run(setting, cached)
    if step == "kv_up" and run.attention == "absorb":
        return
    wrong = inject(run, "wrong-theta")
    dump = read_dump(dump_of(wrong, run, TRANSFORMERS), run.config)
    results = check(dump, run, False, end_to_end=False)
    axes = unseen_axes(chain_to(step, dump.steps, run), run)
    assert ("D" in axes) == (step in ("pattern", "kv_up", "q_latent_norm"))
    small = shrink_run(run, axes)
    assert all(np.prod(small.weights.named()[n].shape) <= np.prod(w.shape) for n, w in run.weights.named().items())
    found = check(shrink_dump(dump, axes, results, step), small, False, until=step)
    assert [r.step for r in found] == [step]
    expected = next(r for r in results if r.step == step)
    assert found[0].local.measures.relative == pytest.approx(expected.local.measures.relative, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("cached", [0, 5])
@pytest.mark.parametrize("setting", ["deepseek-bf16", "absorb", "deepseek-fp8"])
def test_some_tokens_of_one_sequence(setting, cached):
    """To the bit where the order of sums is fixed; within a bfloat16 recipe's tolerance where BLAS chooses it."""
    tolerance = 0 if setting == "deepseek-fp8" else 4e-3
    run = make_run(setting, cached)
    tokens, last = np.arange(7), slice(len(run.x) - 1, None)
    whole, part = run.record(), run.take(last, tokens).record()
    for name, value in part.items():
        keys = slice(cached + 7) if name in ("kv_up", "k_nope", "v") else slice(7)
        scores = name in ("attn_scores", "attn_masked", "pattern")
        expected = whole[name][last, :, :7, : cached + 7] if scores else whole[name][last, keys]
        assert np.array_equal(np.isfinite(value), np.isfinite(expected)), name
        value, expected = np.nan_to_num(value, neginf=0), np.nan_to_num(expected, neginf=0)
        assert np.linalg.norm(value - expected) <= tolerance * np.linalg.norm(expected), name


@pytest.mark.parametrize("recipe", ["auto", "deepseek-bf16"])
def test_a_dump_with_a_cache_and_no_named_recipe(recipe):
    run = make_run("deepseek-bf16", cached=6)
    report = validate(dump_of(run, run, TRANSFORMERS), run.weights, recipe)
    assert (report.verdict, report.recipe) == ("pass", "deepseek-bf16")


def test_a_long_dump_is_compared_in_part_and_says_so(monkeypatch):
    monkeypatch.setattr("blocklab.check.validation.MOST_SCORES", 700)
    run = make_run("float32")
    report = validate(dump_of(run, run), run.weights, "float32")
    assert report.verdict == "pass"
    assert report.notes[-1].startswith("only the first 10 of 20 tokens are compared")
    report = validate(dump_of(inject(run, "missing-mscale"), run), run.weights, "float32")
    assert report.diagnosis[0].mistake == "missing-mscale"
