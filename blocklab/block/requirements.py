"""What the arguments of a block must be; one line says which is not."""

from __future__ import annotations

from blocklab.block.cache import LatentCache
from blocklab.block.steps import STEPS
from blocklab.block.taps import Tap
from blocklab.block.weights import BlockWeights, require_weights
from blocklab.errors import InputError, brief, listed
from blocklab.numerics import Recipe
from blocklab.xp import Array


def check_arguments(
    x: Array,
    R: Array,
    weights: BlockWeights,
    recipe: Recipe,
    attention: str,
    cache: LatentCache | None,
    tap: Tap | None,
) -> None:
    """Refuse what `dense_block` cannot compute with; the mask is checked where it meets the keys."""
    require_weights(weights)
    if attention not in ("naive", "absorb"):
        raise InputError(f"attention must be naive or absorb; found {brief(attention)}")
    if cache is not None and not isinstance(cache, LatentCache):
        raise InputError(f"cache: expected a LatentCache or None; found {brief(cache)}")
    if tap is not None and (not callable(tap) or isinstance(tap, type)):
        raise InputError(f"tap: expected a function of a name and a value; found {brief(tap)}")
    _check_arrays(x, R, weights.config.hidden_size, weights.config.qk_rope_head_dim // 2)
    check_recipe(recipe, weights, attention)


def _check_arrays(x: Array, R: Array, width: int, pairs: int) -> None:
    if getattr(x, "ndim", 0) != 3 or x.shape[2] != width or x.dtype not in ("float32", "float64"):
        raise InputError(f"input: expected float32 or float64 [B, T, {width}]; found {_kind(x)}")
    B, T, _ = x.shape
    complex_numbers = getattr(getattr(R, "dtype", None), "kind", None) == "c"
    if not complex_numbers or R.shape not in ((T, pairs), (1, T, pairs), (B, T, pairs)):
        expected = f"complex [T, R/2] = [{T}, {pairs}] or [{B}, {T}, {pairs}]"
        raise InputError(f"rotary table: expected {expected}; found {_kind(R)}")


def _kind(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}" if hasattr(array, "dtype") else type(array).__name__


def check_recipe(recipe: Recipe, weights: BlockWeights, attention: str) -> None:
    """Refuse exceptions for what is no step, and linears that are not FP8 under an FP8 recipe.

    Absorbed attention takes W^UK and W^UV in any format.
    """
    unknown = [name for name in recipe.exceptions if name not in STEPS]
    if unknown:
        raise InputError(f"recipe {recipe.name}: no step {listed(unknown)}; the steps are {', '.join(STEPS)}")
    plain = {name: w.format for name, w in weights.named().items() if w.scale is None and len(w.shape) == 2}
    if attention == "absorb":
        plain.pop("self_attn.kv_b_proj.weight", None)
    if recipe.fp8_linear and plain:
        name, found = next(iter(plain.items()))
        raise InputError(
            f"{name}: recipe {recipe.name} expected an FP8 weight with block scales; found {found}."
            " Use recipe deepseek-bf16 for this checkpoint"
        )
