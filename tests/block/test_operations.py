import numpy as np
import pytest

from blocklab.block.config import BlockConfig
from blocklab.block.requirements import check_recipe
from blocklab.errors import InputError
from blocklab.numerics import RECIPES, encode, get_recipe, quantize
from blocklab.numerics.weight import Weight
from blocklab.synth.weights import synthetic_weights
from formulas import linear, rms_norm, run_of, silu, softmax

FLOAT32, FLOAT64 = RECIPES["float32"], RECIPES["float64"]
LOWEST = np.finfo(np.float32).min


def gain(*values, dtype=np.float32):
    return Weight(np.array(values, dtype), np.dtype(dtype).name)


def bfloat16(x):
    return Weight(encode(np.asarray(x, np.float32), "bfloat16"), "bfloat16")


class TestRmsNorm:
    def test_by_hand(self):
        # mean(x^2) = 12.5
        y = rms_norm(np.array([[3.0, 4.0]]), gain(1, 2), 1e-6, FLOAT64)
        np.testing.assert_allclose(y, [[3 / 12.5**0.5, 8 / 12.5**0.5]], rtol=1e-7)

    def test_the_mean_of_7168_ones_is_one_in_every_recipe(self):
        ones = np.ones((1, 7168), np.float32)
        for recipe in RECIPES.values():
            np.testing.assert_allclose(rms_norm(ones, gain(*ones[0]), 1e-6, recipe), 1, rtol=1e-6)

    def test_eps_matters_for_quiet_tokens(self):
        # rms 1e-3: sqrt((1e-6 + 1e-5) / (1e-6 + 1e-6)) = 2.345
        x = np.full((1, 8), 1e-3)
        ratio = rms_norm(x, gain(*[1] * 8), 1e-6, FLOAT64) / rms_norm(x, gain(*[1] * 8), 1e-5, FLOAT64)
        np.testing.assert_allclose(ratio, 5.5**0.5, rtol=1e-6)

    def test_zeros_stay_zeros(self):
        for recipe in RECIPES.values():
            assert (rms_norm(np.zeros((1, 4), np.float32), gain(1, 1, 1, 1), 1e-6, recipe) == 0).all()

    def test_squares_that_overflow_float32_give_zeros(self):
        for row, expected in (([2e19, 1.0], [0, 0]), ([np.inf, 1.0], [np.nan, 0]), ([np.nan, 1.0], [np.nan, np.nan])):
            y = rms_norm(np.array([row], np.float32), gain(1, 1), 1e-6, FLOAT32)
            np.testing.assert_array_equal(y, [expected])
        assert rms_norm(np.array([[2e19, 0.0]]), gain(1, 1), 1e-6, FLOAT64)[0, 0] == pytest.approx(2**0.5)

    def test_one_or_two_roundings_differ_in_a_quarter_of_the_elements_unless_the_gain_is_one(self):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((64, 1024)).astype(np.float32)
        g = bfloat16(rng.normal(1, 0.2, 1024))
        twice = rms_norm(x, g, 1e-6, RECIPES["bfloat16"])
        once = rms_norm(x, g, 1e-6, RECIPES["deepseek-bf16"])
        assert 0.2 < (once != twice).mean() < 0.32
        one = bfloat16(np.ones(1024))
        same = rms_norm(x, one, 1e-6, RECIPES["bfloat16"]) == rms_norm(x, one, 1e-6, RECIPES["deepseek-bf16"])
        assert same.all()


class TestLinear:
    def test_by_hand(self):
        y = linear(np.float32([[[1, 2]]]), gain([3, 4], [5, 6], [7, 8]), FLOAT32)
        assert y.tolist() == [[[11, 17, 23]]]

    def test_heads_are_joined_before_it_and_parted_after_it_where_the_step_has_them(self):
        two = run_of(FLOAT32, num_attention_heads=2)
        x, weight = np.float32([[[[1], [2]]]]), gain([3, 4], [5, 6])
        assert two.linear("attn_out", x, weight).tolist() == [[[11, 17]]]
        assert two.linear("q", x, weight).tolist() == [[[[11], [17]]]]

    def test_bfloat16_rounds_the_weights_and_the_result_once(self):
        # weight 1.00390625 ties down to 1; 257 needs nine bits and ties down to 256
        y = linear(np.float32([[[256, 1]]]), gain([1.00390625, 1]), RECIPES["bfloat16"])
        assert y.tolist() == [[[256]]]

    def test_fp8_from_codes_and_scales_by_hand(self):
        # x = [448, 1] quantises to itself with scale 1; codes 0x40 = 2, 0x38 = 1; 2 (scale 0.5): 448 + 0.5
        weight = Weight(np.uint8([[0x40, 0x38]]), "e4m3fn", np.float32([[0.5]]), (128, 128))
        y = linear(np.float32([[[448, 1]]]), weight, RECIPES["deepseek-fp8"].replace(storage="float32"))
        assert y.tolist() == [[[448.5]]]

    def test_fp8_recipes_refuse_other_weights(self):
        with pytest.raises(InputError, match="up: recipe deepseek-fp8 expected an FP8 weight with block scales"):
            linear(np.ones((1, 1, 2), np.float32), gain([1, 1]), RECIPES["deepseek-fp8"], step="up")

    def test_quantised_inputs_are_shown_to_a_tap_that_wants_them(self):
        x = np.random.default_rng(0).standard_normal((2, 3, 200)).astype(np.float32)
        codes, scale = quantize(x[0], "e4m3fn", block=(128, 128))
        weight = Weight(codes, "e4m3fn", scale, (128, 128))
        seen = {}

        class Tap:
            def wants(self, name):
                return True

            def __call__(self, name, value):
                seen[name] = value
                return value

        linear(x, weight, RECIPES["deepseek-fp8"], Tap(), "kv_down")
        assert {k: v.shape for k, v in seen.items()} == {
            "kv_down.in.codes": (2, 3, 200),
            "kv_down.in.scale": (2, 3, 2),
            "kv_down": (2, 3, 3),
        }
        np.testing.assert_array_equal(seen["kv_down.in.scale"][..., 0], np.abs(x[..., :128]).max(-1) / np.float32(448))


class TestSoftmax:
    def test_by_hand(self):
        np.testing.assert_allclose(softmax(np.log([[1.0, 3.0]]), FLOAT64), [[0.25, 0.75]], rtol=1e-15)

    def test_large_scores_do_not_overflow(self):
        with np.errstate(all="raise"):
            assert softmax(np.float32([[1e4, 0]]), FLOAT32).tolist() == [[1, 0]]

    def test_a_row_hidden_by_infinity_gives_zeros_and_by_the_lowest_number_equal_shares(self):
        with np.errstate(all="raise"):
            assert softmax(np.full((1, 4), -np.inf, np.float32), FLOAT32).tolist() == [[0, 0, 0, 0]]
            assert softmax(np.full((1, 4), LOWEST), FLOAT32).tolist() == [[0.25] * 4]

    def test_both_ways_of_hiding_agree_where_something_is_seen(self):
        scores = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
        hidden = np.arange(5) > 2
        infinite = softmax(np.where(hidden, -np.inf, scores).astype(np.float32), FLOAT32)
        lowest = softmax(scores + np.where(hidden, LOWEST, np.float32(0)), FLOAT32)
        np.testing.assert_array_equal(infinite, lowest)

    def test_no_keys(self):
        assert softmax(np.zeros((2, 0), np.float32), FLOAT32).shape == (2, 0)

    def test_nan_stays_visible(self):
        assert np.isnan(softmax(np.float32([[np.nan, 1]]), FLOAT32)).all()


class TestSilu:
    def test_extremes_raise_nothing(self):
        with np.errstate(all="raise"):
            for recipe in RECIPES.values():
                y = silu(np.array([-1000, -89, 0, 100], recipe.carrier), recipe)
                assert y[0] == 0
                assert y[1] == pytest.approx(-89 * np.exp(-89.0), rel=4e-3)
                assert y[2:].tolist() == [0, 100]

    def test_against_the_definition(self):
        x = np.linspace(-20, 20, 4001)
        np.testing.assert_allclose(silu(x, FLOAT64), x / (1 + np.exp(-x)), rtol=1e-14)


def test_the_name_of_a_changed_recipe_makes_it_again():
    changed = get_recipe("deepseek-fp8").replace(group=64).replace(scale="ue8m0").replace(group=32)
    assert changed.name == "deepseek-fp8,scale=ue8m0,group=32"
    assert get_recipe(changed.name) == changed
    assert get_recipe("deepseek-fp8").replace(group=64).replace(group=128) == get_recipe("deepseek-fp8")


def test_a_step_may_have_another_format_than_the_others():
    recipe = get_recipe("bfloat16,attn_norm=float32,gate=float16")
    assert [recipe.format_of(step) for step in ("attn_norm", "gate", "up")] == ["float32", "float16", "bfloat16"]
    x = np.float32([[[1.0, 1 + 2**-9]]])  # which float16 holds, and bfloat16 rounds to 1
    assert linear(x, gain([0, 1]), recipe, step="gate").tolist() == [[[1 + 2**-9]]]
    assert linear(x, gain([0, 1]), recipe, step="up").tolist() == [[[1.0]]]
    assert recipe.replace(gate="bfloat16").name == "bfloat16,attn_norm=float32,gate=bfloat16"


@pytest.mark.parametrize("text", ["bfloat16,gate=int8", "bfloat16,gate=float64", "bfloat16,bridge=float32"])
def test_exceptions_are_formats_of_steps(text):
    with pytest.raises(InputError, match=r"no option gate|exceptions must be|no step bridge"):
        check_recipe(get_recipe(text), synthetic_weights(BlockConfig.preset("kimi-k2-small")), "naive")
