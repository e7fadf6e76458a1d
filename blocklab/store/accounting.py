"""How many parameters and bytes a block has, part by part."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from blocklab.block.config import BlockConfig
from blocklab.block.steps import SETTINGS, STEPS, width
from blocklab.block.weights import weight_shapes

_BITS = {"e4m3fn": 8, "bfloat16": 16, "float16": 16, "float32": 32, "float64": 64}


@dataclass(frozen=True)
class Component:
    """One parameter tensor; block scales count neither as parameters nor as bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def parameters(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes as stored."""
        return self.parameters * _BITS[self.dtype] // 8

    @property
    def part(self) -> str:
        """The part it counts as: "attention" (latent norms too), "mlp" or "norms"."""
        return {"self_attn": "attention", "mlp": "mlp"}.get(self.name.partition(".")[0], "norms")


def components(config: BlockConfig) -> list[Component]:
    """Return every parameter of a block as published: matrices FP8 where the config has block scales."""
    matrices = "bfloat16" if config.weight_block_size is None else "e4m3fn"
    return [
        Component(name, shape, matrices if len(shape) == 2 else "bfloat16")
        for name, shape in weight_shapes(config).items()
    ]


def totals(parts: Iterable[Component]) -> dict[str, dict[str, int]]:
    """Return parameters and bytes of attention, mlp, norms and total."""
    sums = {part: {"parameters": 0, "bytes": 0} for part in ("attention", "mlp", "norms", "total")}
    for component in parts:
        for part in (component.part, "total"):
            sums[part]["parameters"] += component.parameters
            sums[part]["bytes"] += component.bytes
    return sums


def axis_sizes(config: BlockConfig, B: int, T: int, S: int) -> dict[str, int]:
    """Return the size of every axis letter of `steps.AXES`; Q is 0 where queries are not compressed."""
    return {"B": B, "T": T, "S": S} | {axis: width(axis, config) for axis in SETTINGS}


def step_shapes(config: BlockConfig, B: int, T: int, S: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every step of a run with T new tokens and S keys."""
    sizes = axis_sizes(config, B, T, S)
    return {
        name: tuple(sum(sizes[part] for part in axis.split("+")) for axis in step.axes) for name, step in STEPS.items()
    }


def cache_numbers(config: BlockConfig) -> dict[str, int]:
    """Return how many numbers one token leaves in a cache: the latent one, and full keys and values."""
    c = config
    return {
        "latent": c.kv_lora_rank + c.qk_rope_head_dim,
        "full": c.num_attention_heads * (c.qk_head_dim + c.v_head_dim),
    }
