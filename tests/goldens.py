"""The golden files of tests/fixtures: dumps of other implementations, and runs of ours along them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from blocklab.block.dense import dense_block
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.block.steps import STEPS
from blocklab.numerics import get_recipe
from blocklab.store.checkpoint import load_weights
from blocklab.store.trace_file import load_tensors

FIXTURES = Path(__file__).parent / "fixtures"
DUMPS = sorted(path.stem for path in (FIXTURES / "dumps").glob("*.safetensors"))


def read_dump(name: str):
    """Return (arrays, metadata, weights) of a dump and of the checkpoint it names."""
    file = load_tensors(FIXTURES / "dumps" / f"{name}.safetensors")
    return file.arrays, file.metadata, load_weights(FIXTURES / "checkpoints" / file.metadata["checkpoint"])


def run_along(name: str, see: Callable[[str, np.ndarray, np.ndarray], None], follow: bool = True) -> None:
    """Run our block on a dump's input, showing `see(step, ours, theirs)` each step that was recorded.

    follow  continue from their value, so that each step is judged on its own inputs
    """
    arrays, metadata, weights = read_dump(name)
    recipe = get_recipe(metadata["recipe"])
    recorded = {alias: step.name for step in STEPS.values() for alias in (*step.transformers, *step.deepseek)}
    theirs = {recorded[key]: key for key in arrays if key in recorded}
    if "rotary.cos" in arrays:
        R = arrays["rotary.cos"] + 1j * arrays["rotary.sin"]
    else:
        R = rotary_table(weights.config, arrays["position_ids"], recipe.rotary_table)
    x = arrays["input"]
    M = arrays["attention_mask"] if "attention_mask" in arrays else causal_mask(x.shape[1])

    def tap(step: str, ours: np.ndarray) -> np.ndarray:
        if step not in theirs or (step == "kv_up" and "prefill" in metadata and name == "decode-cache"):
            return ours
        value = arrays[theirs[step]].reshape(ours.shape).astype(ours.dtype)
        see(step, ours, value)
        return value if follow else ours

    dense_block(x, R, M, weights, recipe, metadata["attention"], tap=tap)
