"""One dense layer of a checkpoint, found and checked from headers alone: no tensor's data is read here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from blocklab.block.config import BlockConfig
from blocklab.block.weights import weight_shapes
from blocklab.errors import InputError, listed, shown
from blocklab.store.agreement import check_scales, check_shapes
from blocklab.store.safetensors_file import Stored, open_safetensors
from blocklab.store.shards import Shards, find_shards, locate

SCALE_SUFFIXES = ("_scale_inv", "_scale")
"""What follows a weight's name in the name of its block scales; both spellings mean the same multiplier."""

_KEY_TENSOR = "self_attn.kv_a_proj_with_mqa.weight"
_BUFFERS = "self_attn.rotary_emb."
_EXPERTS = ("mlp.experts.", "mlp.gate.", "mlp.shared_experts.")
_QUERIES = ("self_attn.q_proj.weight", "self_attn.q_a_proj.weight")


@dataclass(frozen=True)
class Layer:
    """The tensors of a dense layer under their names relative to it, and the block scales of the FP8 ones."""

    config: BlockConfig
    weights: Mapping[str, Stored]
    scales: Mapping[str, Stored]


def open_layer(path: str | Path, layer: int = 0) -> Layer:
    """Find a dense layer in the checkpoint at `path` (a folder, or one safetensors file) and check it.

    Names, shards, index, shapes, dtypes and scale grids are checked; values are not.
    Raises InputError, naming the file, the tensor, what was expected and what was found.
    """
    shards = find_shards(path)
    config = read_config(shards.where)
    _check_layer_number(shards.where, config, layer)
    known = shards.all_names()
    prefix = _layer_prefix(shards, known, config, layer)
    relative = {name[len(prefix) :]: name for name in known if name.startswith(prefix)}
    _refuse_experts(shards.where, relative.values(), layer, prefix)
    wanted = {short: name for short, name in relative.items() if not short.startswith(_BUFFERS)}
    files = locate(shards, wanted.values())
    opened = {file: open_safetensors(file) for file in sorted(set(files.values()))}
    tensors = {short: Stored(opened[files[name]], name) for short, name in wanted.items()}
    scales = _scale_names(tensors)
    _check_names(shards, config, prefix, tensors, scales)
    weights = {name: tensors[name] for name in weight_shapes(config)}
    check_shapes(config, weights)
    found = {name: tensors[scale] for name, scale in scales.items()}
    check_scales(config, weights, found)
    return Layer(config, weights, found)


def read_config(where: Path) -> BlockConfig:
    """Read the config.json in a checkpoint's folder, or beside its one file."""
    folder = where.parent if where.is_file() else where
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: no config.json, which the sizes and rotary settings are read from")
    return BlockConfig.from_json(folder / "config.json")


def closest(name: str, known: Iterable[str]) -> str:
    """Return a clause that lists the names most like `name`, or nothing."""
    names = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    return f"; closest: {', '.join(map(shown, names))}" if names else ""


def _check_layer_number(where: Path, config: BlockConfig, layer: int) -> None:
    count = config.num_hidden_layers
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < count:
        raise InputError(f"{where}: layer {layer!r}: expected 0 to {count - 1}: num_hidden_layers is {count}")
    if not config.is_dense(layer):
        dense = [str(n) for n in range(min(count, 1000)) if config.is_dense(n)]
        some = ", ".join(dense[:8]) + (", ..." if len(dense) > 8 else "")
        raise InputError(
            f"{where}: layer {layer} is a mixture of experts (MoE): expected a dense layer; dense are:"
            f" {some or 'none of this checkpoint'}"
        )


def _layer_prefix(shards: Shards, known: set[str], config: BlockConfig, layer: int) -> str:
    """Return what stands before the layer's names, such as `language_model.model.layers.0.`."""
    expected = weight_shapes(config)
    pattern = re.compile(rf"((?:.*\.)?layers\.{layer}\.)(.+)", re.DOTALL)
    matches = [m for m in map(pattern.fullmatch, known) if m is not None]
    prefixes = {m[1] for m in matches if m[2] in expected}
    prefixes = {p for p in prefixes if p + _KEY_TENSOR in known} or prefixes
    if len(prefixes) == 1:
        return prefixes.pop()
    if prefixes:
        raise InputError(
            f"{shards.where}: layer {layer} under several prefixes: {', '.join(map(shown, sorted(prefixes)))}:"
            " expected one; keep one model's files in the folder"
        )
    _refuse_experts(shards.where, (m[0] for m in matches), layer, "")
    for names in shards.names.values():
        if isinstance(names, InputError):
            raise names
    name = f"model.layers.{layer}.{_KEY_TENSOR}"
    lost = f"; missing shards: {listed(shards.absent)}" if shards.absent else ""
    raise InputError(f"{shards.where}: no tensors of layer {layer}: expected {name}{closest(name, known)}{lost}")


def _refuse_experts(where: Path, names: Iterable[str], layer: int, prefix: str) -> None:
    experts = min((n for n in names if any(f".{part}" in f".{n[len(prefix) :]}" for part in _EXPERTS)), default=None)
    if experts is not None:
        raise InputError(
            f"{where}: layer {layer} is a mixture of experts (MoE): expected a dense layer, found {shown(experts)}"
        )


def _scale_names(tensors: Mapping[str, Stored]) -> dict[str, str]:
    """Return weight -> name of its scales, refusing both spellings at once and scales without a weight."""
    scales: dict[str, str] = {}
    for short in sorted(tensors):
        for suffix in SCALE_SUFFIXES:
            weight = short.removesuffix(suffix)
            if weight == short or not weight.endswith(".weight"):
                continue
            if weight in scales:
                raise InputError(f"{tensors[short].label}: found beside {scales[weight]}: expected one spelling")
            scales[weight] = short
    return scales


def _check_names(
    shards: Shards,
    config: BlockConfig,
    prefix: str,
    tensors: Mapping[str, Stored],
    scales: Mapping[str, str],
) -> None:
    """Check that the layer has every parameter of the block and nothing else that would change its result."""
    expected = weight_shapes(config)
    for other in _QUERIES:
        if other in tensors and other not in expected:
            rank = json_value(config.q_lora_rank)
            raise InputError(f"{tensors[other].label}: does not belong to q_lora_rank {rank} of config.json")
    extra = tensors.keys() - expected.keys() - set(scales.values())
    extra |= {scale for weight, scale in scales.items() if weight not in expected and weight not in extra}
    for name in expected:
        if name not in tensors:
            lost = f"; missing shards: {listed(shards.absent)}" if shards.absent else ""
            missing = shown(prefix + name)
            raise InputError(f"{shards.where}: tensor {missing} is missing{lost or closest(name, extra)}")
    if extra:
        name = min(extra)
        reason = "this block has no biases" if name.endswith("bias") else "its effect would be lost"
        raise InputError(f"{tensors[name].label}: unexpected in a dense block: {reason}")


def json_value(value: int | None) -> str:
    """Return a setting as config.json spells it."""
    return "null" if value is None else str(value)
