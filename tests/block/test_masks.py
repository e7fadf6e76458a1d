import numpy as np
import pytest

from blocklab import InputError, causal_mask
from blocklab.block.masks import combine_masks, fit_mask, padded_positions, padding_mask

LOWEST = np.finfo(np.float32).min


def test_causal_is_aligned_lower_right():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, 5).tolist() == [[True] * 4 + [False], [True] * 5]
    assert causal_mask(1, 4).tolist() == [[True] * 4]
    assert causal_mask(0).shape == (0, 0)


def test_more_queries_than_keys_are_refused():
    with pytest.raises(InputError, match="T=3, S=2"):
        causal_mask(3, 2)


@pytest.mark.parametrize("length", [1.5, "3", None, True, -1, np.ones((2, 3))])
def test_a_length_is_an_integer(length):
    with pytest.raises(InputError, match=r"causal mask: expected integers 0 <= T <= S[^\n]*$"):
        causal_mask(length)


@pytest.mark.parametrize(("T", "S"), [(np.uint8(3), np.uint8(5)), (np.uint8(200), 256), (np.int8(3), None)])
def test_lengths_may_be_small_integers_of_numpy(T, S):
    np.testing.assert_array_equal(causal_mask(T, S), causal_mask(int(T), S if S is None else int(S)))


@pytest.mark.parametrize("padding", [None, 3, [[1]], [-3], [1.7], [np.nan], [True], [[1], [2, 3]]])
def test_padding_counts_tokens(padding):
    for call in (padding_mask, padded_positions):
        with pytest.raises(InputError, match=r"left_padding must be non-negative integers \[B\]; found"):
            call(padding, 4)


@pytest.mark.parametrize("length", [-1, 2.5, None, "3"])
def test_padding_is_of_some_length(length):
    for call, name in ((padding_mask, "padding mask: S"), (padded_positions, "padded positions: T")):
        with pytest.raises(InputError, match=f"{name}: expected a non-negative integer, found"):
            call([1], length)


def test_padding_hides_the_left_and_positions_count_from_the_first_real_token():
    assert padding_mask([0, 2], 4)[:, 0, 0].tolist() == [[True] * 4, [False, False, True, True]]
    assert padded_positions([0, 2], 4).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]


def test_one_mask_is_combined_with_nothing():
    assert combine_masks(causal_mask(2)).tolist() == [[[[True, False], [True, True]]]]
    with pytest.raises(TypeError, match="mask"):
        combine_masks()


def test_masks_that_cannot_be_combined_are_refused_with_their_shapes():
    with pytest.raises(InputError, match=r"shapes that broadcast, found \[5, 5\] and \[3, 3\]"):
        combine_masks(causal_mask(5), causal_mask(3))


def test_additive_masks_are_combined_as_booleans():
    additive = np.where(causal_mask(3), 0, LOWEST).astype(np.float32)
    combined = combine_masks(additive, np.where(padding_mask([1], 3), 0, LOWEST).astype(np.float32))
    assert combined[0, 0].tolist() == [[False, False, False], [False, True, False], [False, True, True]]
    with np.errstate(over="ignore"):
        assert np.isinf(additive + additive).any(), "two lowest finite numbers add up to -inf"


@pytest.mark.parametrize("mask", [np.ones((2, 2), int), np.tri(2), [[True]], np.array([[np.nan, 0]]), None])
def test_masks_of_unclear_meaning_are_refused(mask):
    with pytest.raises(InputError, match=r"^mask: "):
        fit_mask(mask, 1, 1, 2, 2)


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (5, 2, 2), (1, 2, 2, 2), (2, 1), (2,)])
def test_a_mask_of_the_wrong_shape_is_refused_with_both_shapes(shape):
    with pytest.raises(InputError, match=r"expected \[T, S\] = \[2, 2\].*found"):
        fit_mask(np.ones(shape, bool), 3, 4, 2, 2)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 2), (3, 1, 2, 2), (3, 4, 2, 2), (1, 1, 1, 2)])
def test_masks_that_fit(shape):
    assert fit_mask(np.ones(shape, bool), 3, 4, 2, 2).ndim == 4


@pytest.mark.parametrize("T", [10**7, 2**40, 2**62])
def test_masks_that_memory_cannot_hold(T):
    with pytest.raises(InputError, match=rf"causal mask: \[T, S\] = \[{T}, {T}\] does not fit into memory"):
        causal_mask(T)
    with pytest.raises(InputError, match="does not fit into memory"):
        padding_mask([0], 2**60)
