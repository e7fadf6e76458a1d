"""Which safetensors files make up a checkpoint, and which of them holds a tensor.

A checkpoint is one file, or a folder with `model.safetensors`, or numbered shards (`model-00001-of-00002`), mostly
with an index. Index and shards are checked in both directions, for the tensors that are wanted: of 61 shards only
those that hold the wanted layer have to be there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from blocklab.errors import InputError, brief, listed, shown
from blocklab.json_file import read_json
from blocklab.store.safetensors_file import tensor_names

_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<total>\d+)\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True)
class Shards:
    """The files of one checkpoint.

    where   the folder or file that was asked for
    names   file -> names of its tensors; an InputError for a file whose header cannot be read, which matters only
            if the file turns out to be needed
    absent  names of files that should be there and are not
    index   tensor -> file name, where there is an index
    """

    where: Path
    names: Mapping[Path, frozenset[str] | InputError]
    absent: tuple[str, ...]
    index: Mapping[str, str] | None = None

    def all_names(self) -> set[str]:
        """Return every tensor name that the index or a readable header gives."""
        found: set[str] = set(self.index or ())
        for names in self.names.values():
            if not isinstance(names, InputError):
                found |= names
        return found


def find_shards(path: str | Path) -> Shards:
    """Find the safetensors files of the checkpoint at `path`, a folder or one file.

    Raises InputError where there are none, or where an index cannot be understood.
    """
    path = Path(path)
    if path.is_file():
        return Shards(path, {path: tensor_names(path)}, ())
    if not path.is_dir():
        there = os.path.lexists(path)
        raise InputError(
            f"{path}: {'expected a file or a folder, found something else' if there else 'no such file or folder'}"
        )
    indices = sorted(path.glob("*.safetensors.index.json"))
    if len(indices) > 1:
        raise InputError(f"{path}: expected one index, found {', '.join(i.name for i in indices)}")
    index = _read_index(indices[0]) if indices else None
    files = {f.name for f in path.glob("*.safetensors") if f.is_file()}
    numbered = {name for name in files if _NUMBERED.fullmatch(name)}
    chosen = numbered | (files & {"model.safetensors"}) | (files & set((index or {}).values()))
    if not chosen and len(files) == 1 and index is None:
        chosen = files
    absent = set(index.values()) - files if index is not None else _absent_numbers(path, numbered)
    if not chosen and not absent:
        raise InputError(f"{path}: {_nothing_found(path, files)}")
    return Shards(path, {path / name: _names_or_error(path / name) for name in sorted(chosen)}, _sorted(absent), index)


def locate(shards: Shards, wanted: Iterable[str]) -> dict[str, Path]:
    """Return tensor -> file for the wanted names that are known, after checking index against shards.

    Raises InputError for a missing shard that holds a wanted tensor, an unreadable one, a tensor that the index
    names and the shard lacks or the other way round, and a tensor in two files.
    """
    wanted = set(wanted)
    index = shards.index
    named = {} if index is None else {name: index[name] for name in sorted(wanted & index.keys())}
    absent = set(named.values()) & set(shards.absent)
    if absent:
        raise InputError(f"{shards.where}: missing shards: {listed(_sorted(absent))}")
    held: dict[str, Path] = {}
    for file, names in shards.names.items():
        if isinstance(names, InputError):
            if index is None or file.name in named.values():
                raise names
            continue
        for name in sorted(wanted & names):
            if name in held:
                raise InputError(
                    f"{shards.where}: tensor {shown(name)} is in two files: {held[name].name} and {file.name}"
                )
            held[name] = file
    if index is not None:
        _compare_with_index(shards.where, named, held)
    return held


def _compare_with_index(where: Path, named: Mapping[str, str], held: Mapping[str, Path]) -> None:
    for name, file in named.items():
        found = held.get(name)
        if found is None or found.name != file:
            instead = "the shard lacks it" if found is None else f"found it in {found.name}"
            raise InputError(f"{where / file}: tensor {shown(name)}: the index expects it in this shard; {instead}")
    for name in sorted(held.keys() - named.keys()):
        raise InputError(f"{held[name]}: tensor {shown(name)} is in the shard, but the index does not name it")


def _read_index(path: Path) -> dict[str, str]:
    content = read_json(path)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{path}: expected an object with a weight_map of tensor names to file names")
    for name, file in weight_map.items():
        if not isinstance(file, str) or "/" in file or "\\" in file or not file.endswith(".safetensors"):
            raise InputError(
                f"{path}: tensor {shown(name)}: expected the name of a safetensors file in the same folder,"
                f" found {brief(file)}"
            )
    return weight_map


def _absent_numbers(path: Path, numbered: set[str]) -> set[str]:
    """Return the names that numbered shards without an index call for: 1 to N of `-of-N`."""
    matches = [m for m in map(_NUMBERED.fullmatch, sorted(numbered)) if m is not None]
    if not matches:
        return set()
    sets = sorted({(m["stem"], m["total"]) for m in matches})
    if len(sets) > 1:
        raise InputError(f"{path}: shards of several checkpoints: {', '.join(f'{s}-*-of-{n}' for s, n in sets)}")
    (stem, total), width = sets[0], len(matches[0]["number"])
    present = {int(m["number"]) for m in matches}
    if int(total) > 100_000:
        raise InputError(f"{path}: implausible number of shards: {matches[0].string}")
    return {f"{stem}-{n:0{width}}-of-{total}.safetensors" for n in range(1, int(total) + 1) if n not in present}


def _names_or_error(path: Path) -> frozenset[str] | InputError:
    try:
        return tensor_names(path)
    except InputError as error:
        return error


def _nothing_found(path: Path, files: set[str]) -> str:
    if files:
        return f"expected model.safetensors or an index, found {', '.join(_sorted(files)[:5])}"
    pickles = _sorted({f.name for f in path.iterdir() if f.suffix in _PICKLES})
    if pickles:
        return f"expected safetensors, found {pickles[0]}: pickles are never read, since reading one runs it"
    return "no safetensors file"


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
