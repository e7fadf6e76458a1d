import dataclasses
import hashlib
import math
import tracemalloc

import numpy as np
import pytest

from blocklab.block.config import BlockConfig
from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.weights import weight_shapes
from blocklab.errors import InputError
from blocklab.numerics import RECIPES, decode
from blocklab.synth import circuits
from blocklab.synth import weights as synthetic
from blocklab.synth.circuits import RESIDUAL, byte_codes, loud_channel
from blocklab.synth.weights import (
    outlier_neurons,
    synthetic_embedding,
    synthetic_tensors,
    synthetic_weight,
    synthetic_weights,
    text_tokens,
)

SMALL = BlockConfig.preset("kimi-k2-small")
ODD = BlockConfig(
    hidden_size=300, intermediate_size=333, num_attention_heads=3, q_lora_rank=70, kv_lora_rank=90,
    qk_nope_head_dim=20, qk_rope_head_dim=10, v_head_dim=30, rms_norm_eps=1e-6, rope_theta=10000.0, yarn=None,
)  # fmt: skip
VARIANTS = {
    "no query latent": dataclasses.replace(SMALL, q_lora_rank=None),
    "DeepSeek's rope, odd width": dataclasses.replace(
        BlockConfig.preset("deepseek-v3"), hidden_size=777, num_attention_heads=5, intermediate_size=700
    ),
    "plain rope, narrow": dataclasses.replace(SMALL, yarn=None, qk_rope_head_dim=32, q_lora_rank=128, kv_lora_rank=130),
}
MATRICES = [name for name, shape in weight_shapes(SMALL).items() if len(shape) == 2]
TEXTS = {"cat": "the cat sat on the mat", "runs": "AAAA banana 01230123 aaaa\n", "utf8": "déjà vu: 数 " * 12}


def run(config, text, recipe="deepseek-fp8", seed=0, shift=0, dtype="fp8", tokens=None):
    """The token ids of a text and all steps of the block on them, batch axis dropped."""
    ids = np.array(text_tokens(text) if tokens is None else tokens)
    x = synthetic_embedding(config, seed).values()[ids][None]
    R = rotary_table(config, np.arange(len(ids)) + shift, RECIPES[recipe].rotary_table)
    steps = {}

    def tap(name, value):
        steps[name] = value[0]
        return value

    dense_block(x, R, causal_mask(len(ids)), synthetic_weights(config, seed, dtype), recipe, tap=tap)
    return ids, steps


def shares(ids, pattern):
    """The least share of attention, over all queries, of the previous token, equal bytes and the first token."""
    T = len(ids)
    t = np.arange(1, T)
    equal = (ids[:, None] == ids) & causal_mask(T)
    return pattern[0, t, t - 1].min(), (pattern[1] * equal).sum(1).min(), pattern[2, :, 0].min()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("recipe", ["float32", "bfloat16", "deepseek-bf16", "deepseek-fp8"])
@pytest.mark.parametrize(("seed", "shift"), [(0, 0), (1, 1000), (2, 100_000)])
def test_three_heads_do_what_they_were_built_for(text, recipe, seed, shift):
    ids, steps = run(SMALL, text, recipe, seed, shift)
    pattern = steps["pattern"]
    previous, equal, first = shares(ids, pattern)
    assert previous > 0.98
    assert equal > 0.99
    assert first > 0.99
    assert (pattern[0].argmax(1)[1:] == np.arange(len(ids) - 1)).all()
    repeated = (ids[:, None] == ids) & causal_mask(len(ids))
    even = pattern[1][repeated] * np.broadcast_to(repeated.sum(1, keepdims=True), repeated.shape)[repeated]
    assert 0.5 < even.min() <= even.max() < 1.6  # equal bytes share evenly, whatever their distance


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_heads_hold_in_other_configs(config):
    for recipe in ("float32", "deepseek-fp8"):
        ids, steps = run(config, TEXTS["cat"], recipe, seed=3, shift=77)
        assert min(shares(ids, steps["pattern"])) > 0.97


def test_heads_hold_with_bfloat16_weights():
    ids, steps = run(SMALL, TEXTS["utf8"], "bfloat16", dtype="bfloat16")
    assert min(shares(ids, steps["pattern"])) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["kimi-k2", "deepseek-v3"])
def test_heads_hold_at_full_size(preset):
    ids, steps = run(BlockConfig.preset(preset), TEXTS["cat"])
    assert min(shares(ids, steps["pattern"])) > 0.98


def test_heads_use_only_the_part_they_are_said_to_use():
    _, steps = run(SMALL, TEXTS["cat"], "float32")
    assert not steps["q_nope"][:, 0].any()
    assert not steps["k_nope"][:, 0].any()
    assert not steps["q_rot"][:, 1:3].any()
    assert np.ptp(steps["pattern"][3:].argmax(2), axis=0).max() > 0  # the others are noise, and differ


def test_previous_token_score_is_the_sum_of_cosines():
    _, steps = run(SMALL, TEXTS["utf8"], "float32", shift=500)
    omega = np.angle(rotary_table(SMALL, np.array([1])))[0]
    t, s = np.nonzero(causal_mask(len(steps["resid_pre"])))
    cosines = (omega * np.cos(omega * (t - 1 - s)[:, None])).sum(1) / omega.sum()
    scores = steps["attn_scores"][0][t, s]
    assert np.corrcoef(scores, cosines)[0, 1] > 0.995
    assert scores.max() == pytest.approx(circuits.PREVIOUS_LOGIT, rel=0.2)


def test_without_a_start_head_2_looks_everywhere_evenly():
    ids = np.frombuffer(b"no start here", np.uint8)
    _, steps = run(SMALL, "", "float32", tokens=ids)
    even = np.tri(len(ids)) / np.arange(1, len(ids) + 1)[:, None]
    np.testing.assert_allclose(steps["pattern"][2], even, rtol=1e-5)


def test_head_0_writes_the_previous_byte_where_it_can_be_read():
    for recipe in ("float32", "deepseek-fp8"):
        ids, steps = run(SMALL, TEXTS["runs"], recipe)
        likeness = steps["resid_mid"][:, circuits.PREVIOUS] @ byte_codes().T / (circuits.CODE * RESIDUAL)
        assert (likeness.argmax(1)[1:] == ids[:-1]).all()
        assert likeness.max(1) == pytest.approx(1, abs=0.35)


def test_neuron_0_fires_on_vowels_alone():
    for seed in range(3):
        ids, steps = run(SMALL, bytes(range(256)) + b"the quick brown fox", seed=seed)
        vowels = np.isin(ids, list(b"aeiou"))
        assert steps["act"][vowels, 0].min() > 8
        assert np.abs(steps["act"][~vowels, 0]).max() < 2
        assert steps["mlp_out"][vowels, circuits.VOWEL] == pytest.approx(4 * RESIDUAL, rel=0.5)


def test_byte_codes_interfere_by_at_most_an_eighth():
    likeness = byte_codes() @ byte_codes().T / circuits.CODE
    assert set(np.unique(likeness)) == {-0.125, 0, 0.125, 1}
    assert (np.argwhere(likeness == 1) == np.arange(256)[:, None]).all()


def test_residual_stream_is_shaped_as_in_a_trained_model():
    for seed in range(3):
        _, steps = run(SMALL, TEXTS["utf8"], seed=seed)
        loud = loud_channel(SMALL)
        assert (steps["resid_pre"][:, loud] == 32 * RESIDUAL).all()
        quiet = rms(np.delete(steps["resid_pre"], loud, 1))
        assert quiet == pytest.approx(RESIDUAL, rel=0.15)
        assert 0.1 < rms(steps["attn_out"]) / quiet < 1
        assert 0.1 < rms(steps["mlp_out"]) / quiet < 1
        assert 0.4 < rms(steps["attn_norm"]) < 1.2
        assert 0.8 < rms(steps["kv_latent_norm"]) < 1.25
        outliers = outlier_neurons(SMALL, seed)
        assert rms(steps["act"][:, outliers]) > 5 * rms(np.delete(steps["act"], [0, *outliers], 1))


def rms(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def test_norm_gains_vary_and_are_small_for_the_loud_channel():
    gain = synthetic_weight(SMALL, "input_layernorm.weight").values()
    assert gain[loud_channel(SMALL)] == 0.25
    assert np.std(
        np.log(np.delete(gain[circuits.VOWEL + 1 :], loud_channel(SMALL) - circuits.VOWEL - 1))
    ) == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("config", [SMALL, ODD, dataclasses.replace(ODD, weight_block_size=(32, 64))])
def test_every_block_reaches_448_or_is_zero(config):
    zero = 0
    for name, w in synthetic_weights(config, seed=5).named().items():
        assert w.shape == weight_shapes(config)[name]
        if len(w.shape) == 1:
            assert (w.format, w.raw.dtype) == ("bfloat16", np.uint16)
            continue
        height, width = w.block
        assert w.block == (config.weight_block_size or (128, 128))
        assert w.scale.shape == (math.ceil(w.shape[0] / height), math.ceil(w.shape[1] / width))
        assert w.scale.dtype == np.float32
        codes = np.abs(decode(w.raw, "e4m3fn"))
        amax = np.array(
            [[codes[i : i + height, j : j + width].max() for j in range(0, w.shape[1], width)]
             for i in range(0, w.shape[0], height)]
        )  # fmt: skip
        assert set(np.unique(amax)) <= {0, 448}
        wires = circuits.wires(config, name)
        cleared = [] if wires is None else wires.cleared
        for i, j in np.argwhere(amax == 0):
            rows = range(i * height, min((i + 1) * height, w.shape[0]))
            last_of_up = (name, i, j) == ("mlp.up_proj.weight", len(amax) - 1, 0)
            assert last_of_up or set(rows) <= set(cleared)
        zero += name == "mlp.up_proj.weight" and (amax == 0).sum()
    assert zero == 1


def test_blocks_differ_by_powers_of_two():
    scale = synthetic_weight(SMALL, "self_attn.o_proj.weight").scale[2:]  # the first two hold wires
    steps = np.log2(scale[:, 1:] / scale[:, :-1])
    assert np.abs(np.abs(steps) - np.where(np.abs(steps) > 1.5, 2, 1)).max() < 0.25


@pytest.mark.parametrize("config", [ODD, dataclasses.replace(ODD, q_lora_rank=None)])
def test_configs_too_small_for_the_heads_are_all_noise(config):
    assert not circuits.fits(config)
    assert all(circuits.wires(config, name) is None for name in weight_shapes(config))
    for recipe in ("float32", "deepseek-fp8"):
        _, steps = run(config, TEXTS["cat"], recipe)
        assert np.isfinite(steps["resid_post"]).all()
        assert 0.02 < rms(steps["attn_out"]) / RESIDUAL < 2


def test_heads_fit_every_preset():
    for preset in ("kimi-k2", "kimi-k2-0905", "deepseek-v3", "kimi-k2-small"):
        assert circuits.fits(BlockConfig.preset(preset))


def test_one_tensor_is_made_without_the_others_and_depends_on_the_seed():
    whole = synthetic_weights(SMALL, seed=7).named()
    for name in weight_shapes(SMALL):
        one = synthetic_weight(SMALL, name, seed=7)
        np.testing.assert_array_equal(one.raw, whole[name].raw)
        assert (one.raw != synthetic_weight(SMALL, name, seed=8).raw).any()
    other = dataclasses.replace(SMALL, intermediate_size=2048)
    np.testing.assert_array_equal(synthetic_weight(other, MATRICES[0], 7).raw, whole[MATRICES[0]].raw)


def test_values_are_the_same_on_every_machine():
    """Digests of `synthetic_weight(preset kimi-k2-small, name)`, seed 0: codes, then scales; made by this code."""
    digests = {}
    for name in ("mlp.up_proj.weight", "self_attn.o_proj.weight", "self_attn.kv_a_layernorm.weight"):
        w = synthetic_weight(SMALL, name)
        digests[name] = hashlib.sha256(w.raw.tobytes() + (b"" if w.scale is None else w.scale.tobytes())).hexdigest()
    assert digests == DIGESTS


DIGESTS = {
    "mlp.up_proj.weight": "b5834187b1871dbef8e35332c5477131bf6162618a8f1d270e9aea6120c93756",
    "self_attn.kv_a_layernorm.weight": "ea01c7fa1487ffda55351ad20eef3936f1d59e4d62019fc6d81a692ebd283fb3",
    "self_attn.o_proj.weight": "6b91fa8968d1442415eead7e015fbe4231d4f6162485f01442bb445c3b3dbe76",
}


@pytest.mark.parametrize("dtype", ["fp8", "bfloat16"])
@pytest.mark.parametrize("config", [SMALL, ODD, VARIANTS["no query latent"]])
def test_lazy_tensors_are_the_weights(config, dtype):
    weights = synthetic_weights(config, 1, dtype).named()
    expected = {}
    for name, w in weights.items():
        expected[name] = w.raw
        if w.scale is not None:
            expected[f"{name}_scale_inv"] = w.scale
    tensors = list(synthetic_tensors(config, 1, dtype))
    assert [t.name for t in tensors] == list(expected)
    stored = {"F8_E4M3": np.uint8, "BF16": np.uint16, "F32": np.float32}
    for tensor in tensors:
        made = tensor.make()
        assert made.shape == tensor.shape
        assert made.dtype == stored[tensor.dtype]
        np.testing.assert_array_equal(made, expected[tensor.name])


def test_bfloat16_is_the_same_before_quantisation():
    for name in MATRICES:
        exact = synthetic_weight(SMALL, name, dtype="bfloat16").values()
        error = rms(synthetic_weight(SMALL, name).values() - exact) / rms(exact)
        assert 0.01 < error < 0.04


def test_nothing_is_made_before_it_is_asked_for(monkeypatch):
    def refuse(*args):
        raise AssertionError("made too early")

    monkeypatch.setattr(synthetic, "noise", refuse)
    monkeypatch.setattr(synthetic, "log_normal", refuse)
    tensors = list(synthetic_tensors(BlockConfig.preset("kimi-k2")))
    assert sum(math.prod(t.shape) for t in tensors if t.dtype != "F32") == 497_500_160
    with pytest.raises(AssertionError, match="too early"):
        tensors[0].make()


def test_a_full_size_tensor_takes_little_more_memory_than_itself():
    tensors = {t.name: t for t in synthetic_tensors(BlockConfig.preset("kimi-k2"))}
    tracemalloc.start()
    made = tensors["self_attn.q_b_proj.weight"].make()
    scales = tensors["self_attn.q_b_proj.weight_scale_inv"].make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.nbytes == 12288 * 1536
    assert scales.shape == (96, 12)
    assert peak < 1.5 * made.nbytes


def test_embedding_is_that_of_the_256_bytes():
    embedding = synthetic_embedding(SMALL)
    assert embedding.shape == (256, SMALL.hidden_size)
    assert embedding.format == "bfloat16"
    marked = np.flatnonzero(embedding.values()[:, circuits.START])
    assert marked.tolist() == [circuits.START_OF_TEXT] == [2]
    assert text_tokens("é!") == text_tokens("é!".encode()) == [2, 0xC3, 0xA9, 0x21]


@pytest.mark.parametrize("make", [synthetic_weights, synthetic_embedding, lambda c, s: list(synthetic_tensors(c, s))])
@pytest.mark.parametrize("seed", [-1, 1.5, "0", True])
def test_seeds_that_are_none_are_refused(make, seed):
    with pytest.raises(InputError, match=r"seed must be a non-negative integer; found"):
        make(ODD, seed)


def test_unknown_dtypes_and_names_are_refused():
    with pytest.raises(InputError, match="dtype must be fp8 or bfloat16; found 'int4'"):
        synthetic_weights(ODD, dtype="int4")
    with pytest.raises(InputError, match=r"no weight 'mlp\.gate\.weight'; the block has input_layernorm\.weight"):
        synthetic_weight(ODD, "mlp.gate.weight")
