"""Valid files that cases are made from, and a scratch folder for them."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.store.checkpoint import load_weights
from blocklab.store.synth_checkpoint import write_checkpoint
from blocklab.store.trace import Trace, trace
from store.tiny_checkpoints import SETTINGS, tensors

YARN = {
    "type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0, "beta_slow": 1.0,
    "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip


@cache
def scratch() -> Path:
    """Return a folder that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def checkpoint(dtype: str = "fp8", shards: int = 1) -> Path:
    """Return the folder of a tiny checkpoint with YaRN, for reading only."""
    folder = scratch() / f"checkpoint-{dtype}-{shards}"
    if not folder.exists():
        write_checkpoint(folder, SETTINGS | {"rope_scaling": YARN}, tensors(dtype), shards)
    return folder


@cache
def settings() -> str:
    """Return a config.json."""
    return (checkpoint() / "config.json").read_text()


@cache
def config() -> BlockConfig:
    """Return the sizes of the tiny block."""
    return BlockConfig.from_dict(json.loads(settings()))


@cache
def a_trace(attention: str = "naive", recipe: str = "deepseek-fp8") -> Trace:
    """Return the trace of two sequences of three tokens."""
    x = np.random.default_rng(3).standard_normal((2, 3, config().hidden_size)).astype(np.float32)
    R, M = rotary_table(config(), np.arange(3)), causal_mask(3)
    return trace(x, R, M, load_weights(checkpoint()), recipe, attention, steps="*,*.in.*")


@cache
def trace_file(attention: str = "naive", ending: str = ".safetensors") -> Path:
    """Return the file of a trace; npz has the same arrays and says nothing about the run."""
    path = scratch() / f"{attention}{ending}"
    made = a_trace(attention)
    if ending == ".npz":
        np.savez(path, **made.given, **made.arrays)
    elif ending == ".npy":
        np.save(path, made["resid_pre"])
    else:
        made.save(path)
    return path
