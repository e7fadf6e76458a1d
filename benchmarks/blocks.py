"""The whole block at several lengths in each recipe, beside its bare products and beside torch and transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks import peers
from benchmarks.measure import Row, medians
from benchmarks.setting import Setting
from blocklab import dense_block

TARGETS = {
    "float32": 1.15,
    "deepseek-bf16": 1.4,
    "deepseek-fp8,accumulate=float32": 1.7,
    "deepseek-fp8": 3.5,
}
"""Recipes, and the most that they may take times the bare products at 128 and 512 tokens."""

TORCH_TARGET = 1.1


def blocks(setting: Setting) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Yield the block at each length. `float32` starts from float32 weights, the others from FP8."""
    for T in (1, 16, 64) if setting.quick else (1, 16, 128, 512, 2048):
        yield f"{T}", lambda T=T: _block(setting, T)


def _block(setting: Setting, T: int) -> list[Row]:
    x, R, M = setting.inputs(T)
    c, matrices = setting.config, setting.matrices()
    widths = (c.qk_head_dim, c.v_head_dim)
    ours: dict[str, Callable[[], object]] = {
        recipe: lambda recipe=recipe: dense_block(
            x, R, M, setting.float32_weights if recipe == "float32" else setting.weights, recipe
        )
        for recipe in TARGETS
    }
    theirs: dict[str, Callable[[], object]] = {
        "bare float32 products": bare_products(matrices, c.num_attention_heads, widths, T)
    }
    if peers.TORCH:
        theirs["torch, the same products"] = peers.torch_products(matrices, c.num_attention_heads, widths, T)
    if peers.TRANSFORMERS:
        import torch

        state = {name: torch.from_numpy(w.raw) for name, w in setting.float32_weights.named().items()}
        theirs["transformers' layer, float32"] = peers.transformers_layer(setting.checkpoint, state, x, "float32")
    seconds = dict(zip([*ours, *theirs], medians([*ours.values(), *theirs.values()]), strict=True))
    held = T in (128, 512)
    rows = [
        Row(
            f"block, {T} tokens, {recipe}", seconds[recipe], bare, seconds[bare], "s", TARGETS[recipe] if held else None
        )
        for recipe in ours
        for bare in list(theirs)[:1]
    ]
    for peer in list(theirs)[1:]:
        target = TORCH_TARGET if held and peer.startswith("torch") else None
        rows.append(Row(f"block, {T} tokens, float32", seconds["float32"], peer, seconds[peer], "s", target))
    return rows


def bare_products(
    matrices: Mapping[str, np.ndarray], heads: int, widths: tuple[int, int], T: int
) -> Callable[[], object]:
    """Return a call that computes the block's matrix products in float32 and nothing else.

    The linears, and for each head the scores and the mixing of values.
    """
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((T, w.shape[1]), np.float32) for w in matrices.values()]
    q, k = (rng.standard_normal((heads, *shape), np.float32) for shape in ((T, widths[0]), (widths[0], T)))
    p, v = (rng.standard_normal((heads, *shape), np.float32) for shape in ((T, T), (T, widths[1])))

    def call() -> None:
        for w, x in zip(matrices.values(), inputs, strict=True):
            w @ x.T
        q @ k
        p @ v

    return call
