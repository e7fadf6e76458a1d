"""Traces that the tests of `show` look at."""

import numpy as np
import pytest

from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.numerics import get_recipe
from blocklab.show.example import cat as example
from blocklab.store.checkpoint import load_weights
from blocklab.store.trace import trace
from goldens import FIXTURES


@pytest.fixture(scope="session")
def fp8_weights():
    return load_weights(FIXTURES / "checkpoints" / "kimi-fp8")


@pytest.fixture(scope="session")
def golden_trace(fp8_weights):
    """Return a function of recipe and attention: a trace of the FP8 golden checkpoint, two rows of seven tokens."""

    def run(recipe, attention="naive", steps="*"):
        positions = np.arange(7) * 37 + 1000
        R = rotary_table(fp8_weights.config, positions, get_recipe(recipe).rotary_table)
        x = np.random.default_rng(0).standard_normal((2, 7, fp8_weights.config.hidden_size)).astype(np.float32)
        x[:, :, 5] *= 16
        return trace(x, R, causal_mask(7), fp8_weights, recipe, attention, steps=steps)

    return run


@pytest.fixture(scope="session")
def cat():
    """Return the small preset's trace of "the cat sat on the mat", FP8, quantised inputs included."""
    return example().trace()
