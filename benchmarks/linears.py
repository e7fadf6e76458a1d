"""Each linear of the block in each recipe, beside the bare float32 product of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import Row, medians
from benchmarks.setting import Setting
from blocklab import RECIPES
from blocklab.numerics import get_recipe
from blocklab.numerics.linears import multiply
from blocklab.numerics.weight import Weight

FAST = {name: get_recipe(name) for name in ("deepseek-bf16", "deepseek-fp8,accumulate=float32", "deepseek-fp8")}


def linears(setting: Setting) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Yield every linear at 128 tokens; the MLP's up has the shape of its gate."""
    for name, weight in setting.weights.named().items():
        leaf = name.split(".")[-2]
        if len(weight.shape) == 2 and leaf != "up_proj":
            yield leaf, lambda leaf=leaf, weight=weight: _linear(leaf, weight, 16 if setting.quick else 128)
    yield "hopper", lambda: _hopper(setting)


def _linear(leaf: str, weight: Weight, T: int) -> list[Row]:
    N, K = weight.shape
    x = np.random.default_rng(0).standard_normal((1, T, K), np.float32)
    w, flat = weight.values(), x[0]
    calls = [lambda: w @ flat.T, *(lambda r=r: multiply(x, weight, r) for r in FAST.values())]
    bare, *ours = medians(calls, budget=15)
    return [
        Row(f"{leaf} {T} x {K} x {N}, {recipe}", seconds, "float32 product", bare, "s")
        for recipe, seconds in zip(FAST, ours, strict=True)
    ]


def _hopper(setting: Setting) -> list[Row]:
    whole = setting.weights.mlp.gate_proj
    rows, T = min(1024, whole.shape[0]), 16 if setting.quick else 64
    assert whole.scale is not None
    weight = Weight(whole.raw[:rows], whole.format, whole.scale[: -(-rows // 128)], whole.block)
    x = np.random.default_rng(0).standard_normal((1, T, whole.shape[1]), np.float32)
    w, flat = weight.values(), x[0]
    ours, bare = medians([lambda: multiply(x, weight, RECIPES["hopper-fp8"]), lambda: w @ flat.T])
    return [Row(f"{rows} rows of gate_proj, {T} tokens, hopper-fp8", ours, "float32 product", bare, "s")]
