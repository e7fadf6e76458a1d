import warnings

import numpy as np
import pytest

from blocklab.block.operations import dots, silu
from blocklab.numerics import RECIPES
from blocklab.numerics.threads import elementwise, spread
from blocklab.numerics.tiles import stack_product


@pytest.mark.parametrize("threads", [1, 3])
def test_every_part_is_called_once(threads):
    seen = []
    spread(seen.append, range(20), threads)
    assert sorted(seen) == list(range(20))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("shape", [(0, 7), (3, 5, 7), (2, 1009)])
def test_parts_compute_what_the_whole_computes(monkeypatch, recipe, shape):
    monkeypatch.setattr("blocklab.numerics.threads.PART", 100)
    x = 4 * np.random.default_rng(0).standard_normal(shape).astype(recipe.carrier)
    np.testing.assert_array_equal(elementwise(silu, recipe.carrier, x), silu(x))
    np.testing.assert_array_equal(elementwise(np.multiply, x.dtype, x, x), x * x)


def test_threads_warn_of_what_the_caller_would_be_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(over="ignore"):
            spread(lambda part: np.float32([3e38]) * part, [2, 3], 2)
        with pytest.raises(RuntimeWarning, match="overflow"):
            spread(lambda part: np.float32([3e38]) * part, [2, 3], 2)


@pytest.mark.parametrize("recipe", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 3, 0, 4), (0, 3, 5, 4)])
def test_heads_may_share_keys(recipe, shape):
    rng = np.random.default_rng(0)
    B, H, T, K = shape
    q, k = rng.standard_normal((B, T, H, K)), rng.standard_normal((B, 7, K))
    want = np.einsum("bthk,bsk->bhts", q, k)
    np.testing.assert_allclose(dots(q, k, RECIPES[recipe]), want, rtol=1e-4, atol=1e-5)
    repeated = np.repeat(k[:, :, None], H, 2)
    np.testing.assert_allclose(dots(q, repeated, RECIPES[recipe]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 40, 700), (2, 3, 700, 150)),
        ((2, 1, 40, 64), (2, 1, 64, 9)),
        ((3, 9, 1100), (1, 1100, 300)),
        ((2, 3, 5, 7), (2, 3, 7, 11)),
        ((0, 3, 40, 64), (0, 3, 64, 9)),
        ((2, 3, 40, 0), (2, 3, 0, 9)),
    ],
)
def test_stacks_are_multiplied_like_matmul(a, b, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(a), rng.standard_normal(b[:-2] + b[:-3:-1]).swapaxes(-1, -2)
    want = a @ b
    found = stack_product(a.astype(dtype), b.astype(dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4 if dtype == "float32" else 1e-12)
