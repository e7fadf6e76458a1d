"""Tolerances are neither loose nor tight: right values have room, a few units in one element fail."""

from dataclasses import replace

import numpy as np
import pytest
from validation_runs import TRANSFORMERS, dump_of, make_run, small_config

from blocklab.block.config import BlockConfig, Yarn
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import correction_range, inverse_frequencies, rotary_table
from blocklab.block.steps import STEPS
from blocklab.check.case import Case
from blocklab.check.dump import read_dump as read
from blocklab.check.error_attention import frequency_room
from blocklab.check.measures import HIDDEN, ulp
from blocklab.check.stepwise import check
from blocklab.check.validation import validate
from blocklab.numerics import get_recipe
from blocklab.store.trace import trace
from blocklab.synth.weights import synthetic_embedding, synthetic_weights
from goldens import DUMPS, read_dump

# In float32 the order of a sum alone moves an element by tens of units; in bfloat16 a sum may cross one tie.
UNITS = {"float32": 64, "bfloat16": 4, "deepseek-bf16": 4, "deepseek-fp8": 4, "absorb": 4}


def spoil(value, units, storage):
    """Move the largest visible element of the last position by some units in the last place."""
    changed = value.copy()
    visible = np.where(np.isfinite(value) & (value > HIDDEN), np.abs(value), 0)
    index = np.unravel_index(int(visible.argmax()), value.shape)
    changed[index] += np.float32(units * ulp(value[index], storage))
    return changed


@pytest.mark.parametrize("setting", UNITS)
def test_a_few_units_in_one_element_fail(setting):
    run = make_run(setting)
    right = dump_of(run, run)
    for step in STEPS:
        if step not in right or step in ("resid_pre", "attn_masked"):
            continue
        wrong = right | {step: spoil(right[step], UNITS[setting], run.recipe.storage)}
        results = {r.step: r for r in check(read(wrong, run.config), run, False, end_to_end=False)}
        assert not results[step].local.passed, (step, results[step].local.within)


@pytest.mark.parametrize("setting", UNITS)
def test_one_rounding_the_other_way_passes(setting):
    """Of a sum that ends next to a tie, another order of summation rounds to the neighbour."""
    run = make_run(setting)
    right = dump_of(run, run)
    for step in ("q", "gate", "attn_out"):
        near = right | {step: spoil(right[step], 1, run.recipe.storage)}
        results = {r.step: r for r in check(read(near, run.config), run, False, end_to_end=False)}
        assert results[step].local.passed
        assert 0.3 < results[step].local.within <= 1 or run.recipe.storage == "float32"


@pytest.mark.parametrize("name", DUMPS)
def test_other_implementations_have_room(name):
    """The largest error of float32 dumps is a third to nine tenths of its tolerance; of bfloat16, one unit at ties."""
    arrays, metadata, weights = read_dump(name)
    report = validate(dict(arrays), weights, metadata["recipe"])
    within = max(r.local.within for r in report.steps)
    assert max(r.local.rounding for r in report.steps) < 0.5
    if metadata["recipe"] == "float32":
        assert 0.1 < within < 0.9
    else:
        assert within <= 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("setting", ["float32", "bfloat16", "deepseek-bf16"])
def test_sums_in_any_order_pass_from_recorded_inputs(setting, seed):
    """A linear summed one product after the other in float32, in a random order: the worst that anybody does."""
    run = make_run(setting)
    right = dump_of(run, run, TRANSFORMERS)
    x, weight = right["mlp_norm"], run.weights.mlp.gate_proj
    w = weight.values()
    if run.recipe.storage == "bfloat16":
        bits = w.view(np.uint32)
        w = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    order = np.random.default_rng(seed).permutation(w.shape[1])
    total = np.zeros((*x.shape[:2], w.shape[0]), np.float32)
    for k in order:
        total += x[..., k, None] * w[:, k]
    if run.recipe.storage == "bfloat16":
        bits = total.view(np.uint32)
        total = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    results = check(read(right | {"gate": total}, run.config), run, False, end_to_end=False)
    gate = next(r for r in results if r.step == "gate")
    assert gate.local.passed, (gate.local.within, gate.local.rounding)
    assert gate.local.measures.equal < (0.5 if setting == "float32" else 1.01)


def test_the_chain_since_the_last_recorded_values_is_carried():
    """Of the pattern alone, scores may be rounded otherwise; from recorded scores they may not."""
    run = make_run("bfloat16")
    everything, few = dump_of(run, run), dump_of(run, run, TRANSFORMERS)
    wrong = everything["pattern"].copy()
    shared = (wrong > 0.1) & (wrong < 0.6)
    wrong.flat[np.where(shared, np.abs(everything["attn_scores"]), 0).argmax()] *= 1 + 3 * 2.0**-7
    for dump, passes in ((everything, False), (few, True)):
        results = check(read(dump | {"pattern": wrong}, run.config), run, False, end_to_end=False)
        assert next(r for r in results if r.step == "pattern").local.passed is passes


def test_unlike_rounding_in_a_chain_passes_with_a_note():
    """Attention that keeps float32 inside, as fused kernels do, is right, and is said to round otherwise."""
    run = make_run("bfloat16")
    right = dump_of(run, run, [step for step in TRANSFORMERS if step != "pattern"])
    fused = run.with_recipe(storage="float32").change(rewrite={"attn_norm": lambda seen, value, r: right["attn_norm"]})
    for step in ("q", "kv_down", "kv_latent_norm", "kv_up"):
        fused = fused.rewriting(**{step: lambda seen, value, r, s=step: right[s]})
    out = fused.record()["z"].reshape(*run.x.shape[:2], -1)
    w = run.weights.self_attn.o_proj.values()
    bits = (out @ w.T).astype(np.float32).view(np.uint32)
    attn_out = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    head = ("input", "position_ids", *TRANSFORMERS[:7])
    dump = {name: right[name] for name in head} | {"attn_out": attn_out}
    report = validate(dump, run.weights, run.recipe)
    assert report.verdict == "pass", report.sentence
    assert 0.05 < 1 - report.steps[-1].local.measures.equal < 0.9
    assert any("rounded otherwise than the recipe says" in note for note in report.notes)


def in_order(q, k):
    """Dots [B, H, T, S] of q [B, T, H, .] and k [B, S, H, .] in float32, one product after the other."""
    total = np.zeros((q.shape[0], q.shape[2], q.shape[1], k.shape[1]), np.float32)
    for i in range(q.shape[-1]):
        total += q[..., i].transpose(0, 2, 1)[..., None] * k[..., i].transpose(0, 2, 1)[:, :, None]
    return total


def test_equal_products_added_in_order_pass():
    """A head that looks at the previous token adds up the same product 32 times: every rounding goes the same way."""
    weights = synthetic_weights(BlockConfig.preset("kimi-k2-small"), 0)
    T, config = 24, weights.config
    x = synthetic_embedding(config, 0).values()[np.arange(T) + 97].astype(np.float32)[None]
    R = rotary_table(config, np.arange(T), "float32")
    right = dict(trace(x, R, causal_mask(T), weights, "float32"))
    heads = config.num_attention_heads
    k = np.concatenate([right["k_nope"], np.repeat(right["k_rot"][:, :, None], heads, 2)], -1)
    q = np.concatenate([right["q_nope"], right["q_rot"]], -1)
    scores = in_order(q, k) * np.float32(config.softmax_scale)
    shown = {step: right[step] for step in ("q_nope", "q_rot", "k_nope", "k_rot")}
    report = validate({"input": x, **shown, "attn_scores": scores}, weights, "float32")
    found = next(r.local for r in report.steps if r.step == "attn_scores")
    assert report.verdict == "pass", report.sentence
    assert found.within > 0.3


def test_squares_added_in_order_behind_a_loud_channel_pass():
    run = make_run("float32")
    x = run.x.copy()
    x[..., 0] = 200 * np.abs(x).max(-1)
    loud = run.change(x=x)
    right = dump_of(loud, loud)
    sums = np.zeros(x.shape[:2], np.float32)
    for i in range(x.shape[-1]):
        sums += np.square(x[..., i])
    r = 1 / np.sqrt(sums / np.float32(x.shape[-1]) + np.float32(run.config.rms_norm_eps))
    norm = x * r[..., None] * run.weights.input_layernorm.values().astype(np.float32)
    results = check(read(right | {"attn_norm": norm}, run.config), loud, False, end_to_end=False)
    first = next(r for r in results if r.step == "attn_norm")
    assert first.local.measures.equal < 0.5
    assert first.local.passed, first.local.within


@pytest.mark.parametrize("setting", ["float32", "bfloat16"])
def test_numbers_below_the_least_normal_may_be_flushed(setting):
    run = make_run(setting)
    loud = run.rewriting(attn_masked=lambda seen, value, r: value * np.float32(400))
    right = dump_of(loud, run)
    flushed = np.where(np.abs(right["pattern"]) < 2.0**-126, 0, right["pattern"])
    assert (flushed != right["pattern"]).any()
    right["attn_masked"] = loud.record()["attn_masked"]
    results = check(read(right | {"pattern": flushed}, run.config), loud, False, end_to_end=False)
    assert next(r for r in results if r.step == "pattern").local.passed


@pytest.mark.parametrize(("gate", "error", "passes"), [(-10, 2e-7, True), (-10, 2e-6, False), (-90, 1.0, True)])
def test_a_sigmoid_may_be_off_by_a_few_units_of_one(gate, error, passes):
    """silu(-10) = -10 / (1 + e^10) = -4.5397868702434395e-4; silu(-90) = -7.4e-38, and 0 where e^90 overflows."""
    run = make_run("float32")
    right = dump_of(run, run)
    gates, acts = right["gate"].copy(), right["gate_act"].copy()
    gates[0, 5, 7] = gate
    exact = gate / (1 + np.exp(-np.float64(gate)))
    acts[0, 5, 7] = 0.0 if error == 1.0 else exact + gate * error
    results = check(read(right | {"gate": gates, "gate_act": acts}, run.config), run, False, end_to_end=False)
    assert next(r for r in results if r.step == "gate_act").local.passed is passes


def published_frequencies(config, theta, yarn):
    """inv_freq as published code computes it, every operation in float32, the power by numpy's float32 one."""
    R, low, high = config.qk_rope_head_dim, *correction_range(config)
    pairs = np.arange(0, R, 2, dtype=np.float32) / np.float32(R)
    wavelengths = np.power(np.float32(theta), pairs, dtype=np.float32)
    keep = 1 - np.clip((np.arange(R // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
    return 1 / (np.float32(yarn.factor) * wavelengths) * (1 - keep) + 1 / wavelengths * keep


def test_float32_frequencies_pass_at_late_positions():
    """A rounded exponent moves theta^-e by e ln(theta) units, and YaRN's ramp moves a slow pair by much more.

    R 44, theta 50000, length 32768, beta_fast 16: the ramp runs from pair 11 to 18 (22 ln(32768 / (2 pi 16)) / ln 50000
    = 11.77, 22 ln(32768 / 2 pi) / ln 50000 = 17.4): keep is 1/7 at pair 17, and (32 - 1) / (1 + 31/7) = 5.71 units more
    are allowed there.
    """
    yarn = Yarn(32.0, 32768, beta_fast=16.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
    config = small_config(qk_rope_head_dim=44, yarn=yarn)
    assert correction_range(config) == (11, 18)
    own = frequency_room(config) - frequency_room(replace(config, yarn=None))
    assert own[[10, 11, 17, 18]] == pytest.approx([0, 0, 31 / (1 + 31 / 7), 0])
    T = 64
    positions = np.arange(20000, 20000 + 1500 * T, 1500)[None]
    x = np.random.default_rng(0).standard_normal((1, T, config.hidden_size)).astype(np.float32)
    weights = synthetic_weights(config, 0, "bfloat16")
    angles = positions[..., None].astype(np.float32) * published_frequencies(config, config.rope_theta, yarn)
    tables = {"right": np.exp(1j * angles.astype(np.float64))}
    slower = positions[..., None] * inverse_frequencies(config) * (1 + 2e-5 * (np.arange(22) == 17))
    tables["wrong"] = np.exp(1j * slower)
    case = Case(x, positions, rotary_table(config, positions), causal_mask(T), weights, get_recipe("float32"))
    for name, table in tables.items():
        dump = dump_of(case.change(R=table), case)
        results = {r.step: r.local.passed for r in check(read(dump, config), case, False, end_to_end=False)}
        assert results["q_rot"] is (name == "right"), name
        assert results["k_rot"] is (name == "right"), name
