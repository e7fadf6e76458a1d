"""The block on any values, shapes and masks: no warning, NaN stays visible, finite input gives finite output."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from harness import refused, target
from hypothesis import strategies as st
from material import checkpoint, config

from blocklab.block.cache import LatentCache
from blocklab.block.dense import dense_block
from blocklab.block.masks import as_boolean, causal_mask, combine_masks, fit_mask, padding_mask
from blocklab.block.rotary import rotary_table
from blocklab.errors import InputError
from blocklab.numerics import RECIPES, fp8_matmul, get_recipe, quantize, round_to
from blocklab.numerics.formats import FORMATS
from blocklab.store.checkpoint import load_weights
from blocklab.store.trace import trace

OPTIONS = ("", ",group=1", ",group=7", ",group=64,promote=64", ",scale=ue8m0", ",quotient=reciprocal",
           ",activation_format=e5m2", ",granularity=token", ",granularity=tensor", ",scale_order=folded",
           ",promote=none", ",promote=32", ",amax_floor=1e-30", ",amax_floor=1e29", ",latent_norm_eps=1e-30",
           ",work=float64", ",norm=twice", ",rotation=each", ",accumulate=hopper", ",storage=float16")  # fmt: skip
VALUES = (0.0, -0.0, 1.0, -1.0, 1e-45, -1e-40, 1e-30, 1e-8, 448.0, 449.0, 65504.0, 1e9, -1e15, 1e19, 3e38, -3e38,
          np.inf, -np.inf, np.nan)  # fmt: skip


class Input(NamedTuple):
    """A block's input: seeded noise of some size, with values put in here and there."""

    batch: int
    tokens: int
    size: float
    odd: list[tuple[int, float]]
    dtype: str = "float32"

    def make(self, width: int) -> np.ndarray:
        """Return [B, T, width]."""
        x = np.random.default_rng(1).standard_normal((self.batch, self.tokens, width)) * self.size
        with np.errstate(all="ignore"):
            x = x.astype(self.dtype)
            for place, value in self.odd if x.size else ():
                x.reshape(-1)[place % x.size] = value
        return x


inputs = st.builds(
    Input,
    st.sampled_from((0, 1, 1, 1, 2)),
    st.sampled_from((0, 1, 1, 2, 3, 5)),
    st.sampled_from((0.0, 1e-42, 1e-20, 1.0, 1.0, 30.0, 1e12, 1e37)),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(VALUES)), max_size=3),
    st.sampled_from(("float32", "float32", "float64", "float16", ">f4")),
)


def possible(recipe: str) -> bool:
    """Whether the options of a recipe go together; `settings` looks at those that do not."""
    try:
        return bool(get_recipe(recipe))
    except InputError:
        return False


recipes = st.sampled_from([name + more for name in sorted(RECIPES) for more in OPTIONS if possible(name + more)])
masks = st.tuples(
    st.sampled_from(("bool", "float32", "float64", "float16", "int64", "uint8", "object")),
    st.sampled_from(("TS", "BTS", "B1TS", "BHTS", "T1", "1S", "11", "S", "", "TSS", "STS", "HBTS")),
    st.sampled_from((None, 0.0, -np.inf, -3.4e38, -1e30, -1.0, 1.0, np.nan, np.inf, -65504.0)),
    st.integers(0, 30),
)


def make_mask(kind: tuple[str, str, float | None, int], B: int, T: int, S: int) -> np.ndarray:
    """Return a mask, causal or everywhere `value`, of a shape that may fit."""
    dtype, axes, value, place = kind
    sizes = {"T": T, "S": S, "B": B, "H": config().num_attention_heads, "1": 1}
    shape = tuple(sizes[axis] for axis in axes)
    with np.errstate(all="ignore"):
        hidden = np.broadcast_to(~causal_mask(T, S), shape) if axes.endswith("TS") else np.zeros(shape, bool)
        mask = np.where(hidden, -np.inf, 0.0) if dtype != "bool" else ~hidden
        mask = np.array(mask)
        if value is not None and mask.size:
            mask.reshape(-1)[place % mask.size :] = value
        return mask.astype(dtype)


@target(st.tuples(inputs, recipes, st.sampled_from(("naive", "absorb", "x")), st.booleans()), quick=150, slow=20_000)
def test_values(case: tuple[Input, str, str, bool]) -> str | None:
    given, recipe, form, taped = case
    x = given.make(config().hidden_size)
    weights = load_weights(checkpoint("fp8" if get_recipe(recipe).fp8_linear or taped else "bfloat16"))
    R, M = rotary_table(config(), np.arange(given.tokens)), causal_mask(given.tokens)
    found: list[np.ndarray] = []

    def run() -> None:
        found.append(
            trace(x, R, M, weights, recipe, form)["resid_post"]
            if taped
            else dense_block(x, R, M, weights, recipe, form)
        )

    told = refused(run)
    if told is not None:
        return told
    (y,) = found
    assert y.shape == x.shape
    assert y.dtype == ("float64" if recipe.startswith("float64") and "storage" not in recipe else "float32")
    bad = ~np.isfinite(x).all(axis=-1)
    rounded = round_to(x.astype("float64"), get_recipe(recipe).storage)
    assert np.isnan(y[np.isnan(x)]).all()
    assert not np.isfinite(y[bad]).any()
    small = np.abs(rounded).max(initial=0) < (1e4 if "float16" in recipe else 1e18)
    if small and not bad.any() and "amax_floor=1e29" not in recipe and "float16" not in recipe:
        assert np.isfinite(y).all()
    return None


@target(st.tuples(inputs, masks, st.integers(0, 2), st.sampled_from(("naive", "absorb")), st.booleans()), quick=150)
def test_masks(case: tuple[Input, tuple[str, str, float | None, int], int, str, bool]) -> str | None:
    given, kind, past, form, taped = case
    x = given._replace(size=1.0, odd=[], dtype="float32").make(config().hidden_size)
    B, T, _ = x.shape
    weights = load_weights(checkpoint())
    cache = LatentCache()
    if past:
        earlier = np.ones((B, past, x.shape[2]), np.float32)
        dense_block(earlier, rotary_table(config(), np.arange(past)), causal_mask(past), weights, cache=cache)
    M = make_mask(kind, B, T, past + T)
    R = rotary_table(config(), np.arange(past, past + T))
    found: list[np.ndarray] = []

    def run() -> None:
        tap = (lambda name, value: value) if taped else None
        found.append(dense_block(x, R, M, weights, "float32", form, cache if past else None, tap))

    told = refused(run)
    if told is None:
        (y,) = found
        assert y.shape == x.shape
        assert np.isfinite(y).all()
    return told


@target(st.tuples(masks, masks, st.integers(0, 3), st.integers(0, 3)), quick=100)
def test_mask_functions(case: tuple[tuple, tuple, int, int]) -> str | None:
    one, two, B, T = case
    a, b = make_mask(one, B, T, T + 1), make_mask(two, B, T, T + 1)

    def run() -> None:
        both = as_boolean(a), as_boolean(b)
        fit_mask(a, B, config().num_attention_heads, T, T + 1)
        fit_mask(b, B, config().num_attention_heads, T, T + 1)
        combined = fit_mask(combine_masks(a, b), B, config().num_attention_heads, T, T + 1)
        H = config().num_attention_heads
        expected = fit_mask(both[0], B, H, T, T + 1) & fit_mask(both[1], B, H, T, T + 1)
        np.testing.assert_array_equal(combined, expected)
        padding_mask(np.zeros(B, int), T)

    return refused(run)


arrays = st.builds(
    lambda shape, dtype, values: np.resize(np.array(values, "float64"), shape).astype(dtype),
    st.sampled_from(((), (0,), (1,), (5,), (2, 3), (0, 4), (3, 0), (2, 1, 6), (1, 129), (130, 2))),
    st.sampled_from(("float32", "float64")),
    st.lists(st.sampled_from((*VALUES, 2.0**-10, 0.0625, 1.0625, 447.9)), min_size=1, max_size=6),
)


@target(st.tuples(arrays, st.sampled_from((*FORMATS, "float32", "x")), st.sampled_from((None, "nan", "saturate", "x"))),
        quick=150)  # fmt: skip
def test_rounding(case: tuple[np.ndarray, str, str | None]) -> str | None:
    x, name, overflow = case

    def run() -> None:
        y = np.asarray(round_to(x, name, overflow))
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        assert np.isnan(y[np.isnan(x)]).all()
        again = np.asarray(round_to(y, name, overflow))
        np.testing.assert_array_equal(again, y)

    with np.errstate(all="ignore"):
        return refused(run)


@target(
    st.tuples(arrays, st.sampled_from(((1, 128), (1, None), (None, None), (2, 3), (0, 1), (1, -1), (10**9, 10**9))),
              st.sampled_from((1e-4, 1e-30, 1e-45, 1e30)), st.sampled_from(("float32", "ue8m0", "x")),
              st.sampled_from(("e4m3fn", "e5m2", "e2m1", "e8m0", "bfloat16")),
              st.sampled_from(("exact", "float32", "hopper"))),
    quick=150,
)  # fmt: skip
def test_quantising(case: tuple[np.ndarray, tuple, float, str, str, str]) -> str | None:
    x, block, floor, scale, name, accumulate = case

    def run() -> None:
        codes, scales = quantize(x, name, block=block, amax_floor=floor, scale=scale)
        assert codes.shape == x.shape
        assert codes.dtype == np.uint8
        finite = np.isfinite(x).all() and floor > 1e-40
        assert not finite or (np.isfinite(scales).all() and (scales > 0).all())
        if x.ndim == 2 and name == "e4m3fn" and block == (1, 128):
            y = fp8_matmul(codes, scales, codes, np.ones_like(scales[:1]), accumulate, block=(max(len(x), 1), 128))
            assert y.shape == (len(x), len(x))

    return refused(run)
