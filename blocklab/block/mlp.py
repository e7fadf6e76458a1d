"""The gated MLP: SwiGLU."""

from __future__ import annotations

from blocklab.block.operations import linear, silu, store
from blocklab.block.taps import Tap, see
from blocklab.block.weights import MlpWeights
from blocklab.numerics import Recipe
from blocklab.xp import Array


def swiglu(h: Array, w: MlpWeights, recipe: Recipe, tap: Tap) -> Array:
    """Return W_down (silu(W_gate h) * W_up h) for normed tokens h [B, T, D].

    Source: arXiv 2002.05202.
    """
    gate = linear(h, w.gate_proj, recipe, tap, "gate")  # [B, T, F]
    up = linear(h, w.up_proj, recipe, tap, "up")  # [B, T, F]
    gate_act = see(tap, "gate_act", silu(gate, recipe))
    act = see(tap, "act", store(gate_act * up, recipe))
    return linear(act, w.down_proj, recipe, tap, "mlp_out")  # [B, T, D]
