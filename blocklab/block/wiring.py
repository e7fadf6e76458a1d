"""What each step is computed from: its inputs, the weight it uses, and the kind of operation."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from blocklab.block.config import BlockConfig

Kind = Literal[
    "input", "norm", "linear", "first part", "last part", "rotation", "scores", "mask", "softmax", "mix", "silu",
    "product", "sum", "absorb", "unabsorb",
]  # fmt: skip


@dataclass(frozen=True)
class Wire:
    """How a step comes about.

    inputs  the steps it reads; for a part of a last axis, the step it is cut from
    weight  the parameter it uses, by its name relative to the layer
    """

    kind: Kind
    inputs: tuple[str, ...] = ()
    weight: str | None = None


_WIRES = {
    "resid_pre": Wire("input"),
    "attn_norm": Wire("norm", ("resid_pre",), "input_layernorm.weight"),
    "q_latent": Wire("linear", ("attn_norm",), "self_attn.q_a_proj.weight"),
    "q_latent_norm": Wire("norm", ("q_latent",), "self_attn.q_a_layernorm.weight"),
    "q": Wire("linear", ("q_latent_norm",), "self_attn.q_b_proj.weight"),
    "q_nope": Wire("first part", ("q",)),
    "q_rot": Wire("rotation", ("q",)),
    "kv_down": Wire("linear", ("attn_norm",), "self_attn.kv_a_proj_with_mqa.weight"),
    "kv_latent": Wire("first part", ("kv_down",)),
    "kv_latent_norm": Wire("norm", ("kv_latent",), "self_attn.kv_a_layernorm.weight"),
    "k_rot": Wire("rotation", ("kv_down",)),
    "kv_up": Wire("linear", ("kv_latent_norm",), "self_attn.kv_b_proj.weight"),
    "k_nope": Wire("first part", ("kv_up",)),
    "v": Wire("last part", ("kv_up",)),
    "q_absorbed": Wire("absorb", ("q_nope",), "self_attn.kv_b_proj.weight"),
    "attn_scores": Wire("scores", ("q_nope", "k_nope", "q_rot", "k_rot")),
    "attn_masked": Wire("mask", ("attn_scores",)),
    "pattern": Wire("softmax", ("attn_masked",)),
    "z_latent": Wire("mix", ("pattern", "kv_latent_norm")),
    "z": Wire("mix", ("pattern", "v")),
    "attn_out": Wire("linear", ("z",), "self_attn.o_proj.weight"),
    "resid_mid": Wire("sum", ("resid_pre", "attn_out")),
    "mlp_norm": Wire("norm", ("resid_mid",), "post_attention_layernorm.weight"),
    "gate": Wire("linear", ("mlp_norm",), "mlp.gate_proj.weight"),
    "up": Wire("linear", ("mlp_norm",), "mlp.up_proj.weight"),
    "gate_act": Wire("silu", ("gate",)),
    "act": Wire("product", ("gate_act", "up")),
    "mlp_out": Wire("linear", ("act",), "mlp.down_proj.weight"),
    "resid_post": Wire("sum", ("resid_mid", "mlp_out")),
}

_ABSORBED = {
    "attn_scores": Wire("scores", ("q_absorbed", "kv_latent_norm", "q_rot", "k_rot")),
    "z": Wire("unabsorb", ("z_latent",), "self_attn.kv_b_proj.weight"),
}

_UNCOMPRESSED = {"q": Wire("linear", ("attn_norm",), "self_attn.q_proj.weight")}

QUANTISED = tuple(
    f"{step}.in.{part}" for step, wire in _WIRES.items() if wire.kind == "linear" for part in ("codes", "scale")
)
"""Names of the quantised inputs of linears in an FP8 recipe."""


def wire_of(step: str, config: BlockConfig | None = None, attention: str = "naive") -> Wire:
    """Return how a step comes about in this form of attention; without a config, queries are taken as compressed."""
    if attention == "absorb" and step in _ABSORBED:
        return _ABSORBED[step]
    if config is not None and config.q_lora_rank is None and step in _UNCOMPRESSED:
        return _UNCOMPRESSED[step]
    return _WIRES[step]


def multiplied_by(weight: str) -> tuple[str, ...]:
    """Return the steps that multiply by a matrix of the checkpoint, in every form of attention; none for a gain."""
    wires = (*_WIRES.items(), *_ABSORBED.items(), *_UNCOMPRESSED.items())
    return tuple(step for step, w in wires if w.weight == weight and w.kind in ("linear", "absorb", "unabsorb"))


def attention_of(steps: Container[str]) -> str:
    """Return which form of attention these steps come from."""
    return "absorb" if "q_absorbed" in steps or "z_latent" in steps else "naive"
