"""The parameters of a block under the names of the published checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from blocklab.block.config import BlockConfig
from blocklab.block.steps import steps_of, width
from blocklab.errors import InputError, listed
from blocklab.numerics.weight import Weight


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights of latent attention, each [out, in]."""

    q_a_proj: Weight | None  # None where queries are not compressed: q_lora_rank null
    q_a_layernorm: Weight | None
    q_b_proj: Weight  # the checkpoint's q_proj where queries are not compressed
    kv_a_proj_with_mqa: Weight
    kv_a_layernorm: Weight
    kv_b_proj: Weight
    o_proj: Weight


@dataclass(frozen=True, eq=False)
class MlpWeights:
    """The weights of the SwiGLU MLP, each [out, in]."""

    gate_proj: Weight
    up_proj: Weight
    down_proj: Weight


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """All parameters of one dense block, and the config that they fit."""

    config: BlockConfig
    input_layernorm: Weight
    self_attn: AttentionWeights
    post_attention_layernorm: Weight
    mlp: MlpWeights

    def __post_init__(self) -> None:
        named = self.named()
        for name, shape in weight_shapes(self.config).items():
            found = named[name].shape if isinstance(named[name], Weight) else type(named[name]).__name__
            if found != shape:
                raise InputError(f"weights: {name}: expected a Weight {list(shape)}; found {found}")

    @classmethod
    def from_mapping(cls, config: BlockConfig, named: Mapping[str, Weight]) -> BlockWeights:
        """Build from the names of `weight_shapes(config)`.

        Errors: InputError for a name that is missing, and for another shape.
        """
        missing = weight_shapes(config).keys() - named.keys()
        if missing:
            raise InputError(f"weights: expected {min(missing)}; found {listed(named)}")
        parts: dict[str, dict[str, Any]] = {"self_attn": dict.fromkeys(AttentionWeights.__dataclass_fields__)}
        for name in weight_shapes(config):
            part, leaf = _attribute(name)
            parts.setdefault(part, {})[leaf] = named[name]
        return cls(
            config,
            parts["input_layernorm"][""],
            AttentionWeights(**parts["self_attn"]),
            parts["post_attention_layernorm"][""],
            MlpWeights(**parts["mlp"]),
        )

    def to(self, xp: ModuleType) -> BlockWeights:
        """Return the weights as arrays of numpy or cupy, still encoded: `weights.to(cupy)` copies them to the GPU."""
        moved = {name: weight.to(xp) for name, weight in self.named().items()}
        return self.from_mapping(self.config, moved)

    def named(self) -> dict[str, Weight]:
        """Return every weight under its checkpoint name, relative to the layer."""
        parts = {name: _attribute(name) for name in weight_shapes(self.config)}
        holders = {name: getattr(self, part) for name, (part, _) in parts.items()}
        return {name: getattr(holders[name], leaf) if leaf else holders[name] for name, (_, leaf) in parts.items()}


def _attribute(name: str) -> tuple[str, str]:
    """Return which part of BlockWeights a name is in, and what it is called there; "" for the part itself."""
    part, _, leaf = name.removesuffix(".weight").partition(".")
    return part, "q_b_proj" if leaf == "q_proj" else leaf


def require_weights(weights: object) -> None:
    """Refuse what are no weights of a block."""
    if not isinstance(weights, BlockWeights):
        raise InputError(
            "weights: expected BlockWeights, from load_weights(path) or synthetic_weights(config);"
            f" found {type(weights).__name__}"
        )


def weight_shapes(config: BlockConfig) -> dict[str, tuple[int, ...]]:
    """Return name (relative to the layer) -> shape of every parameter of a dense block, in reading order."""
    return {
        name: tuple(math.prod(width(axis, config) for axis in axes) for axes in shape)
        for name, shape in weight_axes(config).items()
    }


def weight_axes(config: BlockConfig) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return name -> the axes of its outputs and of its inputs, ("H", "N+R") and ("Q",); of its channels for a gain."""
    steps = steps_of(config)
    compressed = config.q_lora_rank is not None
    return {
        step.weight: tuple(steps[name].axes[2:] for name in (step.name, *step.inputs)[: 1 if step.eps else 2])
        for step in steps.values()
        if step.weight is not None and step.attention != "absorb" and (compressed or "Q" not in step.axes)
    }
