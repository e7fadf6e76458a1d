import json

import numpy as np
import pytest

from blocklab.block.steps import STEPS, steps_of
from blocklab.errors import InputError
from blocklab.show.explanation import explain, explanation_json, explanation_text
from blocklab.show.working import spacing
from blocklab.store.trace import Trace

FIXED_ORDER = ("bfloat16", "deepseek-bf16", "deepseek-fp8", "hopper-fp8")


@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize("recipe", [*FIXED_ORDER, "float32", "float64", "deepseek-fp8,scale_order=folded,scale=ue8m0"])
def test_every_step_is_explained_to_the_bit(golden_trace, fp8_weights, recipe, attention):
    trace = golden_trace(recipe, attention)
    rng = np.random.default_rng(1)
    for step, value in trace.steps():
        for _ in range(4):
            found = explain(trace, fp8_weights, step.name, [int(rng.integers(n)) for n in value.shape])
            assert found.accepted, (step.name, found.index, found.verdict)
            assert found.matches or recipe in ("float32", "float64")


def test_a_wrong_value_is_told(golden_trace, fp8_weights):
    trace = golden_trace("deepseek-fp8")
    changed = trace["q_latent"].copy()
    changed[1, 2, 3] *= 1 + 2.0**-7
    wrong = Trace({**trace.arrays, "q_latent": changed}, trace.summary, trace.formats, trace.given, trace.metadata)
    found = explain(wrong, fp8_weights, "q_latent", [1, 2, 3])
    assert not found.accepted
    assert found.ulps == pytest.approx(1, abs=0.51)
    assert found.verdict.startswith("does not match")


def test_the_groups_of_an_fp8_linear(golden_trace, fp8_weights):
    found = explanation_json(explain(golden_trace("hopper-fp8"), fp8_weights, "q_latent", [0, 5, 3]))
    (rows,) = found["tables"].values()
    assert [row["k"] for row in rows] == ["0..127", "128..255"]
    total = np.float32(0)
    for row in rows:
        total += np.float32(np.float32(row["dot"]) * np.float32(row["s_a"])) * np.float32(row["s_w"])
        assert row["sum"] == total
        assert row["s_a"] == np.float32(row["amax"] / 448)
        assert row["Hopper dot"] == pytest.approx(row["dot"], rel=1e-2)
    assert found["numbers"]["hopper_sum"] == rows[-1]["Hopper sum"]
    assert found["numbers"]["sum"] != found["numbers"]["hopper_sum"]
    assert found["matches"]


def test_the_softmax_scale_of_the_scores_says_why(cat):
    numbers = _explain_cat(cat, "attn_scores", [0, 1, 7, 1])["numbers"]
    assert numbers["query_width"] == 160
    assert numbers["mscale"] == pytest.approx(0.1 * np.log(32) + 1)
    assert numbers["scale"] == pytest.approx(160**-0.5 * numbers["mscale"] ** 2, rel=1e-15)


def test_one_share_of_the_attention_shows_its_row(cat):
    found = _explain_cat(cat, "pattern", [0, 1, 7, 1])
    (rows,) = found["tables"].values()
    assert [row["key"] for row in rows] == list(range(8)), "later keys are hidden"
    assert [row["label"] for row in rows][:4] == ["^", "t", "h", "e"]
    assert found["traced"] == 0.5
    assert found["numbers"]["sum"] == pytest.approx(2, abs=1e-4)


def test_infinities_are_text_in_json(cat):
    found = _explain_cat(cat, "attn_masked", [0, 1, 7, 8])
    assert found["traced"] == "-inf"
    assert found["matches"]
    json.dumps(found, allow_nan=False)


def test_the_text_ends_with_the_verdict(cat, small_weights):
    text = explanation_text(explain(cat, small_weights, "mlp_out", [0, 7, 3]))
    assert text.splitlines()[-1] == "matches the traced value to the bit"
    assert "W^down (silu(g) ⊙ u)" in text
    assert text.count("\n") < 40


@pytest.mark.parametrize(
    ("step", "index", "message"),
    [
        ("q_latent", [0, 23, 3], "expected 3 indices below B 1, T 23, Q 384; found 0,23,3"),
        ("q_latent", [0, 5], "expected 3 indices"),
        ("q_latent", [0, -1, 3], "expected 3 indices"),
        ("querry", [0], "no step 'querry'"),
        ("q_absorbed", [0, 0, 0, 0], "the trace has no q_absorbed"),
    ],
)
def test_what_cannot_be_explained_is_refused(cat, small_weights, step, index, message):
    with pytest.raises(InputError, match=message):
        explain(cat, small_weights, step, index)


def test_a_step_without_its_inputs_is_refused(golden_trace, fp8_weights):
    with pytest.raises(InputError, match="computed from act, which the trace does not have"):
        explain(golden_trace("float32", steps="mlp_out"), fp8_weights, "mlp_out", [0, 0, 0])


def test_spacing():
    assert spacing(1.0, "bfloat16") == 2.0**-7
    assert spacing(0.0, "e4m3fn") == 2.0**-9
    assert spacing(-3.9, "float32") == 2.0**-22


def test_every_step_is_wired():

    for name in STEPS:
        for attention in ("naive", "absorb"):
            assert all(source in STEPS for source in steps_of(None, attention)[name].inputs)


@pytest.fixture(scope="module")
def small_weights():
    from blocklab.show.example import cat as example

    return example().weights


def _explain_cat(cat, step, index):
    from blocklab.show.example import cat as example

    return explanation_json(explain(cat, example().weights, step, index))
