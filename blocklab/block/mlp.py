"""The gated MLP: SwiGLU."""

from __future__ import annotations

from operator import mul

from blocklab.block.operations import silu
from blocklab.block.run import Run
from blocklab.block.weights import MlpWeights
from blocklab.xp import Array


def swiglu(run: Run, h: Array, w: MlpWeights) -> Array:
    """Return W^down (silu(W^gate h) * W^up h) for normed tokens h [B, T, D].

    Source: arXiv 2002.05202.
    """
    gate = run.linear("gate", h, w.gate_proj)  # [B, T, F]
    up = run.linear("up", h, w.up_proj)
    act = run.each("act", mul, run.each("gate_act", silu, gate), up)
    return run.linear("mlp_out", act, w.down_proj)  # [B, T, D]
