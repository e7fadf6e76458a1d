"""Dumps of other implementations: right ones pass, each wrong one is found at its step and named."""

import json

import numpy as np
import pytest

from blocklab.check.dump import MASKS, POSITIONS, TABLES
from blocklab.check.validation import validate
from blocklab.store.checkpoint import load_weights
from blocklab.store.trace_file import load_tensors
from goldens import DUMPS, FIXTURES, read_dump

MISTAKES = sorted(path.stem for path in (FIXTURES / "mistakes").glob("*.safetensors"))

FIRST = {
    **{"gate-up-swapped": "gate", "kv-b-value-first": "kv_up", "missing-mask": "pattern", "missing-mscale": "pattern"},
    **{"norm-rounds-once": "attn_norm", "rope-half-split": "pattern", "scale-last-row-lost": "kv_down"},
    **{"scale-transposed": "kv_down", "wrong-beta-fast": "pattern", "wrong-eps": "attn_norm"},
}


@pytest.mark.parametrize("name", DUMPS)
def test_a_golden_passes_with_nothing_silently_uncompared(name):
    arrays, metadata, weights = read_dump(name)
    report = validate(FIXTURES / "dumps" / f"{name}.safetensors", weights, metadata["recipe"])
    assert (report.verdict, report.first_divergence, report.diagnosis) == ("pass", None, [])
    assert report.attention == metadata["attention"]
    limit = 1e-5 if metadata["recipe"] == "float32" else 4e-3
    for step in report.steps:
        assert step.end_to_end.relative <= limit, step.step
        assert step.local.passed, step.step
        assert not step.local.suspect, step.step
    compared = {name for r in report.steps for name in (r.dump_name, *r.also)}
    given = {"input", *POSITIONS, *MASKS, *TABLES}
    assert compared | given >= set(arrays)
    assert report.not_compared == ()


@pytest.mark.parametrize("name", DUMPS)
def test_auto_finds_the_recipe_and_the_attention_of_a_golden(name):
    arrays, metadata, weights = read_dump(name)
    report = validate(dict(arrays), weights, "auto")
    assert report.verdict == "pass"
    assert (report.recipe, report.attention) == (metadata["recipe"], metadata["attention"])


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_at_its_step_and_named_first(name):
    path = FIXTURES / "mistakes" / f"{name}.safetensors"
    metadata = load_tensors(path).metadata
    report = validate(path, load_weights(FIXTURES / "checkpoints" / metadata["checkpoint"]), metadata["recipe"])
    if name.startswith("none"):
        assert (report.verdict, report.diagnosis, report.exit_status) == ("pass", [], 0)
        return
    assert (report.verdict, report.first_divergence, report.exit_status) == ("diverged", FIRST[name], 1)
    assert (report.diagnosis[0].mistake, report.diagnosis[0].explains) == (name, True)
    assert f"`{FIRST[name]}`" in report.sentence
    assert name in report.sentence


def test_a_float32_table_that_is_an_ulp_off_at_late_positions_is_within_tolerance():
    arrays, _, weights = read_dump("late-positions")
    without = {name: value for name, value in arrays.items() if name not in TABLES}
    report = validate(without, weights, "float32")
    assert report.verdict == "pass"
    assert {r.step: r.local.within for r in report.steps}["pattern"] < 1


def test_a_wrong_rotary_table_in_the_dump_is_not_taken():
    arrays, _, weights = read_dump("kimi-f32")
    wrong = dict(arrays) | {"rotary.cos": arrays["rotary.cos"] * 1.3466}
    report = validate(wrong, weights, "float32")
    assert report.verdict == "pass"  # everything computed is right: only the recorded table is not
    assert any("differ from the config's table" in note and "ours are used" in note for note in report.notes)


def test_the_sentence_for_a_missing_mscale_says_what_to_do():
    path = FIXTURES / "mistakes" / "missing-mscale.safetensors"
    report = validate(path, load_weights(FIXTURES / "checkpoints" / "tiny-f32"), "float32")
    assert report.sentence.startswith("`pattern` (self_attn.attn_weights) is the first step that differs, by ")
    assert report.sentence.endswith(
        "the scores are 0.5515 times ours: the mscale factor, squared, is missing from the softmax scale"
        " (missing-mscale)."
    )


def test_the_json_has_the_keys_of_the_contract_and_no_nan():
    path = FIXTURES / "mistakes" / "wrong-eps.safetensors"
    report = validate(path, load_weights(FIXTURES / "checkpoints" / "tiny-f32"), "float32")
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert {"verdict", "first_divergence", "steps", "not_compared", "diagnosis"} <= found.keys()
    first = found["steps"][0]
    assert (first["step"], first["dump_name"]) == ("attn_norm", "input_layernorm")
    for side in ("local", "end_to_end"):
        assert first[side]["pass"] is False
        assert {"equal", "max_ulp", "p99_ulp", "max_abs", "relative", "cosine", "ratio"} <= first[side].keys()
        assert {"nan_theirs", "nan_ours", "worst_position", "worst_head", "worst_block"} <= first[side].keys()
    assert found["diagnosis"][0].items() >= {"mistake": "wrong-eps", "explains": True}.items()
    assert found["diagnosis"][0]["residual"] < 1e-6
    table = report.table().splitlines()
    assert sum(line.startswith(("attn_norm ", "q_latent ", "resid_post ")) for line in table) == 3
    assert table[-1] == report.sentence


def test_nan_on_one_side_only_is_counted_and_fails():
    arrays, _, weights = read_dump("kimi-f32")
    gate = arrays["mlp.gate_proj"].copy()
    gate[0, 3, 7] = np.nan
    report = validate(dict(arrays) | {"mlp.gate_proj": gate}, weights, "float32")
    assert report.first_divergence == "gate"
    measures = next(r for r in report.steps if r.step == "gate").local.measures
    assert (measures.nan_theirs, measures.nan_ours, measures.worst_position) == (1, 0, (0, 3))
    assert "1 NaN in theirs, 0 in ours" in report.sentence
    json.dumps(report.to_json(), allow_nan=False)
