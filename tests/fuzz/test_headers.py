"""Damaged safetensors files and indexes are refused, or give exactly what their bytes say."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors
from harness import refused, target
from hypothesis import strategies as st
from material import checkpoint, scratch
from mutations import Damage, Edit, as_json, damaged, damages, edited, edits

from blocklab.store.checkpoint import load_weights, parameter_table
from blocklab.store.safetensors_file import open_safetensors
from blocklab.store.trace_file import load_tensors
from blocklab.store.writing import source, write_safetensors

PARTS = st.one_of(st.tuples(edits, st.just([])), st.tuples(st.just([]), damages), st.tuples(edits, damages))


@cache
def small() -> bytes:
    path = scratch() / "small.safetensors"
    arrays = {
        "a": source("F32", np.arange(6, dtype=np.float32).reshape(2, 3)),
        "b.codes": source("F8_E4M3", np.arange(5, dtype=np.uint8)),
        "c": source("BF16", np.array(0x3F80, np.uint16)),
        "d": source("I64", np.zeros((1, 0), np.int64)),
        "e": source("BOOL", np.array([False, True, True, False])),
    }
    write_safetensors(path, arrays, {"recipe": "float32", "ü": "\n"})
    return path.read_bytes()


def changed(content: bytes, changes: list[Edit], bytes_changes: list[Damage]) -> bytes:
    """Return a safetensors file with its header edited, and its bytes after that."""
    if changes:
        length = int.from_bytes(content[:8], "little")
        header = as_json(edited(json.loads(content[8 : 8 + length]), changes)).encode("utf-8", "surrogatepass")
        content = len(header).to_bytes(8, "little") + header + content[8 + length :]
    return damaged(content, bytes_changes)


@target(PARTS, quick=300, slow=30_000)
def test_safetensors_files(case: tuple[list[Edit], list[Damage]]) -> str | None:
    content = changed(small(), *case)
    path = scratch() / "file.safetensors"
    path.write_bytes(content)

    def read() -> None:
        file = open_safetensors(path)
        expected = dict(safetensors.deserialize(content))
        assert file.tensors.keys() == expected.keys()
        for name, tensor in expected.items():
            found = np.asarray(file.array(name))
            assert (list(found.shape), found.tobytes()) == (tensor["shape"], bytes(tensor["data"]))
        arrays = load_tensors(path).arrays
        assert all(
            (arrays[name].shape, arrays[name].dtype) == (header.shape, header.dtype)
            for name, header in arrays.headers.items()
        )

    return refused(read)


@target(PARTS, quick=60)
def test_checkpoints(case: tuple[list[Edit], list[Damage]]) -> str | None:
    folder = _copy(1)
    content = changed((checkpoint() / "model.safetensors").read_bytes(), *case)
    (folder / "model.safetensors").write_bytes(content)
    return refused(lambda: _load_and_compare(folder))


@target(st.tuples(PARTS, st.booleans()), quick=60)
def test_indexes(case: tuple[tuple[list[Edit], list[Damage]], bool]) -> str | None:
    (changes, bytes_changes), shuffled = case
    folder = _copy(3)
    index = folder / "model.safetensors.index.json"
    content = as_json(edited(json.loads(index.read_text()), changes)).encode("utf-8", "surrogatepass")
    index.write_bytes(damaged(content, bytes_changes))
    if shuffled:
        one, two = folder / "model-00001-of-00003.safetensors", folder / "model-00002-of-00003.safetensors"
        one.rename(folder / "other")
        two.rename(one)
        (folder / "other").rename(two)
    return refused(lambda: _load_and_compare(folder))


def _copy(shards: int) -> Path:
    folder = scratch() / f"copy-{shards}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkpoint("fp8", shards), folder)
    return folder


def _load_and_compare(folder: Path) -> None:
    """Compare every weight with what the safetensors package and ml_dtypes make of the same bytes."""
    parameter_table(folder)
    weights = load_weights(folder)
    stored = {}
    for file in folder.glob("*.safetensors"):
        stored |= dict(safetensors.deserialize(file.read_bytes()))
    prefix = next(n for n in stored if n.endswith("kv_a_proj_with_mqa.weight")).partition("self_attn.")[0]
    for name, weight in weights.named().items():
        expected = _values(stored[prefix + name])
        scale = stored.get(f"{prefix}{name}_scale_inv") or stored.get(f"{prefix}{name}_scale")
        if scale is not None:
            rows, columns = (np.arange(n) // 16 for n in expected.shape)
            expected = expected * _values(scale)[rows[:, None], columns]
        np.testing.assert_array_equal(weight.values(), expected)


def _values(tensor: dict[str, object]) -> np.ndarray:
    names = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "BF16": ml_dtypes.bfloat16, "F16": "<f2", "F32": "<f4", "F64": "<f8"}
    array = np.frombuffer(tensor["data"], names[tensor["dtype"]]).reshape(tensor["shape"])  # type: ignore[index]
    return array if array.dtype == np.float64 else array.astype(np.float32)
