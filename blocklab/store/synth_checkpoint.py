"""A checkpoint written in the published layout: config.json, one or several shards, an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig, preset_dict
from blocklab.errors import InputError
from blocklab.store.writing import Source, atomic_write, source, write_safetensors
from blocklab.synth.weights import BLOCK, synthetic_embedding, synthetic_tensors

_PREFIX = "model.layers.0."


def write_synthetic(directory: str | Path, preset: str, dtype: str = "fp8", seed: int = 0, shards: int = 1) -> int:
    """Write a seeded one-layer checkpoint of a preset, with the embedding of the 256 bytes; return its bytes.

    dtype  "fp8" or "bfloat16", of the matrices

    One tensor at a time is in memory. Raises InputError as `write_checkpoint` does.
    """
    settings = preset_dict(preset)
    config = BlockConfig.from_dict(settings, source=f"preset {preset}")
    embedding = np.asarray(synthetic_embedding(config, seed).raw)
    tensors = {"model.embed_tokens.weight": source("BF16", embedding)}
    tensors |= {_PREFIX + t.name: Source(t.dtype, t.shape, t.make) for t in synthetic_tensors(config, seed, dtype)}
    settings |= {"num_hidden_layers": 1, "vocab_size": len(embedding)}
    settings.pop("quantization_config", None)
    if dtype == "fp8":
        block = list(config.weight_block_size or BLOCK)
        quantization = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8"}
        settings["quantization_config"] = quantization | {"weight_block_size": block}
    return write_checkpoint(directory, settings, tensors, shards)


def write_checkpoint(
    directory: str | Path, settings: Mapping[str, Any], tensors: Mapping[str, Source], shards: int = 1
) -> int:
    """Write tensors under their full names, with `settings` as config.json, into a new or empty folder.

    Returns the bytes of all tensors. They are made and written one at a time; config.json comes last, so that a
    folder written half-way cannot be loaded, and after an exception the files written so far are removed.
    Raises InputError for a folder that holds something, a number of shards that does not fit, and a disk that
    cannot be written.
    """
    directory = Path(directory)
    parts = split(tensors, shards)
    names = [f"model-{i:05}-of-{shards:05}.safetensors" for i in range(1, shards + 1)]
    if shards == 1:
        names = ["model.safetensors"]
    created = _make_folder(directory)
    files = [*names, "model.safetensors.index.json", "config.json"]
    try:
        for name, part in zip(names, parts, strict=True):
            write_safetensors(directory / name, part, {"format": "pt"})
        if shards > 1:
            atomic_write(directory / "model.safetensors.index.json", _index(tensors, names, parts))
        atomic_write(directory / "config.json", json.dumps(settings, indent=2) + "\n")
    except BaseException:
        for name in files:
            (directory / name).unlink(missing_ok=True)
        if created:
            directory.rmdir()
        raise
    return sum(tensor.nbytes for tensor in tensors.values())


def split(tensors: Mapping[str, Source], shards: int) -> list[dict[str, Source]]:
    """Split tensors, in their order, into non-empty parts of about equal bytes."""
    if not 1 <= shards <= len(tensors):
        raise InputError(f"shards: expected 1 to {len(tensors)}, one tensor each at least; found {shards}")
    names = list(tensors)
    ends = list(accumulate(t.nbytes for t in tensors.values()))
    parts, start = [], 0
    for part in range(1, shards + 1):
        goal = ends[-1] * part / shards
        stop = start + 1
        while stop < len(names) - (shards - part) and ends[stop] <= goal:
            stop += 1
        stop = len(names) if part == shards else stop
        parts.append({name: tensors[name] for name in names[start:stop]})
        start = stop
    return parts


def _make_folder(directory: Path) -> bool:
    """Make the folder if it is not there; refuse one that holds anything."""
    try:
        if directory.is_dir():
            if any(directory.iterdir()):
                raise InputError(f"{directory}: expected a new or empty folder: nothing is overwritten")
            return False
        directory.mkdir(parents=True)
        return True
    except OSError as error:
        raise InputError(f"{directory}: cannot be made: {error.strerror}") from None


def _index(tensors: Mapping[str, Source], names: list[str], parts: list[dict[str, Source]]) -> str:
    weight_map = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    total = sum(tensor.nbytes for tensor in tensors.values())
    return json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, indent=2)
