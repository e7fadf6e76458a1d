"""What the benchmarks run on: a checkpoint, its weights as they are stored and as float32, and inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from blocklab import BlockConfig, causal_mask, load_weights, rotary_table
from blocklab.block.weights import BlockWeights
from blocklab.numerics.weight import Weight


@dataclass(frozen=True)
class Setting:
    """A checkpoint folder, and whether to measure small sizes only."""

    checkpoint: Path
    quick: bool

    @property
    def config(self) -> BlockConfig:
        return self.weights.config

    @cached_property
    def weights(self) -> BlockWeights:
        """The weights as stored: FP8 in the memory map."""
        return load_weights(self.checkpoint)

    @cached_property
    def float32_weights(self) -> BlockWeights:
        """The same weights decoded: 2 GiB at full size."""
        named = {name: Weight(w.values().astype(np.float32), "float32") for name, w in self.weights.named().items()}
        return BlockWeights.from_mapping(self.config, named)

    def matrices(self) -> dict[str, np.ndarray]:
        """Return the seven matrices in float32 under their last names, as in gate_proj."""
        named = self.float32_weights.named()
        return {name.split(".")[-2]: w.raw for name, w in named.items() if len(w.shape) == 2}

    def inputs(self, T: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return seeded x [1, T, D], the rotary table and the causal mask of T tokens."""
        x = np.random.default_rng(0).standard_normal((1, T, self.config.hidden_size), np.float32)
        return x, rotary_table(self.config, np.arange(T)), causal_mask(T)
