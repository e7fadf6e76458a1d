import math

import numpy as np
import pytest

from blocklab import BlockConfig, InputError, rotary_table
from blocklab.block.config import preset_dict
from blocklab.block.rotary import correction_range, inverse_frequencies, rotary_factor, yarn_ramp
from blocklab.numerics import RECIPES
from formulas import rotate
from goldens import DUMPS, read_dump

KIMI = BlockConfig.preset("kimi-k2")
V3 = BlockConfig.preset("deepseek-v3")


def with_rope(**changes):
    settings = preset_dict("kimi-k2")
    settings["rope_scaling"].update(changes)
    return BlockConfig.from_dict(settings)


def test_kimi_stretches_from_pair_20_on():
    assert correction_range(KIMI) == (19, 20)
    plain = 50000.0 ** (-np.arange(0, 64, 2) / 64)
    omega = inverse_frequencies(KIMI)
    np.testing.assert_allclose(omega[:20], plain[:20], rtol=1e-15)
    np.testing.assert_allclose(omega[20:], plain[20:] / 32, rtol=1e-15)


def test_v3_ramps_between_its_two_betas():
    # d(n) = 64 ln(4096 / (2 pi n)) / (2 ln 10000): d(32) = 10.47, d(1) = 22.51
    assert correction_range(V3) == (10, 23)
    ramp = yarn_ramp(V3)
    np.testing.assert_allclose(ramp[[0, 10, 11, 22, 23, 31]], [0, 0, 1 / 13, 12 / 13, 1, 1], rtol=1e-15)


def test_the_common_default_beta_fast_moves_pairs_9_to_19_up_to_8_9_times():
    moved = inverse_frequencies(KIMI) / inverse_frequencies(with_rope(beta_fast=32.0))
    assert np.flatnonzero(moved > 1 + 1e-12).tolist() == list(range(9, 20))
    assert moved.max() == pytest.approx(8.9, abs=0.05)


def test_equal_low_and_high_give_a_step():
    # theta chosen so that d(1) is the whole number 8: floor and ceil agree
    theta = math.exp(64 * math.log(4096 / (2 * math.pi)) / 16)
    while True:
        settings = preset_dict("kimi-k2") | {"rope_theta": theta}
        low, high = correction_range(BlockConfig.from_dict(settings))
        if low == high:
            break
        theta = math.nextafter(theta, math.inf if low == 8 else 0)
    assert yarn_ramp(BlockConfig.from_dict(settings)).tolist() == [0.0] * 9 + [1.0] * 23


def test_low_is_never_negative():
    low, high = correction_range(with_rope(original_max_position_embeddings=4, beta_fast=32.0))
    assert (low, high) == (0, 0)


def test_table_is_a_unit_circle_and_angles_are_position_times_frequency():
    table = rotary_table(KIMI, np.array([0, 1, 100_000]))
    assert table.shape == (3, 32)
    assert table.dtype == np.complex128
    np.testing.assert_allclose(np.abs(table), 1, rtol=1e-15)
    assert (table[0] == 1).all()
    assert np.angle(table[1, 0]) == pytest.approx(1.0, abs=1e-15)
    # angle 100000 * 50000^(-2/64), reduced in exact decimal arithmetic
    from decimal import Decimal, getcontext

    getcontext().prec = 60
    omega = (Decimal(50000).ln() * Decimal(-2) / Decimal(64)).exp()
    two_pi = Decimal("6.28318530717958647692528676655900576839433879875021164194989")
    angle = float((omega * 100_000) % two_pi)
    assert math.cos(angle) == pytest.approx(table[2, 1].real, abs=1e-10)


def test_factor_on_cos_and_sin_is_the_ratio_of_the_mscales():
    assert rotary_factor(KIMI.yarn) == 1
    only_mscale = with_rope(mscale_all_dim=0.0)
    assert rotary_factor(only_mscale.yarn) == pytest.approx(0.1 * math.log(32) + 1)
    assert only_mscale.softmax_scale == 192**-0.5
    np.testing.assert_allclose(np.abs(rotary_table(only_mscale, np.arange(3))), 0.1 * math.log(32) + 1, rtol=1e-15)


@pytest.mark.parametrize("name", [d for d in DUMPS if "deepseek" not in d])
def test_float32_table_is_the_published_one_to_an_ulp_of_the_frequency(name):
    arrays, _, weights = read_dump(name)
    positions = arrays["position_ids"]
    table = rotary_table(weights.config, positions, "float32")
    theirs = arrays["rotary.cos"] + 1j * arrays["rotary.sin"]
    assert np.abs(table - theirs).max() <= 2.0**-23 + positions.max() * 2.0**-24
    assert (table == theirs).mean() > 0.85


def test_float32_frequencies_on_the_ramp_are_those_of_transformers():
    # ROPE_INIT_FUNCTIONS["yarn"] of transformers 5.24 for DeepSeek-V3, pairs 11 to 14
    published = [float.fromhex(h) for h in ("0x1.3f8b74p-5", "0x1.b86436p-6", "0x1.2d1b86p-6", "0x1.97e506p-7")]
    assert inverse_frequencies(V3, "float32")[11:15].tolist() == published


def test_at_position_100_000_float32_angles_are_off_by_thousandths():
    arrays, _, weights = read_dump("late-positions")
    exact = rotary_table(weights.config, arrays["position_ids"])
    published = rotary_table(weights.config, arrays["position_ids"], "float32")
    assert 1e-3 < np.abs(exact - published).max() < 1e-2


@pytest.mark.parametrize("positions", [[0.5], [-1], 3, [True]])
def test_positions_must_be_non_negative_integers(positions):
    with pytest.raises(InputError, match="positions must be non-negative integers"):
        rotary_table(KIMI, np.array(positions))


@pytest.mark.parametrize("precision", ["float16", "int32", "longdouble", None, "bfloat16", np.float32, ["float32"]])
def test_precision_of_the_table_is_float64_or_float32(precision):
    with pytest.raises(InputError, match="rotary table: precision must be 'float64' or 'float32'; found"):
        rotary_table(KIMI, [3001], precision)


def test_rotate_turns_neighbouring_pairs_by_hand():
    x = np.array([[[3.0, 4.0, 1.0, 0.0]]])
    R = np.array([[1j, np.exp(0.5j)]])
    rotated = rotate(x, R, RECIPES["float64"])
    np.testing.assert_allclose(rotated, [[[-4, 3, math.cos(0.5), math.sin(0.5)]]], atol=1e-15)


def test_scores_depend_on_relative_positions_only():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 1, 5, 64))
    scores = []
    for start in (0, 1000, 90_000):
        R = rotary_table(KIMI, np.arange(start, start + 5))
        scores.append(rotate(q, R, RECIPES["float64"]) @ rotate(k, R, RECIPES["float64"]).transpose(0, 2, 1))
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-9)
    np.testing.assert_allclose(scores[2], scores[0], atol=1e-9)


def test_half_split_rotation_of_permuted_vectors_is_the_same_rotation():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 7, 64))
    R = rotary_table(KIMI, np.arange(2000, 2007))
    halves = np.concatenate([np.arange(0, 64, 2), np.arange(1, 64, 2)])
    first, second = x[..., halves][..., :32], x[..., halves][..., 32:]
    half_split = np.concatenate([first * R.real - second * R.imag, first * R.imag + second * R.real], -1)
    np.testing.assert_allclose(rotate(x, R, RECIPES["float64"])[..., halves], half_split, atol=1e-14)


def test_bfloat16_rounds_table_products_and_sum():
    # cos(1) -> 0.5390625, sin(1) -> 0.83984375 in bfloat16; 1.0078125 cos -> 0.54296875, 1.0078125 sin -> 0.84765625
    x = np.float32([[[1.0078125, 1.0078125]]])
    R = np.exp(1j * np.ones((1, 1)))
    rotated = rotate(x, R, RECIPES["bfloat16"])
    assert rotated.tolist() == [[[0.54296875 - 0.84765625, 1.390625]]]
    # deepseek rounds once: 1.0078125 (cos 1 - sin 1) = -0.30352, 1.0078125 (cos 1 + sin 1) = 1.39257
    assert rotate(x, R, RECIPES["deepseek-bf16"]).tolist() == [[[-0.302734375, 1.390625]]]
