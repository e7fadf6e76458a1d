import dataclasses
import json
import os

import numpy as np
import pytest

from blocklab import BlockConfig, InputError
from blocklab.block.config import PRESETS, preset_dict
from blocklab.store.accounting import cache_numbers, components, totals


def settings(**changes):
    return {**preset_dict("kimi-k2"), **changes}


def rope(**changes):
    return {"rope_scaling": {**preset_dict("kimi-k2")["rope_scaling"], **changes}}


def test_kimi_k2_counts_what_the_paper_says():
    sums = totals(components(BlockConfig.preset("kimi-k2")))
    assert sums["total"]["parameters"] == 497_500_160
    assert sums["attention"]["parameters"] == 101_124_096
    assert sums["mlp"]["parameters"] == 396_361_728
    assert sums["norms"] == {"parameters": 14_336, "bytes": 28 * 1024}
    assert round(sums["total"]["bytes"] / 2**20, 1) == 474.5
    assert round(sums["attention"]["bytes"] / 2**20, 1) == 96.4
    assert sums["mlp"]["bytes"] == 378 * 2**20


def test_softmax_scale():
    assert BlockConfig.preset("kimi-k2").softmax_scale == 0.13086079996295005
    assert BlockConfig.from_dict(settings(rope_scaling=None)).softmax_scale == 192**-0.5


def test_a_token_leaves_576_numbers_in_the_cache_and_20480_without_compression():
    assert cache_numbers(BlockConfig.preset("kimi-k2")) == {"latent": 576, "full": 20_480}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_reads(name):
    config = BlockConfig.preset(name)
    assert config.yarn is not None
    assert config.weight_block_size == (128, 128)


def test_the_small_preset_hides_no_mixed_up_axis():
    c = BlockConfig.preset("kimi-k2-small")
    sizes = [c.hidden_size, c.intermediate_size, c.num_attention_heads, c.q_lora_rank, c.kv_lora_rank]
    sizes += [c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, c.num_attention_heads * c.v_head_dim]
    assert len(set(sizes)) == len(sizes)
    assert all(k % 128 == 0 for k in (sizes[0], sizes[1], sizes[3], sizes[4], sizes[-1]))


def test_presets_differ_where_the_models_do():
    assert BlockConfig.preset("kimi-k2-0905").yarn.factor == 64
    v3 = BlockConfig.preset("deepseek-v3")
    assert (v3.rope_theta, v3.yarn.factor, v3.yarn.beta_fast, v3.num_attention_heads) == (10000, 40, 32, 128)


def test_both_spellings_of_the_rope_settings_and_nested_text_config_mean_the_same():
    old = settings()
    new = settings()
    scaling = new.pop("rope_scaling")
    new["rope_parameters"] = {
        "rope_type": scaling.pop("type"),
        "rope_theta": new.pop("rope_theta"),
        **scaling,
    }
    nested = {"model_type": "kimi_vl", "text_config": old}
    expected = BlockConfig.preset("kimi-k2")
    assert BlockConfig.from_dict(old) == BlockConfig.from_dict(new) == BlockConfig.from_dict(nested) == expected


def test_plain_rope():
    assert BlockConfig.from_dict(settings(rope_scaling=None)).yarn is None
    plain = settings(rope_scaling=None, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    assert (BlockConfig.from_dict(plain).yarn, BlockConfig.from_dict(plain).rope_theta) == (None, 1e6)


def test_rope_settings_said_twice_or_by_kind_of_layer_are_read_where_they_agree():
    scaling, expected = rope()["rope_scaling"], BlockConfig.preset("kimi-k2")
    for changes in (
        {"rope_scaling": None, "rope_parameters": {"full_attention": {**scaling, "rope_theta": 50000}}},
        {"rope_parameters": {**scaling, "rope_theta": 50000.0}},
        {"rope_parameters": {}, "original_max_position_embeddings": 4096},
        {"partial_rotary_factor": 1.0},
        {"partial_rotary_factor": 0.5, "head_dim": 128},
        rope(rope_type="yarn", attention_factor=None, partial_rotary_factor=1, truncate=True),
    ):
        assert BlockConfig.from_dict(settings(**changes)) == expected


YARN = "yarn (factor 32, original_max_position_embeddings 4096, beta_fast 1, beta_slow 1, mscale 1, mscale_all_dim 1)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "default"}},
            f"rope_parameters and rope_scaling contradict each other: found default and {YARN}",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
            "rope_theta and rope_parameters.rope_theta contradict each other: found 50000.0 and 10000.0",
        ),
        (
            rope(rope_theta=1e4),
            "rope_theta and rope_scaling.rope_theta contradict each other: found 50000.0 and 10000.0",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            f"rope_parameters.full_attention and rope_scaling contradict each other: found default and {YARN}",
        ),
        (
            {"rope_parameters": {"full_attention": {}, "sliding_attention": {}}},
            "rope_parameters must be of one kind of layer, or of all; found full_attention, sliding_attention",
        ),
        (rope(rope_type="default"), "rope_type and type contradict each other: found ['default', 'yarn']"),
        (
            rope(type="default"),
            "rope type default has no factor, original_max_position_embeddings, beta_fast, beta_slow",
        ),
        (rope(fator=32), "rope_scaling has settings that mean nothing here: fator"),
        (
            {"rope_parameters": {"x\n": {"y\x1b": 1}}},
            r"rope_parameters.'x\n' has settings that mean nothing here: 'y\x1b'",
        ),
        (
            {"partial_rotary_factor": 0.5},
            "partial_rotary_factor must be 1, since all of qk_rope_head_dim 64 rotates; found 0.5",
        ),
        (rope(partial_rotary_factor=0.5), "rope_scaling.partial_rotary_factor must be 1"),
        ({"partial_rotary_factor": 0.5, "head_dim": 192}, "partial_rotary_factor must be 1"),
        ({"original_max_position_embeddings": 8192}, "and rope_scaling.original_max_position_embeddings contradict"),
        ({"rope_theta": None}, "rope_theta is missing"),
    ],
)
def test_rope_settings_that_contradict_each_other_or_mean_nothing(changes, message):
    with pytest.raises(InputError, match=r"^config: ") as error:
        BlockConfig.from_dict(settings(**changes))
    assert message in str(error.value)


def test_what_stands_beside_a_text_config():
    inner, outer = settings(), {"weight_block_size": [64, 32]}
    inner.pop("quantization_config")
    found = BlockConfig.from_dict({"text_config": inner, "quantization_config": outer})
    assert found.weight_block_size == (64, 32)
    for name, value in (
        ("quantization_config", outer),
        ("rope_theta", 1e4),
        ("rope_parameters", {"rope_type": "default"}),
    ):
        with pytest.raises(InputError, match="contradict each other"):
            BlockConfig.from_dict({"text_config": settings(), name: value})


def test_absent_mscale_settings_take_their_published_defaults():
    scaling = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096}
    yarn = BlockConfig.from_dict(settings(rope_scaling=scaling)).yarn
    assert (yarn.beta_fast, yarn.beta_slow, yarn.mscale, yarn.mscale_all_dim) == (32, 1, 1, 0)


def test_which_layers_are_dense():
    kimi, v3 = BlockConfig.preset("kimi-k2"), BlockConfig.preset("deepseek-v3")
    assert [kimi.is_dense(n) for n in (0, 1, 60)] == [True, False, False]
    assert [v3.is_dense(n) for n in (0, 2, 3)] == [True, True, False]
    no_experts = BlockConfig.from_dict(settings(n_routed_experts=None))
    assert no_experts.is_dense(40)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"qk_rope_head_dim": 63}, "qk_rope_head_dim must be even"),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be positive"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps must be a finite number; found '1e-6'"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": 7168.0}, "hidden_size must be an integer; found 7168.0"),
        ({"hidden_size": -1}, "hidden_size must be positive; found -1"),
        ({"num_attention_heads": True}, "num_attention_heads must be an integer"),
        ({"num_key_value_heads": 8}, "num_key_value_heads must equal num_attention_heads"),
        ({"q_lora_rank": 0}, "q_lora_rank must be positive"),
        ({"hidden_size": 10**400}, "hidden_size must be at most 2147483647; found 1000"),
        ({"vocab_size": -5}, "vocab_size must be positive; found -5"),
        ({"rms_norm_eps": 1e-320}, "rms_norm_eps must be positive, a normal float32, and at most 1; found 1e-320"),
        ({"rope_theta": 10**400}, "rope_theta must be a finite number; found 1000"),
        ({"rope_theta": 1e308}, "rope_theta must be above 1, and at most 1e30; found 1e+308"),
        ({"rope_scaling": {"factor": 32.0}}, "rope settings with a factor must say their type: yarn"),
        (rope(factor=1e308), "rope factor must be at least 1, and at most 1e6"),
        (rope(beta_slow=1e-320), "both positive, from 1e-6 to 1e6"),
        (rope(mscale=-1.0), "rope mscale must be from 0 to 100; found -1.0"),
        (rope(mscale_all_dim=1e200), "rope mscale_all_dim must be from 0 to 100"),
        (rope(type="x" * 5000), "rope type must be yarn, default or absent; found 'xxx"),
        ({"rope_scaling": False}, "rope settings must be an object or null; found true or false"),
        ({"first_k_dense_replace": 1.5, "n_routed_experts": 8}, "first_k_dense_replace must be an integer"),
        ({"hidden_act": "gelu"}, 'hidden_act must be "silu"'),
        ({"attention_bias": True}, "attention_bias must be false"),
        ({"rope_theta": float("nan")}, "rope_theta must be a finite number"),
        ({"rope_theta": 1.0}, "rope_theta must be above 1"),
        (rope(beta_fast=0.5), "beta_fast must be at least beta_slow"),
        (rope(beta_slow=0.0), "both positive"),
        (rope(factor=0.5), "factor must be at least 1"),
        (rope(factor=None), "factor is missing"),
        (rope(original_max_position_embeddings=0), "original_max_position_embeddings must be positive"),
        (rope(type="linear"), "rope type must be yarn"),
        ({"rope_scaling": [1]}, "rope settings must be an object"),
        ({"quantization_config": {"weight_block_size": [128]}}, "weight_block_size must be two positive integers"),
        (
            {"quantization_config": {"weight_block_size": 128}},
            "must be two positive integers; found 128",
        ),
        (
            {"quantization_config": {"weight_block_size": [128, 128], "quant_method": "gptq"}},
            "quantization_config quant_method must be fp8 for blocks of FP8; found 'gptq'",
        ),
        (
            {"quantization_config": {"weight_block_size": [128, 128], "fmt": "e5m2"}},
            "quantization_config fmt must be e4m3 for blocks of FP8; found 'e5m2'",
        ),
        ({"quantization_config": {"weight_block_size": [128, 0]}}, "weight_block_size must be two positive integers"),
    ],
)
def test_impossible_settings_are_refused_with_a_sentence(changes, words):
    with pytest.raises(InputError, match=r"^config: ") as error:
        BlockConfig.from_dict(settings(**changes))
    assert words in str(error.value)
    assert len(str(error.value)) < 400


def test_config_json(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(preset_dict("kimi-k2")))
    assert BlockConfig.from_json(path) == BlockConfig.from_json(tmp_path) == BlockConfig.preset("kimi-k2")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\xff", "[" * 100_000, '{"a": %s}' % ("1" * 5000)])
def test_a_broken_config_json_names_the_file(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"config\.json: "):
        BlockConfig.from_json(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"hidden_size": 1, "hidden_size": 2}', "duplicate key hidden_size"),
        ('{"rope_scaling": {"factor": 1, "factor": 2}}', "duplicate key factor"),
        ('{"model_type": "\\ud800"}', "expected Unicode text, found a lone surrogate"),
        ('{"\\ud800": 1}', "expected Unicode text, found a lone surrogate"),
    ],
)
def test_a_config_json_that_can_be_read_in_two_ways(tmp_path, text, words):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=rf"config\.json: {words}"):
        BlockConfig.from_json(tmp_path)


def test_a_config_json_that_may_never_end(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    for path in (tmp_path, "/dev/zero"):
        with pytest.raises(InputError, match="expected a file, found something else"):
            BlockConfig.from_json(path)


def test_a_missing_config_json_and_an_unknown_preset(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: cannot be read: No such file"):
        BlockConfig.from_json(tmp_path)
    with pytest.raises(InputError, match="no preset 'kimi'; there are kimi-k2"):
        BlockConfig.preset("kimi")


@pytest.mark.parametrize("size", [(0, 128), (128,), [128, 128], 128, (128.0, 128)])
def test_blocks_that_cannot_be(size):
    with pytest.raises(InputError, match="weight_block_size must be two positive integers"):
        dataclasses.replace(BlockConfig.preset("kimi-k2"), weight_block_size=size)


def test_numpys_numbers_become_pythons():
    config = dataclasses.replace(
        BlockConfig.preset("kimi-k2-small"), num_attention_heads=np.uint8(200), rms_norm_eps=np.float32(2.0**-20)
    )
    assert config.num_attention_heads * config.qk_head_dim == 200 * 160
    assert json.loads(json.dumps(dataclasses.asdict(config)))["rms_norm_eps"] == 2.0**-20


def test_yarn_is_no_dictionary():
    with pytest.raises(InputError, match="yarn must be a Yarn or None; found "):
        dataclasses.replace(BlockConfig.preset("kimi-k2"), yarn={"factor": 2})
