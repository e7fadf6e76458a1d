"""What a dump says its run was given: masks, positions, and queries that see no key."""

import numpy as np
import pytest
from validation_runs import DEEPSEEK, TRANSFORMERS, dump_of, make_run

from blocklab.block.masks import causal_mask
from blocklab.check.validation import validate
from blocklab.errors import InputError

BLIND = 4
"""A query that sees nothing in these runs."""


def with_a_blind_query(setting):
    run = make_run(setting)
    mask = causal_mask(run.x.shape[1]).copy()
    mask[BLIND] = False
    return run.change(M=mask)


def answering(run, value):
    """A run whose softmax gives this value for each key where nothing is seen."""
    T = run.x.shape[1]
    row = (np.arange(T) == BLIND)[:, None]
    return run.rewriting(pattern=lambda seen, pattern, run: np.where(row, np.float32(value), pattern))


@pytest.mark.parametrize("steps", [None, TRANSFORMERS, DEEPSEEK, ("z", "attn_out", "resid_post"), ("resid_post",)])
@pytest.mark.parametrize("value", [np.nan, 0.0, 1 / 16])
@pytest.mark.parametrize("setting", ["float32", "deepseek-fp8"])
def test_queries_that_see_nothing_may_give_anything(setting, value, steps):
    run = with_a_blind_query(setting)
    dump = dump_of(answering(run, value), run, steps) | {"attention_mask": run.M}
    report = validate(dump, run.weights, run.recipe)
    assert report.verdict == "pass", report.sentence
    assert all(r.end_to_end_passed for r in report.steps)
    B, T, _ = run.x.shape
    assert f"{B} of {B * T} queries see no key, and are left out where that shows" in report.notes


@pytest.mark.parametrize(("step", "told"), [("resid_mid", True), ("mlp_out", True), ("attn_out", True), ("z", False)])
def test_queries_that_see_nothing_are_compared_where_their_inputs_are_recorded(step, told):
    """From z on, what follows is known; z itself is not where no pattern was recorded."""
    run = with_a_blind_query("float32")
    row = (np.arange(run.x.shape[1]) == BLIND)[:, None] if step != "z" else None

    def spoil(seen, value, run):
        rows = row if row is not None else (np.arange(run.x.shape[1]) == BLIND)[:, None, None]
        return np.where(rows, value + np.float32(7), value)

    steps = ("z", "attn_out", "resid_mid", "mlp_norm", "gate_act", "up", "act", "mlp_out", "resid_post")
    dump = dump_of(run.rewriting(**{step: spoil}), run, steps) | {"attention_mask": run.M}
    report = validate(dump, run.weights, "float32")
    assert report.first_divergence == (step if told else None)


def test_what_is_left_out_does_not_count_as_equal():
    run = with_a_blind_query("float32")
    noisy = run.rewriting(pattern=lambda seen, value, run: value * np.float32(1.5))
    dump = dump_of(noisy, run) | {"attention_mask": run.M}
    pattern = next(r for r in validate(dump, run.weights, "float32").steps if r.step == "pattern")
    T = run.x.shape[1]
    hidden = sum(T - 1 - t for t in range(T) if t != BLIND)  # zero on both sides
    assert pattern.local.measures.equal == pytest.approx(hidden / (T * (T - 1)))


@pytest.mark.parametrize(
    "mask", [np.zeros((20, 20), bool), np.full((20, 20), -np.inf, np.float32), np.zeros((2, 20), int)]
)
def test_a_mask_under_which_nothing_is_seen_is_refused(mask):
    run = make_run("float32")
    with pytest.raises(InputError, match="attention_mask: expected queries that see some key; found none"):
        validate(dump_of(run, run) | {"attention_mask": mask}, run.weights, "float32")


@pytest.mark.parametrize("kind", ["flags", "added", "lowest", "nothing hidden"])
def test_padding_masks_of_every_kind(kind):
    run = make_run("float32")
    B, T, _ = run.x.shape
    real = np.ones((B, T), bool)
    if kind != "nothing hidden":
        real[1, :3] = False
    least = np.finfo(np.float32).min if kind == "lowest" else -np.inf
    mask = real.astype(np.int64) if kind == "flags" else np.where(real, 0, least).astype(np.float32)
    run = run.change(M=(causal_mask(T) & real[:, None])[:, None])
    report = validate(dump_of(run, run) | {"attention_mask": mask}, run.weights, "float32")
    assert report.verdict == "pass", report.sentence
    assert any("taken as a padding mask" in note for note in report.notes)


def test_causal_flags_of_as_many_sequences_as_tokens_are_causal():
    run = make_run("float32")
    T = run.x.shape[1]
    run = run.change(
        x=np.tile(run.x, (T // 2, 1, 1)),
        positions=np.tile(run.positions, (T // 2, 1)),
        R=np.tile(run.R, (T // 2, 1, 1)),
    )
    assert run.x.shape[0] == T
    dump = dump_of(run, run, ("pattern", "z", "resid_post")) | {"attention_mask": causal_mask(T).astype(np.int64)}
    assert validate(dump, run.weights, "float32").verdict == "pass"


@pytest.mark.parametrize("other", ["cache_position", "positions"])
@pytest.mark.parametrize("first", [True, False])
def test_position_ids_come_first_wherever_they_stand(other, first):
    run = make_run("float32")
    dump, counted = dump_of(run, run), {other: np.arange(run.x.shape[1])}
    report = validate(counted | dump if first else dump | counted, run.weights, "float32")
    assert report.verdict == "pass"


def test_a_scale_of_the_whole_tensor_is_not_shared_with_our_own_run():
    """End to end and locally the values differ by a factor of 4, which one scale for both copies cannot serve."""
    run = make_run("deepseek-fp8").with_recipe(granularity="tensor")
    quiet = run.rewriting(mlp_norm=lambda seen, value, run: value / 4)
    report = validate(dump_of(quiet, run, DEEPSEEK), run.weights, run.recipe)
    assert [r.step for r in report.steps if not r.local.passed] == ["mlp_norm"]


def test_infinities_do_not_pass_end_to_end():
    run = make_run("float32")

    def spoil(seen, value, run):
        value = value.copy()
        value[0, 3, :5] = np.inf
        return value

    report = validate(dump_of(run.rewriting(resid_post=spoil), run), run.weights, "float32")
    assert not report.steps[-1].end_to_end_passed
    assert not report.steps[-1].local.passed
    assert "5 infinities in theirs, 0 in ours" in report.sentence


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_rotary_table_that_is_not_finite_is_refused(value):
    run = make_run("float32")
    table = {"rotary.cos": np.full(run.R.shape, value, np.float32), "rotary.sin": run.R.imag.astype(np.float32)}
    with pytest.raises(InputError, match=r"rotary\.cos, rotary\.sin: expected finite floats"):
        validate(dump_of(run, run) | table, run.weights, "float32")


@pytest.mark.parametrize("lost", ["rotary.sin", "cache.k_rot"])
def test_what_makes_sense_together_only_is_expected_together(lost):
    run = make_run("float32", cached=3)
    dump = dump_of(run, run) | {
        "rotary.cos": run.R.real.astype(np.float32),
        "rotary.sin": run.R.imag.astype(np.float32),
    }
    del dump[lost]
    with pytest.raises(InputError, match="together; found one of them"):
        validate(dump, run.weights, "float32")


def test_a_cache_that_is_not_finite_is_refused():
    run = make_run("float32", cached=3)
    dump = dump_of(run, run)
    dump["cache.k_rot"] = dump["cache.k_rot"] * np.nan
    with pytest.raises(InputError, match=r"cache\.k_rot\[0, 0, 0\]: expected finite values"):
        validate(dump, run.weights, "float32")


@pytest.mark.parametrize("factor", [1, 2])
def test_a_second_input_is_told_where_it_is_another(factor):
    run = make_run("float32")
    dump = dump_of(run, run, DEEPSEEK) | {"resid_pre": factor * run.x}
    report = validate(dump, run.weights, "float32")
    assert report.verdict == "pass"
    assert [u.dump_name for u in report.not_compared] == (["resid_pre"] if factor == 2 else [])


@pytest.mark.parametrize("value", [2, -7])
def test_flags_of_a_mask_are_0_and_1(value):
    run = make_run("float32")
    dump = dump_of(run, run) | {"attention_mask": np.full(run.x.shape[:2], value, np.int64)}
    with pytest.raises(InputError, match="attention_mask: expected flags 0 and 1, or floats to add; found other int"):
        validate(dump, run.weights, run.recipe)


@pytest.mark.parametrize("factor", [0, 1e30])
def test_a_table_that_is_none(factor):
    run = make_run("float32")
    cos, sin = run.R.real * np.float32(factor), run.R.imag.astype(np.float32)
    dump = dump_of(run, run) | {"rotary.cos": cos, "rotary.sin": sin}
    with pytest.raises(InputError, match=r"rotary.cos, rotary.sin: expected cos\^2 \+ sin\^2 to be near 1; found"):
        validate(dump, run.weights, run.recipe)
