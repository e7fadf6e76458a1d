"""One dense transformer block of Kimi K2: attention and MLP, each normed before and added after."""

from __future__ import annotations

import numpy as np

from blocklab.block.attention import latent_attention
from blocklab.block.cache import LatentCache, undone_on_error
from blocklab.block.mlp import swiglu
from blocklab.block.requirements import check_arguments
from blocklab.block.run import Run
from blocklab.block.taps import Tap, no_tap
from blocklab.block.tiling import in_token_tiles
from blocklab.block.weights import BlockWeights
from blocklab.numerics import Recipe, get_recipe
from blocklab.xp import Array


@np.errstate(over="ignore", invalid="ignore")  # infinity and NaN show up in the result
def dense_block(
    x: Array,
    R: Array,
    M: Array,
    weights: BlockWeights,
    recipe: str | Recipe = "float32",
    attention: str = "naive",
    cache: LatentCache | None = None,
    tap: Tap | None = None,
) -> Array:
    """Compute one block, x_{n+1} = dense_block(x_n, R, M).

    x' = x + attention(rms_norm(x));  y = x' + swiglu(rms_norm(x'))

    x          [B, T, D] float32 or float64
    R          rotary table of the T positions, complex [T, R/2] or [B, T, R/2]: `rotary_table(config, positions)`;
               published code computes it in float32: `rotary_table(config, positions, RECIPES[name].rotary_table)`
    M          mask [T, S], [B, T, S] or [B, 1 or H, T, S]: booleans (True = may look) or floats to add
    recipe     a name of RECIPES or a Recipe: where values are rounded and how dots accumulate
    attention  "naive", or "absorb" for the up-projection folded into query and output
    cache      a LatentCache that is extended by the T tokens; S then counts the cached positions too.
               Where the block fails, or a tap raises, it stays as it was
    tap        called as tap(name, value) for every step in order; what it returns replaces the value
    Returns y [B, T, D] in float32 (float64 for that recipe), on the grid of the recipe's storage format.
    Errors: InputError naming the argument, what was expected and what was found.
    Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.1.
    """
    recipe = get_recipe(recipe)
    check_arguments(x, R, weights, recipe, attention, cache, tap)
    run = Run(weights.config, recipe, attention, cache, no_tap if tap is None else tap)
    with undone_on_error(cache):
        x = run.store("resid_pre", x)  # [B, T, D]
        x = attention_half(run, x, R, M, weights)
        return mlp_half(run, x, weights)


def attention_half(run: Run, x: Array, R: Array, M: Array, w: BlockWeights) -> Array:
    """Return x' = x + attention(rms_norm(x)), [B, T, D]."""
    h = run.norm("attn_norm", x, w.input_layernorm)
    return run.store("resid_mid", x + latent_attention(run, h, R, M, w.self_attn))


def mlp_half(run: Run, x: Array, w: BlockWeights) -> Array:
    """Return y = x + swiglu(rms_norm(x)), [B, T, D]."""
    h = run.norm("mlp_norm", x, w.post_attention_layernorm)
    return run.store("resid_post", x + in_token_tiles(run, swiglu, h, w.mlp))
