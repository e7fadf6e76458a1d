"""The gated MLP: SwiGLU."""

from __future__ import annotations

from blocklab.block.operations import linear, silu, store
from blocklab.block.taps import Tap, listens, no_tap, see
from blocklab.block.weights import MlpWeights
from blocklab.numerics import Recipe
from blocklab.numerics.threads import elementwise
from blocklab.xp import Array, array_module

TILE_TOKENS = 1024
"""Tokens whose MLP activations are held at one time when nobody listens to them."""

_INNER = (
    *("gate", "up", "gate_act", "act"),
    *(f"{name}.in.{part}" for name in ("gate", "up", "mlp_out") for part in ("codes", "scale")),
)


def swiglu(h: Array, w: MlpWeights, recipe: Recipe, tap: Tap) -> Array:
    """Return W_down (silu(W_gate h) * W_up h) for normed tokens h [B, T, D].

    Long inputs are computed in tiles of tokens where nobody listens to what is inside: every token is
    computed as it would be alone.
    Source: arXiv 2002.05202.
    """
    B, T, D = h.shape
    whole = recipe.fp8_linear and recipe.granularity == "tensor"  # a tile would have a scale of its own
    if B * T <= TILE_TOKENS or whole or any(listens(tap, name) for name in _INNER):
        return gated(h, w, recipe, tap)
    tokens = h.reshape(B * T, D)
    y = array_module(h).empty_like(tokens)
    for start in range(0, B * T, TILE_TOKENS):
        tile = slice(start, start + TILE_TOKENS)
        y[tile] = gated(tokens[tile], w, recipe, no_tap)
    return see(tap, "mlp_out", y.reshape(B, T, D))


def gated(h: Array, w: MlpWeights, recipe: Recipe, tap: Tap) -> Array:
    """Return the MLP of tokens [..., D]."""
    gate = linear(h, w.gate_proj, recipe, tap, "gate")  # [..., F]
    up = linear(h, w.up_proj, recipe, tap, "up")  # [..., F]
    gate_act = see(tap, "gate_act", elementwise(lambda x: silu(x, recipe), recipe.carrier, gate))
    act = see(tap, "act", elementwise(lambda a, b: store(a * b, recipe), recipe.carrier, gate_act, up))
    return linear(act, w.down_proj, recipe, tap, "mlp_out")  # [..., D]
