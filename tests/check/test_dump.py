"""Reading dumps: names, layouts, what is given beside the values, and what is refused."""

import numpy as np
import pytest

from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.steps import STEPS
from blocklab.check.dump import read_dump as read
from blocklab.check.names import read_name
from blocklab.check.validation import validate
from blocklab.errors import InputError
from blocklab.store.trace import trace
from goldens import FIXTURES, read_dump


@pytest.fixture(scope="module")
def golden():
    arrays, _, weights = read_dump("kimi-f32")
    return dict(arrays), weights


NAMES = {
    "q_latent": [
        "q_latent",
        "self_attn.q_a_proj",
        "model.layers.3.self_attn.q_a_proj",
        "attn.wq_a",
        "wq_a",
        "q_a_proj",
    ],
    "attn_norm": ["attn_norm-0", "attn_norm-17", "language_model.model.layers.0.input_layernorm", "layers.2.attn_norm"],
    "q": ["self_attn.q_proj", "layers.0.attn.wq", "q-5", "model.layers.0.self_attn.q_b_proj.output"],
    "k_rot": ["attn.k_pe", "k_pe-0", "k_rot"],
    "z": ["kqv_out-1"],
    "resid_mid": ["ffn_inp-0"],
    "resid_post": ["output", "model.layers.7", "l_out-0"],
    "gate": ["blk.0.gate_proj", "ffn.w1", "ffn_gate-0"],
    "pattern": ["model.layers.1.self_attn.attn_weights"],
}


@pytest.mark.parametrize(("step", "name"), [(step, name) for step, names in NAMES.items() for name in names])
def test_names_of_four_programs_with_any_prefix(step, name):
    meaning = read_name(name)
    assert meaning is not None
    assert meaning.steps == (step,)


@pytest.mark.parametrize("name", ["mlp.experts.3.gate", "lm_head", "q_latent_2", "foo", "self_attn.rotary_emb"])
def test_other_names_mean_nothing(name):
    assert read_name(name) is None


def test_layers_are_read_from_names():
    assert [read_name(n).layer for n in ("model.layers.12.mlp", "ffn_out-3", "mlp")] == [12, 3, None]


def heads(array, H):
    return array.reshape(*array.shape[:2], H, -1)


LAYOUTS = {
    "as_it_is": lambda a: a,
    "time_first": lambda a: np.moveaxis(a, 1, 0),
    "no_batch_axis_in_two": lambda a: a.reshape(-1, a.shape[-1]),
    "singleton_axes": lambda a: a[:, None, :, None],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_recognised_and_reported(layout):
    arrays, _, weights = read_dump("kimi-bf16")  # a batch of two
    dump = {name: LAYOUTS[layout](a) if name in ("mlp", "self_attn.q_b_proj") else a for name, a in arrays.items()}
    report = validate(dump, weights, "bfloat16")
    assert report.verdict == "pass"
    how = {r.dump_name: r.how for r in report.steps}["self_attn.q_b_proj"]
    assert how.startswith("transformers name, from [")


def test_head_axes_before_or_after_the_positions(golden):
    arrays, weights = golden
    H = weights.config.num_attention_heads
    q = heads(arrays["self_attn.q_b_proj"], H)
    for changed in (q, q.transpose(0, 2, 1, 3), q[0], q[0].transpose(1, 0, 2)):
        report = validate(arrays | {"self_attn.q_b_proj": changed}, weights, "float32")
        assert report.verdict == "pass"
        assert report.first_divergence is None


def test_equal_axes_are_told_apart_by_value(golden):
    arrays, weights = golden
    H = weights.config.num_attention_heads
    short = {"input": arrays["input"][:, :H], "position_ids": arrays["position_ids"][:, :H]}  # T = H
    q = heads(arrays["self_attn.q_b_proj"][:, :H], H)
    for changed in (q, q.transpose(0, 2, 1, 3)):
        report = validate(short | {"self_attn.q_b_proj": changed}, weights, "float32")
        assert report.verdict == "pass"


def to_halves(x):
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def test_rotary_parts_in_half_split_order_are_the_same_values():
    arrays, _, weights = read_dump("deepseek-bf16")
    N, R = weights.config.qk_nope_head_dim, weights.config.qk_rope_head_dim
    dump = dict(arrays)
    dump["attn.q_pe"], dump["attn.k_pe"] = to_halves(dump["attn.q_pe"]), to_halves(dump["attn.k_pe"])
    q = heads(dump["attn.wq_b"], weights.config.num_attention_heads)
    dump["attn.wq_b"] = np.concatenate([q[..., :N], to_halves(q[..., N:])], axis=-1)
    dump["attn.wkv_a"] = np.concatenate(
        [dump["attn.wkv_a"][..., :-R], to_halves(dump["attn.wkv_a"][..., -R:])], axis=-1
    )
    report = validate(dump, weights, "deepseek-bf16")
    assert report.verdict == "pass"
    how = {r.step: r.how for r in report.steps}
    assert all("rotary part in half-split order" in how[step] for step in ("q", "q_rot", "kv_down", "k_rot"))
    assert "half-split" not in how["kv_up"]


def test_a_rotary_key_repeated_for_every_head():
    arrays, _, weights = read_dump("deepseek-bf16")
    H = weights.config.num_attention_heads
    dump = dict(arrays) | {"attn.k_pe": np.repeat(arrays["attn.k_pe"], H, axis=2)}
    report = validate(dump, weights, "deepseek-bf16")
    assert "the same for all heads" in {r.step: r.how for r in report.steps}["k_rot"]
    assert report.verdict == "pass"


def test_fused_names_are_cut(golden):
    arrays, weights = golden
    dump = {name: a for name, a in arrays.items() if "a_proj" not in name and "gate" not in name and "up_" not in name}
    dump["self_attn.fused_qkv_a_proj"] = np.concatenate(
        [arrays["self_attn.q_a_proj"], arrays["self_attn.kv_a_proj_with_mqa"]], axis=-1
    )
    dump["mlp.gate_up_proj"] = np.concatenate([arrays["mlp.gate_proj"], arrays["mlp.up_proj"]], axis=-1)
    report = validate(dump, weights, "float32")
    assert report.verdict == "pass"
    Q = weights.config.q_lora_rank
    found = {r.step: (r.dump_name, r.how) for r in report.steps}
    assert found["q_latent"] == ("self_attn.fused_qkv_a_proj", f"fused: q_latent then kv_down: [0:{Q}]")
    assert found["up"][0] == "mlp.gate_up_proj"


def test_two_names_of_one_step(golden):
    arrays, weights = golden
    report = validate(arrays, weights, "float32")
    found = {r.step: (r.dump_name, r.also) for r in report.steps}
    assert found["attn_out"] == ("self_attn.o_proj", ("self_attn",))
    doubled = arrays | {"self_attn": arrays["self_attn"] * 2}
    report = validate(doubled, weights, "float32")
    both = {r.dump_name: r.local.passed for r in report.steps if r.step == "attn_out"}
    assert both == {"self_attn.o_proj": True, "self_attn": False}


def test_unmatched_tensors_are_listed(golden):
    arrays, weights = golden
    report = validate(arrays | {"lm_head": np.zeros(3, np.float32), "q.in.codes": np.zeros(4, np.uint8)}, weights)
    assert {u.dump_name: u.why for u in report.not_compared} == {
        "lm_head": "the name means no step",
        "q.in.codes": "a quantised input",
    }
    assert report.to_json()["not_compared"] == ["lm_head", "q.in.codes"]


MASKS = {
    "additive": lambda m: np.where(m, 0.0, np.finfo(np.float32).min).astype(np.float32)[None, None],
    "infinite": lambda m: np.where(m, 0.0, -np.inf).astype(np.float32),
    "boolean": lambda m: m[None],
    "zeros and ones": lambda m: m.astype(np.int64),
    "padding": lambda m: np.ones((1, len(m)), np.int64),
}


@pytest.mark.parametrize("kind", MASKS)
def test_masks_of_every_kind_are_taken(golden, kind):
    arrays, weights = golden
    mask = MASKS[kind](causal_mask(arrays["input"].shape[1]))
    report = validate(arrays | {"attention_mask": mask}, weights, "float32")
    assert report.verdict == "pass"
    assert not any("causal mask assumed" in note for note in report.notes)


def test_a_mask_that_lets_queries_look_ahead_is_said(golden):
    arrays, weights = golden
    T = arrays["input"].shape[1]
    everything = np.ones((T, T), bool)
    R = rotary_table(weights.config, arrays["position_ids"])
    steps = dict(trace(arrays["input"], R, everything, weights))
    dump = steps | {"input": arrays["input"], "position_ids": arrays["position_ids"], "attention_mask": everything}
    report = validate(dump, weights, "float32")
    assert report.verdict == "pass"
    assert "the dump's attention_mask lets queries see later keys, and is used as it is" in report.notes


def test_a_trace_and_its_file_are_dumps(golden, tmp_path):
    arrays, weights = golden
    R = rotary_table(weights.config, arrays["position_ids"])
    found = trace(arrays["input"], R, causal_mask(arrays["input"].shape[1]), weights)
    found.save(tmp_path / "t.safetensors")
    for source in (found, tmp_path / "t.safetensors"):
        report = validate(source, weights, "float32")
        assert report.verdict == "pass"
        assert "no position_ids: positions found from the rotary table" in report.notes
        naive = [step for step in STEPS.values() if step.attention != "absorb"]
        assert len(report.steps) == len(naive) - 1  # resid_pre is the input
    np.savez(tmp_path / "t.npz", input=arrays["input"], gate=found["gate"], position_ids=arrays["position_ids"])
    assert validate(tmp_path / "t.npz", weights, "float32").verdict == "pass"


def test_llama_cpp_gives_the_latent_and_its_norm_one_name(golden):
    arrays, weights = golden
    R = rotary_table(weights.config, arrays["position_ids"])
    steps = trace(arrays["input"], R, causal_mask(arrays["input"].shape[1]), weights)
    for step in ("kv_latent", "kv_latent_norm"):
        dump = {"inp_embd": arrays["input"][0], "kv_cmpr-0": steps[step][0], "kqv_out-0": steps["z"][0].reshape(12, -1)}
        report = validate(dump | {"position_ids": arrays["position_ids"]}, weights, "float32")
        assert report.verdict == "pass"
        assert [r.step for r in report.steps] == [step, "z"]


def test_one_layer_of_several(golden):
    arrays, weights = golden
    several = {f"model.layers.{n}.mlp": arrays["mlp"] + n for n in (0, 1)}
    dump = {"input": arrays["input"], "position_ids": arrays["position_ids"], **several}
    with pytest.raises(InputError, match=r"expected tensors of one layer, found layers \[0, 1\]"):
        read(dump, weights.config)
    assert [m.dump_name for m in read(dump, weights.config, layer=1).matched] == ["model.layers.1.mlp"]
    assert [u.why for u in read(dump, weights.config, layer=1).not_compared] == ["of layer 0, not 1"]


def everything_nan(arrays):
    return {n: np.full_like(a, np.nan) if a.dtype.kind == "f" and n != "input" else a for n, a in arrays.items()}


BAD = {
    "no input": (lambda a: {n: v for n, v in a.items() if n != "input"}, "expected a tensor input"),
    "nothing": (lambda a: {}, "expected named tensors, found none"),
    "only input": (lambda a: {"input": a["input"]}, "nothing to compare"),
    "other names": (lambda a: {"input": a["input"], "foo": a["mlp"]}, "nothing to compare: .* found foo"),
    "wrong width": (lambda a: a | {"input": a["input"][..., :50]}, r"input: expected floats \[B, T, 96\].*found"),
    "width of a step": (lambda a: a | {"mlp": a["mlp"][..., :5]}, r"mlp: expected mlp_out \[B 1, T 12, D 96\]"),
    "batch": (lambda a: a | {"input": np.tile(a["input"], (2, 1, 1))}, r"expected .* \[B 2, .*found \[1, 12"),
    "huge input": (
        lambda a: a | {"input": a["input"].astype(np.float64) * 1e300},
        r"input\[0, 0, 0\]: expected finite values that float32 holds; found -?[0-9.]+e\+[23]",
    ),
    "NaN input": (
        lambda a: a | {"input": a["input"] * np.nan},
        r"input\[0, 0, 0\]: expected finite values that float32 holds",
    ),
    "NaN everywhere": (
        lambda a: {n: v for n, v in everything_nan(a).items() if "mask" not in n and "rotary" not in n},
        "NaN everywhere in 1[0-9] tensors",
    ),
    "positions": (
        lambda a: a | {"position_ids": a["position_ids"][:, :3]},
        r"position_ids: expected \[12\] or \[1, 12\]",
    ),
    "negative positions": (lambda a: a | {"position_ids": a["position_ids"] - 1}, "expected integers from 0 on"),
    "mask shape": (
        lambda a: a | {"attention_mask": np.zeros((5, 5), np.float32)},
        r"attention_mask: expected \[.., 12",
    ),
    "mask of ones": (lambda a: a | {"attention_mask": np.ones((12, 12), np.float32)}, "attention_mask: an additive"),
    "table": (lambda a: a | {"rotary.cos": np.ones((2, 3))}, "rotary.cos, rotary.sin: expected"),
    "text": (lambda a: {"input": np.array(["a"])}, "input: expected real numbers"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_dump_is_one_clear_line(golden, kind):
    arrays, weights = golden
    spoil, message = BAD[kind]
    with pytest.raises(InputError, match=message) as error:
        validate(spoil(arrays), weights, "float32")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"input,output\n1,2\n"])
def test_a_file_that_is_no_dump_is_named(golden, tmp_path, content):
    path = tmp_path / "dump.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"dump.safetensors: expected"):
        validate(path, golden[1], "float32")


def test_a_recipe_that_the_weights_do_not_allow(golden):
    with pytest.raises(InputError, match="expected an FP8 weight with block scales"):
        validate(FIXTURES / "dumps" / "kimi-f32.safetensors", golden[1], "deepseek-fp8")
