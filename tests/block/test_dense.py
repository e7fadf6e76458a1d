"""Properties of the whole block, on a golden checkpoint."""

import numpy as np
import pytest

from blocklab import (
    RECIPES,
    BlockConfig,
    InputError,
    causal_mask,
    dense_block,
    rotary_table,
    synthetic_weights,
    validate,
)
from blocklab.block.cache import LatentCache
from blocklab.block.masks import combine_masks, padded_positions, padding_mask
from blocklab.block.steps import STEPS
from blocklab.block.taps import Chain, Replace
from blocklab.block.weights import BlockWeights
from blocklab.numerics.weight import Weight
from blocklab.store.trace import Recorder, trace
from goldens import FIXTURES, load_weights

RECIPE_CHECKPOINTS = [
    ("float64", "kimi-f32"),
    ("float32", "kimi-f32"),
    ("bfloat16", "kimi-bf16"),
    ("deepseek-bf16", "kimi-bf16"),
    ("deepseek-fp8", "kimi-fp8"),
    ("hopper-fp8", "kimi-fp8"),
]
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 2e-2}


def block_inputs(checkpoint, B=2, T=7, start=1000, seed=0):
    weights = load_weights(FIXTURES / "checkpoints" / checkpoint)
    x = np.random.default_rng(seed).standard_normal((B, T, weights.config.hidden_size)).astype(np.float32)
    return x, rotary_table(weights.config, np.arange(start, start + T)), causal_mask(T), weights


def relative(a, b):
    return np.linalg.norm(np.asarray(a, np.float64) - b) / np.linalg.norm(b)


def tolerance(recipe):
    return TOLERANCE[RECIPES[recipe].storage]


@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_values_lie_on_the_storage_grid_and_come_in_table_order(recipe, checkpoint, attention):
    from blocklab.numerics import round_to

    recorded = trace(*block_inputs(checkpoint), recipe, attention)
    expected = [s.name for s in STEPS.values() if s.attention in ("both", attention)]
    assert list(recorded) == expected
    for name, value in recorded.items():
        np.testing.assert_array_equal(round_to(value, RECIPES[recipe].storage), value, err_msg=name)
        assert str(value.dtype) == RECIPES[recipe].carrier
        assert value.ndim == len(STEPS[name].axes)


@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_a_batch_computes_what_its_rows_compute_alone(recipe, checkpoint, attention):
    x, R, M, weights = block_inputs(checkpoint)
    together = dense_block(x, R, M, weights, recipe, attention)
    for row in range(len(x)):
        alone = dense_block(x[row : row + 1], R, M, weights, recipe, attention)
        if RECIPES[recipe].fp8_linear:
            np.testing.assert_array_equal(together[row], alone[0])
        assert relative(together[row], alone[0]) <= tolerance(recipe)


@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_changing_a_token_changes_nothing_before_it(recipe, checkpoint):
    x, R, M, weights = block_inputs(checkpoint, T=6)
    changed = x.copy()
    changed[:, 4] += 1
    a, b = (dense_block(v, R, M, weights, recipe) for v in (x, changed))
    np.testing.assert_array_equal(a[:, :4], b[:, :4])
    assert (a[:, 4:] != b[:, 4:]).any(axis=-1).all()


@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS[:2])
def test_shifting_all_positions_changes_only_the_rotated_parts(recipe, checkpoint):
    x, R, M, weights = block_inputs(checkpoint)
    shifted = rotary_table(weights.config, np.arange(5000, 5000 + x.shape[1]))
    a, b = (trace(x, table, M, weights, recipe) for table in (R, shifted))
    for name in a:
        if name in ("q_rot", "k_rot"):
            assert relative(a[name], b[name]) > 0.1
        elif name not in ("attn_masked",):
            assert relative(a[name], b[name]) <= tolerance(recipe), name


@pytest.mark.parametrize("recipe", ["float64", "float32"])
def test_rotation_keeps_norms(recipe):
    recorded = trace(*block_inputs("kimi-f32"), recipe)
    N = 24
    for whole, rotated in (
        (recorded["q"][..., N:], recorded["q_rot"]),
        (recorded["kv_down"][..., 48:], recorded["k_rot"]),
    ):
        np.testing.assert_allclose(np.linalg.norm(rotated, axis=-1), np.linalg.norm(whole, axis=-1), rtol=1e-6)


@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_absorbed_equals_naive(recipe, checkpoint):
    # in float64 the two forms differ by rounding alone, FP8 weights included
    inputs = block_inputs(checkpoint)
    naive, absorbed = (dense_block(*inputs, recipe, attention) for attention in ("naive", "absorb"))
    limit = 5e-2 if RECIPES[recipe].fp8_linear else tolerance(recipe)
    assert relative(absorbed, naive) <= limit


def test_absorbed_equals_naive_from_fp8_weights_in_float64():
    inputs = block_inputs("kimi-fp8")
    naive, absorbed = (dense_block(*inputs, "float64", attention) for attention in ("naive", "absorb"))
    assert relative(absorbed, naive) <= 1e-14


@pytest.mark.parametrize("chunks", [[7], [1] * 7, [4, 1, 2], [3, 4]])
@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_a_cache_computes_what_one_prefill_computes(recipe, checkpoint, attention, chunks):
    x, R, M, weights = block_inputs(checkpoint)
    whole = trace(x, R, M, weights, recipe, attention)
    cache, start, parts = LatentCache(), 0, []
    for T in chunks:
        rows = slice(start, start + T)
        recorder = Recorder()
        dense_block(x[:, rows], R[rows], causal_mask(T, start + T), weights, recipe, attention, cache, recorder)
        parts.append(recorder.values)
        start += T
    assert len(cache) == 7
    assert cache.kv_latent_norm.shape[2] + cache.k_rot.shape[2] == weights.config.kv_lora_rank + 32 * (
        2 if checkpoint == "kimi-fp8" else 1
    )
    joined = {n: np.concatenate([p[n] for p in parts], axis=1) for n in ("q_rot", "kv_latent_norm", "k_rot", "z")}
    for name in ("q_rot", "kv_latent_norm", "k_rot"):
        if RECIPES[recipe].fp8_linear:
            np.testing.assert_array_equal(joined[name], whole[name], err_msg=name)
        assert relative(joined[name], whole[name]) <= tolerance(recipe), name
    assert relative(joined["z"], whole["z"]) <= tolerance(recipe)
    output = np.concatenate([p["resid_post"] for p in parts], axis=1)
    assert relative(output, whole["resid_post"]) <= tolerance(recipe)


@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_a_left_padded_row_equals_the_row_without_padding(recipe, checkpoint):
    x, _, _, weights = block_inputs(checkpoint)
    padding, T = [0, 3], x.shape[1]
    R = rotary_table(weights.config, padded_positions(padding, T))
    M = combine_masks(causal_mask(T), padding_mask(padding, T))
    padded = trace(x, R, M, weights, recipe)
    alone = trace(x[1:, 3:], rotary_table(weights.config, np.arange(T - 3)), causal_mask(T - 3), weights, recipe)
    for name in ("k_rot", "q_rot", "z", "resid_post"):
        assert relative(padded[name][1, 3:], alone[name][0]) <= tolerance(recipe), name
    assert (padded["pattern"][1, :, :3] == 0).all(), "a query that may look nowhere gets zeros"
    assert (padded["pattern"][1, :, :, :3] == 0).all()


@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_tiles_change_nothing(monkeypatch, recipe, checkpoint, attention):
    inputs = block_inputs(checkpoint, T=9)
    listened = trace(*inputs, recipe, attention)["resid_post"]
    monkeypatch.setattr("blocklab.block.tiling.TILE_SCORES", 1)
    monkeypatch.setattr("blocklab.block.tiling.TILE_TOKENS", 4)
    tiled = dense_block(*inputs, recipe, attention)
    if RECIPES[recipe].accumulate == "float32":
        assert relative(tiled, listened) <= tolerance(recipe)
    else:
        assert relative(tiled, listened) <= (1e-14 if recipe == "float64" else 0)


def test_boolean_and_additive_masks_agree():
    x, R, M, weights = block_inputs("kimi-f32")
    outputs = [dense_block(x, R, M, weights)]
    for hidden in (-np.inf, np.finfo(np.float32).min):
        outputs.append(dense_block(x, R, np.where(M, 0, hidden).astype(np.float32), weights))
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])


def test_rows_of_the_up_projection_are_per_head_nope_first():
    x, R, M, weights = block_inputs("kimi-f32")
    c = weights.config
    H, N, V, C = c.num_attention_heads, c.qk_nope_head_dim, c.v_head_dim, c.kv_lora_rank
    import dataclasses

    marked = np.zeros((H * (N + V), C), np.float32)
    marked[1 * (N + V) + 5] = 1  # nope element 5 of head 1
    marked[2 * (N + V) + N + 3] = 2  # value element 3 of head 2
    attn = dataclasses.replace(
        weights.self_attn, kv_b_proj=dataclasses.replace(weights.self_attn.kv_b_proj, raw=marked)
    )
    recorded = trace(x, R, M, dataclasses.replace(weights, self_attn=attn), "float64")
    total = recorded["kv_latent_norm"].sum(-1)
    np.testing.assert_allclose(recorded["k_nope"][:, :, 1, 5], total, rtol=1e-12)
    np.testing.assert_allclose(recorded["v"][:, :, 2, 3], 2 * total, rtol=1e-12)
    assert np.count_nonzero(np.abs(recorded["kv_up"]).sum((0, 1))) == 2


@pytest.mark.parametrize("T", [0, 1])
@pytest.mark.parametrize("attention", ["naive", "absorb"])
@pytest.mark.parametrize(("recipe", "checkpoint"), RECIPE_CHECKPOINTS)
def test_short_and_empty_inputs(recipe, checkpoint, attention, T):
    x, R, M, weights = block_inputs(checkpoint, T=T)
    assert dense_block(x, R, M, weights, recipe, attention).shape == x.shape
    assert dense_block(x[:0], R, M, weights, recipe, attention).shape == (0, *x.shape[1:])


def test_a_trace_says_what_it_is_in_one_line():
    inputs = block_inputs("kimi-f32")
    assert repr(trace(*inputs)) == "<Trace: 27 steps of input [2, 7, 96], recipe float32>"
    assert repr(trace(*inputs, keep="statistics", steps="q*")) == "<Trace: statistics of 5 steps, recipe float32>"
    assert trace(*inputs, labels="abcdefg").metadata["labels"] == '["a", "b", "c", "d", "e", "f", "g"]'


class TestTaps:
    def test_replacing_a_value_changes_what_follows_and_nothing_before(self):
        inputs = block_inputs("kimi-f32")
        plain = trace(*inputs)
        patched = trace(*inputs, tap=Replace(up=lambda up: np.zeros_like(up)))
        names = list(plain)
        for name in names[: names.index("up")]:
            np.testing.assert_array_equal(plain[name], patched[name])
        np.testing.assert_array_equal(patched["resid_post"], plain["resid_mid"])

    def test_quantised_inputs_can_be_replaced(self):
        """Codes of zero into the last linear: nothing is written to the residual stream."""
        silent = Replace(**{"mlp_out.in.codes": lambda codes: codes * 0})
        patched = trace(*block_inputs("kimi-fp8"), "deepseek-fp8", tap=silent)
        assert not patched["mlp_out"].any()
        np.testing.assert_array_equal(patched["resid_post"], patched["resid_mid"])

    def test_taps_in_a_chain_see_what_the_ones_before_return(self):
        seen = Recorder("resid_mid,resid_post")
        inputs = block_inputs("kimi-f32")
        dense_block(*inputs, tap=Chain(Replace(resid_mid=lambda x: x * 0), seen))
        assert not seen.values["resid_mid"].any()
        assert list(seen.values) == ["resid_mid", "resid_post"]

    def test_a_plain_function_hears_every_step(self):
        heard = []
        dense_block(*block_inputs("kimi-fp8"), "deepseek-fp8", tap=lambda name, value: heard.append(name) or value)
        assert heard == list(trace(*block_inputs("kimi-fp8"), "deepseek-fp8"))

    def test_quantised_inputs_are_recorded_when_asked_for(self):
        names = list(trace(*block_inputs("kimi-fp8"), "deepseek-fp8", steps="gate*,*.in.*"))
        assert names[:4] == ["q_latent.in.codes", "q_latent.in.scale", "q.in.codes", "q.in.scale"]
        assert {"gate", "gate_act", "mlp_out.in.scale"} <= set(names)
        quantised = [name for name in names if ".in." in name]
        assert list(trace(*block_inputs("kimi-fp8"), "deepseek-fp8", steps="*.in*")) == quantised

    @pytest.mark.parametrize("tap", [Replace(q=1.0), lambda name, value: None])
    def test_a_tap_must_return_the_same_shape(self, tap):
        with pytest.raises(InputError, match="must return an array of shape"):
            dense_block(*block_inputs("kimi-f32"), tap=tap)

    def test_a_tap_may_return_another_precision_and_no_other_kind_of_number(self):
        inputs = block_inputs("kimi-fp8")
        wide = trace(*inputs, "deepseek-fp8", tap=Replace(z=lambda z: z.astype(np.float64)))
        assert wide.digest() == trace(*inputs, "deepseek-fp8").digest()
        for replacement in (Replace(z=lambda z: z.astype(np.int32)), Replace(pattern=lambda p: p > 0.5)):
            with pytest.raises(InputError, match=r"must return float32 values; found (int32|bool)"):
                dense_block(*inputs, recipe="deepseek-fp8", tap=replacement)

    def test_scales_alone_are_shown_for_long_inputs_too(self, monkeypatch):
        monkeypatch.setattr("blocklab.block.tiling.TILE_TOKENS", 4)
        names = ["gate.in.scale", "mlp_out.in.scale"]
        assert list(trace(*block_inputs("kimi-fp8"), "deepseek-fp8", steps=",".join(names))) == names

    def test_unknown_steps_are_refused(self):
        with pytest.raises(InputError, match="cannot replace 'keys'"):
            Replace(keys=0)
        with pytest.raises(InputError, match=r"cannot replace 'resid_pre.in.codes': the quantised inputs are"):
            Replace(**{"resid_pre.in.codes": 0})
        with pytest.raises(InputError, match="no step matches 'keys'"):
            Recorder("q,keys")


class TestArguments:
    @pytest.mark.parametrize(
        "x", [np.ones((7, 96)), np.ones((1, 7, 95)), np.ones((1, 7, 96), int), np.ones((1, 7, 96), np.float16), None]
    )
    def test_input(self, x):
        _, R, M, weights = block_inputs("kimi-f32")
        with pytest.raises(InputError, match=r"input: expected float32 or float64 \[B, T, 96\]; found"):
            dense_block(x, R, M, weights)

    @pytest.mark.parametrize("R", [np.ones((7, 32)), np.ones((6, 16), complex), np.ones((3, 7, 16), complex), None])
    def test_rotary_table(self, R):
        x, _, M, weights = block_inputs("kimi-f32")
        with pytest.raises(InputError, match=r"rotary table: expected complex \[T, R/2\] = \[7, 16\]"):
            dense_block(x, R, M, weights)

    def test_recipe_and_attention(self):
        inputs = block_inputs("kimi-f32")
        with pytest.raises(InputError, match="no recipe 'fp8'; there are float64"):
            dense_block(*inputs, recipe="fp8")
        for option in ("latent_norm_eps", "amax_floor"):
            with pytest.raises(InputError, match=f"{option} must be a positive number below 1e30, "):
                dense_block(*inputs, recipe=f"float32,{option}=1e-320")
        with pytest.raises(InputError, match=r"recipe: expected a Recipe or one of float64, .*; found NoneType"):
            dense_block(*inputs, recipe=None)
        with pytest.raises(InputError, match="attention must be naive or absorb; found 'flash'"):
            dense_block(*inputs, attention="flash")
        with pytest.raises(InputError, match="mask: expected booleans"):
            dense_block(inputs[0], inputs[1], None, inputs[3])

    def test_weights(self):
        x, R, M, weights = block_inputs("kimi-f32")
        with pytest.raises(InputError, match=r"weights: expected BlockWeights, from load_weights.*; found dict"):
            dense_block(x, R, M, weights.named())

    def test_a_refused_mask_leaves_the_cache_as_it_was(self):
        x, R, M, weights = block_inputs("kimi-f32")
        cache = LatentCache()
        dense_block(x, R, M, weights, cache=cache)
        with pytest.raises(InputError, match=r"mask: expected \[T, S\] = \[7, 14\]"):
            dense_block(x, R, M, weights, cache=cache)
        assert len(cache) == 7

    @pytest.mark.parametrize("step", ["kv_latent_norm", "pattern", "gate", "resid_post"])
    def test_a_tap_that_fails_leaves_the_cache_as_it_was(self, step):
        x, R, M, weights = block_inputs("kimi-f32")
        cache, alone = LatentCache(), LatentCache()
        dense_block(x, R, M, weights, cache=cache)
        dense_block(x, R, M, weights, cache=alone)
        keys = causal_mask(7, 14)

        def fails(name, value):
            if name == step:
                raise KeyboardInterrupt
            return value

        with pytest.raises(KeyboardInterrupt):
            dense_block(x, R, keys, weights, cache=cache, tap=fails)
        with pytest.raises(InputError, match=f"the tap at {step} must return"):
            dense_block(x, R, keys, weights, cache=cache, tap=Replace(**{step: lambda value: value[..., :1]}))
        assert len(cache) == 7
        retried = dense_block(x, R, keys, weights, cache=cache)
        np.testing.assert_array_equal(retried, dense_block(x, R, keys, weights, cache=alone))

    def test_a_cache_of_another_batch(self):
        x, R, M, weights = block_inputs("kimi-f32")
        cache = LatentCache()
        dense_block(x, R, M, weights, cache=cache)
        with pytest.raises(InputError, match=r"cache: kv_latent_norm holds .* \[2, 7, 48\]; found .* \[1, 7, 48\]"):
            dense_block(x[:1], R, causal_mask(7, 14), weights, cache=cache)


class TestOddValues:
    @pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0), (1, 1)])
    @pytest.mark.parametrize("granularity", ["group", "token", "tensor"])
    @pytest.mark.parametrize("attention", ["naive", "absorb"])
    def test_few_tokens_or_none(self, shape, granularity, attention):
        weights = synthetic_weights(BlockConfig.preset("kimi-k2-small"))
        x = np.ones((*shape, 640), np.float32)
        R, M = rotary_table(weights.config, np.arange(shape[1])), causal_mask(shape[1])
        for recipe in ("float32", "bfloat16", f"deepseek-fp8,granularity={granularity}", "hopper-fp8"):
            assert dense_block(x, R, M, weights, recipe, attention).shape == x.shape

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
    @pytest.mark.parametrize("recipe", RECIPES)
    def test_nan_and_infinity_stay_visible_and_warn_of_nothing(self, value, recipe):
        weights = synthetic_weights(BlockConfig.preset("kimi-k2-small"))
        x = np.ones((2, 3, 640), np.float32)
        x[0, 1, 5] = value
        y = dense_block(x, rotary_table(weights.config, np.arange(3)), causal_mask(3), weights, recipe)
        assert np.isfinite(y[1]).all()
        assert np.isfinite(value) or not np.isfinite(y[0, 1]).any()


def test_a_tap_of_no_length_is_a_tap():
    class Counted(dict):
        def __call__(self, name, value):
            self[name] = value.shape
            return value * 0 if name == "mlp_out" else value

    tap = Counted()
    inputs = block_inputs("kimi-f32")
    recorded = trace(*inputs, tap=tap)
    assert list(tap) == list(recorded)
    np.testing.assert_array_equal(recorded["resid_post"], recorded["resid_mid"])
    np.testing.assert_array_equal(dense_block(*inputs, tap=Counted()), recorded["resid_mid"])


def test_a_trace_keeps_what_it_was_given():
    x, R, M, weights = block_inputs("kimi-f32")
    R, M = R.copy(), M.copy()
    recorded = trace(x, R, M, weights)
    before = {name: value.copy() for name, value in recorded.given.items()}
    R *= 0
    M[:] = False
    for name, value in before.items():
        np.testing.assert_array_equal(recorded.given[name], value, err_msg=name)


@pytest.mark.parametrize("name", ["mlp.down_proj.weight", "self_attn.kv_b_proj.weight"])
def test_a_weight_that_is_not_fp8_is_refused_before_anything_is_computed(name):
    x, R, M, weights = block_inputs("kimi-fp8")
    named = weights.named()
    plain = BlockWeights.from_mapping(weights.config, named | {name: Weight(named[name].values(), "float32")})
    cache, recorder = LatentCache(), Recorder()
    with pytest.raises(InputError, match=f"{name}: recipe deepseek-fp8 expected an FP8 weight with block scales"):
        dense_block(x, R, M, plain, "deepseek-fp8", cache=cache, tap=recorder)
    assert len(cache) == 0
    assert not recorder.values


def test_absorbed_attention_takes_the_keys_and_values_of_any_format():
    x, R, M, weights = block_inputs("kimi-fp8")
    named, name = weights.named(), "self_attn.kv_b_proj.weight"
    plain = BlockWeights.from_mapping(weights.config, named | {name: Weight(named[name].values(), "float32")})
    ours, theirs = (dense_block(x, R, M, w, "deepseek-fp8", "absorb") for w in (plain, weights))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("halves", "words"),
    [
        (((2, 2, 128), (2, 3, 32)), r"halves \[B, S, C\] and \[B, S, R\]; found \[2, 2, 128\] and \[2, 3, 32\]"),
        (((2, 2, 128), None), r"found \[2, 2, 128\] and None"),
        (((2, 128), (2, 32)), r"found \[2, 128\] and \[2, 32\]"),
    ],
)
def test_a_cache_of_two_halves_that_do_not_fit_is_refused_and_stays_as_it_is(halves, words):
    x, R, _, weights = block_inputs("kimi-f32")
    cache = LatentCache(*(None if shape is None else np.zeros(shape, np.float32) for shape in halves))
    with pytest.raises(InputError, match=words):
        cache.extend(np.zeros((2, 7, 128), np.float32), np.zeros((2, 7, 32), np.float32))
    with pytest.raises(InputError):
        dense_block(x, R, causal_mask(7, 7 + len(cache)), weights, cache=cache)
    assert cache.kv_latent_norm.shape == halves[0]


def test_a_cache_keeps_what_it_was_given_though_others_change_theirs():
    x, R, M, weights = block_inputs("kimi-f32")
    C = weights.config.kv_lora_rank
    mine, cache = np.ones((2, 7, C), np.float32), LatentCache()
    dense_block(x, R, M, weights, cache=cache, tap=Replace(kv_latent_norm=mine))
    mine[:] = 7
    assert (cache.kv_latent_norm == 1).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cache": {}}, "cache: expected a LatentCache or None; found {}"),
        ({"cache": LatentCache}, "cache: expected a LatentCache or None"),
        ({"tap": 5}, "tap: expected a function of a name and a value; found 5"),
        ({"tap": Replace}, "tap: expected a function of a name and a value; found <class"),
    ],
)
def test_other_things_as_cache_and_tap(given, words):
    with pytest.raises(InputError, match=words):
        dense_block(*block_inputs("kimi-f32"), **given)


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        (
            "input_layernorm.weight",
            np.ones(1, np.float32),
            r"input_layernorm.weight: expected a Weight \[\d+\]; found \(1,\)",
        ),
        ("mlp.up_proj.weight", np.ones((3, 4), np.float32), r"mlp.up_proj.weight: expected a Weight .* found \(3, 4\)"),
    ],
)
def test_weights_of_another_shape_than_the_configs(name, raw, words):
    weights = block_inputs("kimi-f32")[3]
    with pytest.raises(InputError, match=words):
        BlockWeights.from_mapping(weights.config, weights.named() | {name: Weight(raw, "float32")})


def test_weights_that_are_missing_or_whose_scales_do_not_fit():
    weights = block_inputs("kimi-f32")[3]
    with pytest.raises(InputError, match=r"weights: expected input_layernorm\.weight; found nothing"):
        BlockWeights.from_mapping(weights.config, {})
    codes = np.zeros((20, 24), np.uint8)
    with pytest.raises(InputError, match=r"weight: .*expected shape \[1, 1\].* found \[9, 9\]"):
        Weight(codes, "e4m3fn", np.ones((9, 9), np.float32), (128, 128))
    with pytest.raises(InputError, match="expected scales and their blocks together"):
        Weight(codes, "e4m3fn", np.ones((1, 1), np.float32))


def test_a_trace_keeps_the_cache_that_it_started_from_and_can_be_validated():
    x, R, M, weights = block_inputs("kimi-f32")
    cache = LatentCache()
    dense_block(x[:, :4], R[:4], M[:4, :4], weights, cache=cache)
    made = trace(x[:, 4:], R[4:], M[4:], weights, cache=cache)
    assert made.given["cache.k_rot"].shape[1] == 4
    assert validate(made, weights, "float32").passed


def test_words_that_trace_does_not_know():
    x, R, M, weights = block_inputs("kimi-f32")
    with pytest.raises(InputError, match="keep: expected 'values' or 'statistics'; found 'vlaues'"):
        trace(x, R, M, weights, keep="vlaues")
    with pytest.raises(InputError, match="labels: expected one for each of 7 tokens; found 2"):
        trace(x, R, M, weights, labels=["a", "b"])
