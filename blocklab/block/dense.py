"""One dense transformer block of Kimi K2: attention and MLP, each normed before and added after."""

from __future__ import annotations

import numpy as np

from blocklab.block.attention import latent_attention
from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.mlp import swiglu
from blocklab.block.operations import rms_norm, store
from blocklab.block.taps import Tap, no_tap, see
from blocklab.block.weights import BlockWeights, require_weights
from blocklab.errors import InputError, brief
from blocklab.numerics import Recipe, get_recipe
from blocklab.xp import Array


@np.errstate(over="ignore", invalid="ignore")  # the values tell
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
    cache      a LatentCache that is extended by the T tokens, as soon as their keys are there; S then counts the
               cached positions too
    tap        called as tap(name, value) for every step in order; what it returns replaces the value
    Returns y [B, T, D] in float32 (float64 for that recipe), on the grid of the recipe's storage format.
    Errors: InputError naming the argument, what was expected and what was found.
    Source: DeepSeek-V3 report (arXiv 2412.19437), section 2.1.
    """
    recipe, tap = get_recipe(recipe), no_tap if tap is None else tap
    _check_kinds(weights, cache, tap)
    _check_arguments(x, R, weights.config)
    _check_formats(weights, recipe, attention)
    config, w = weights.config, weights

    x = see(tap, "resid_pre", store(x, recipe))  # [B, T, D]
    h = see(tap, "attn_norm", rms_norm(x, w.input_layernorm, config.rms_norm_eps, recipe))
    a = latent_attention(h, R, M, w.self_attn, config, recipe, attention, cache, tap)
    x = see(tap, "resid_mid", store(x + a, recipe))

    h = see(tap, "mlp_norm", rms_norm(x, w.post_attention_layernorm, config.rms_norm_eps, recipe))
    m = swiglu(h, w.mlp, recipe, tap)
    return see(tap, "resid_post", store(x + m, recipe))


def _check_formats(weights: BlockWeights, recipe: Recipe, attention: str) -> None:
    """Refuse linears that are not FP8 under an FP8 recipe; absorbed attention takes W_UK and W_UV in any format."""
    plain = {name: w.format for name, w in weights.named().items() if w.scale is None and len(w.shape) == 2}
    if attention == "absorb":
        plain.pop("self_attn.kv_b_proj.weight", None)
    if recipe.fp8_linear and plain:
        name, found = next(iter(plain.items()))
        raise InputError(
            f"{name}: recipe {recipe.name} expected an FP8 weight with block scales; found {found}."
            " Use recipe deepseek-bf16 for this checkpoint"
        )


def _check_kinds(weights: BlockWeights, cache: LatentCache | None, tap: Tap) -> None:
    require_weights(weights)
    if cache is not None and not isinstance(cache, LatentCache):
        raise InputError(f"cache: expected a LatentCache or None; found {brief(cache)}")
    if not callable(tap) or isinstance(tap, type):
        raise InputError(f"tap: expected a function of a name and a value; found {brief(tap)}")


def _check_arguments(x: Array, R: Array, c: BlockConfig) -> None:
    if getattr(x, "ndim", 0) != 3 or x.shape[2] != c.hidden_size or x.dtype not in ("float32", "float64"):
        found = f"{x.dtype}{list(x.shape)}" if hasattr(x, "shape") else type(x).__name__
        raise InputError(f"input: expected float32 or float64 [B, T, {c.hidden_size}]; found {found}")
    B, T, _ = x.shape
    pairs = c.qk_rope_head_dim // 2
    if (
        getattr(R, "dtype", None) is None
        or R.dtype.kind != "c"
        or R.shape not in ((T, pairs), (1, T, pairs), (B, T, pairs))
    ):
        found = f"{R.dtype}{list(R.shape)}" if hasattr(R, "dtype") else type(R).__name__
        raise InputError(
            f"rotary table: expected complex [T, R/2] = [{T}, {pairs}] or [{B}, {T}, {pairs}]; found {found}"
        )
