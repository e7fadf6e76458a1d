"""The run that pictures and tests look at: the small preset reading "the cat sat on the mat"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import numpy as np

from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.weights import BlockWeights
from blocklab.numerics import get_recipe
from blocklab.store.inputs import Model, Tokens, open_model, tokens_from_text
from blocklab.store.trace import Recorder, Trace, recorded

PRESET, TEXT = "kimi-k2-small", "the cat sat on the mat"


@dataclass(frozen=True)
class Example:
    """A block and a text."""

    model: Model
    tokens: Tokens

    @property
    def weights(self) -> BlockWeights:
        """The weights of the block."""
        return self.model.weights

    @property
    def positions(self) -> np.ndarray:
        """0 .. T - 1."""
        return np.arange(self.tokens.x.shape[1])

    def trace(self, recipe: str = "deepseek-fp8", steps: str = "*,*.in.*") -> Trace:
        """Run the block under a recipe and keep its steps."""
        arithmetic, recorder = get_recipe(recipe), Recorder(steps)
        R, M = (
            rotary_table(self.model.config, self.positions, arithmetic.rotary_table),
            causal_mask(len(self.positions)),
        )
        dense_block(self.tokens.x, R, M, self.weights, arithmetic, tap=recorder)
        labels, positions = json.dumps(self.tokens.labels), json.dumps(self.positions.tolist())
        about = {"model": self.model.name, "preset": PRESET, "seed": "0", "source": self.tokens.source}
        about |= {"labels": labels, "positions": positions}
        return recorded(recorder, R, M, self.model.config, arithmetic, "naive", **about)


@cache
def cat() -> Example:
    """Return the example."""
    model = open_model(PRESET, None, 0, 0)
    return Example(model, tokens_from_text(model, TEXT))
