from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tiny_checkpoints import PREFIX, SETTINGS, tensors

from blocklab.errors import InputError
from blocklab.store import writing
from blocklab.store.checkpoint import load_weights
from blocklab.store.safetensors_file import open_safetensors
from blocklab.store.synth_checkpoint import split, write_checkpoint
from blocklab.store.writing import Source, atomic_write, refuse_overwriting, require_targets, source, write_safetensors


def failing(error: BaseException) -> Callable[[], np.ndarray]:
    def make() -> np.ndarray:
        raise error

    return make


def test_the_safetensors_package_reads_it_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    rng = np.random.default_rng(1)
    wide = rng.standard_normal((4, 6, 5))
    arrays = {
        "u8": np.arange(7, dtype=np.uint8),
        "transposed": wide.astype(np.float32).transpose(2, 0, 1),
        "reversed": wide[::-1, :, ::2],
        "broadcast": np.broadcast_to(np.float16([1, 2, 3]), (2, 3)),
        "scalar": np.array(3, np.int64),
        "empty": np.zeros((3, 0), np.int32),
        "bool": np.array([[True], [False]]),
    }
    names = {"uint8": "U8", "float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int32": "I32"}
    names["bool"] = "BOOL"
    write_safetensors(path, {n: source(names[a.dtype.name], a) for n, a in arrays.items()}, {"von": "Ümläut"})
    found = load_file(path)
    assert found.keys() == arrays.keys()
    for name, expected in arrays.items():
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"von": "Ümläut"}
    assert all(e.start % 8 == 0 for n, e in open_safetensors(path).tensors.items() if n in ("reversed", "scalar"))


def test_bfloat16_codes_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = np.array([[1.0, -2.5], [3e38, 2.0**-133]], ml_dtypes.bfloat16)
    write_safetensors(path, {"b": source("BF16", values.view(np.uint16))})
    np.testing.assert_array_equal(load_file(path)["b"].astype(np.float32), values.astype(np.float32))


def test_tensors_are_made_one_at_a_time(tmp_path: Path) -> None:
    made: list[str] = []

    def maker(name: str) -> Source:
        def make() -> np.ndarray:
            made.append(name)
            return np.full(4, len(made), np.float32)

        return Source("F32", (4,), make)

    write_safetensors(tmp_path / "x.safetensors", {name: maker(name) for name in "cab"})
    assert made == ["c", "a", "b"]
    assert load_file(tmp_path / "x.safetensors")["b"][0] == 3


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_interrupted_write_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"old")
    content = {"a": source("F32", np.ones(1000, np.float32)), "b": Source("F32", (2,), failing(error))}
    with pytest.raises(type(error)):
        write_safetensors(path, content)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.safetensors"]


class FullDisk(io.FileIO):
    """A file on a disk that has room for 100 bytes."""

    def write(self, data: Any) -> int:
        if self.tell() + len(bytes(data)) > 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"old")
    monkeypatch.setattr(writing, "open", FullDisk, raising=False)
    with pytest.raises(InputError, match=r"x\.safetensors: cannot be written: No space left on device") as caught:
        write_safetensors(path, {"a": source("F32", np.ones(1000, np.float32))})
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_full_disk_at_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        atomic_write(tmp_path / "page.html", "text")
    assert os.listdir(tmp_path) == []


def test_atomic_write(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    atomic_write(path, "π")
    assert path.read_bytes() == "π".encode()
    atomic_write(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_new_file_has_the_usual_rights(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    atomic_write(tmp_path / "ours", "")
    assert (tmp_path / "plain").stat().st_mode == (tmp_path / "ours").stat().st_mode


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    atomic_write(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"


def test_a_device_is_not_replaced() -> None:
    atomic_write("/dev/null", "x")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(("path", "words"), [("", "it is a folder"), ("no/such/folder.html", "No such file")])
def test_where_nothing_can_be_written(tmp_path: Path, path: str, words: str) -> None:
    with pytest.raises(InputError, match=f"cannot be written: {words}"):
        atomic_write(tmp_path / path, "x")


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (
            Source("F32", (2,), lambda: np.ones(3, np.float32)),
            r"tensor a: expected float32 \[2\] for F32, found .* \[3\]",
        ),
        (Source("BF16", (2,), lambda: np.ones(2, np.float32)), r"expected uint16 \[2\] for BF16, found float32 \[2\]"),
    ],
)
def test_tensor_that_is_not_as_declared(tmp_path: Path, tensor: Source, words: str) -> None:
    with pytest.raises(InputError, match=words):
        write_safetensors(tmp_path / "x.safetensors", {"a": tensor})
    assert os.listdir(tmp_path) == []


def test_unknown_dtype() -> None:
    with pytest.raises(InputError, match=r"stored dtype: expected one of BOOL.*found 'bfloat16'"):
        source("bfloat16", np.ones(1))


def test_names_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="a: cannot be written: its symbolic links lead in a circle"):
        require_targets(tmp_path / "a")
    with pytest.raises(InputError, match="c/: cannot be written: it is a folder"):
        require_targets(f"{tmp_path}/c/")
    assert (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_checkpoint_in_the_published_layout(tmp_path: Path, shards: int) -> None:
    content = tensors()
    size = write_checkpoint(tmp_path / "c", SETTINGS, content, shards)
    files = [f"model-{i:05}-of-{shards:05}.safetensors" for i in range(1, shards + 1)]
    assert sorted(os.listdir(tmp_path / "c")) == sorted([*files, "config.json", "model.safetensors.index.json"])
    index = json.loads((tmp_path / "c" / "model.safetensors.index.json").read_text())
    sizes = [sum(a.nbytes for a in load_arrays(tmp_path / "c" / f)) for f in files]
    assert index["metadata"] == {"total_size": sum(sizes)} == {"total_size": size}
    assert index["weight_map"].keys() == content.keys()
    assert all(sizes)
    assert json.loads((tmp_path / "c" / "config.json").read_text()) == SETTINGS


def load_arrays(path: Path) -> list[np.ndarray]:
    file = open_safetensors(path)
    return [file.array(name) for name in file.tensors]


def test_one_shard_has_no_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a" / "b", SETTINGS, tensors())
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["config.json", "model.safetensors"]


def test_parts_are_of_about_equal_size() -> None:
    content = {str(i): source("U8", np.zeros(10, np.uint8)) for i in range(12)}
    assert [len(part) for part in split(content, 4)] == [3, 3, 3, 3]
    assert [len(part) for part in split(content, 12)] == [1] * 12
    assert [list(part) for part in split({"a": content["0"], "big": source("U8", np.zeros(99, np.uint8))}, 2)] == [
        ["a"],
        ["big"],
    ]


@pytest.mark.parametrize("shards", [0, -1, 99])
def test_number_of_shards_that_does_not_fit(tmp_path: Path, shards: int) -> None:
    with pytest.raises(InputError, match=f"shards: expected 1 to 21, one tensor each at least; found {shards}"):
        write_checkpoint(tmp_path / "c", SETTINGS, tensors(), shards)
    assert os.listdir(tmp_path) == []


def test_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="expected a new or empty folder: nothing is overwritten"):
        write_checkpoint(tmp_path, SETTINGS, tensors())
    assert os.listdir(tmp_path) == ["notes.txt"]
    with pytest.raises(InputError, match="cannot be made"):
        write_checkpoint(tmp_path / "notes.txt", SETTINGS, tensors())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()])
@pytest.mark.parametrize("existing", [True, False])
def test_interrupted_checkpoint_leaves_nothing(tmp_path: Path, error: BaseException, existing: bool) -> None:
    folder = tmp_path / "c"
    if existing:
        folder.mkdir()
    content = tensors()
    last = list(content)[-1]
    content[last] = Source(content[last].dtype, content[last].shape, failing(error))
    with pytest.raises(type(error)):
        write_checkpoint(folder, SETTINGS, content, 3)
    assert list(tmp_path.rglob("*")) == ([folder] if existing else [])


def test_killed_half_way_cannot_be_loaded(tmp_path: Path) -> None:
    """Before config.json is written, which comes last, the folder does not load."""
    seen: list[str] = []

    def look() -> np.ndarray:
        with pytest.raises(InputError, match=r"no config\.json"):
            load_weights(tmp_path / "c")
        seen.append("looked")
        return np.zeros((30, 24), np.uint16)

    content = tensors()
    del content["model.embed_tokens.weight"]
    write_checkpoint(
        tmp_path / "c", SETTINGS, content | {"model.embed_tokens.weight": Source("BF16", (30, 24), look)}, 2
    )
    assert seen == ["looked"]
    assert load_weights(tmp_path / "c").named().keys() == {n.removeprefix(PREFIX) for n in content if "scale" not in n}


def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: cannot be written"):
        atomic_write(tmp_path / "pipe", "text")


@pytest.mark.parametrize(
    ("names", "metadata", "words"),
    [
        (["__metadata__"], {}, "expected texts as names and metadata; found '__metadata__'"),
        (["\ud800"], {}, "expected Unicode names and metadata; found half a character"),
        (["a"], {"a": 1}, "expected texts as names and metadata; found 1"),
        (["a"], {"a": "\ud800"}, "found half a character"),
    ],
)
def test_names_and_metadata_that_no_reader_could_read(tmp_path, names, metadata, words):
    path = tmp_path / "x.safetensors"
    with pytest.raises(InputError, match=words):
        write_safetensors(path, {name: source("F32", np.ones(2, np.float32)) for name in names}, metadata)
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_not_overwritten(tmp_path):
    folder = tmp_path / "k2"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "link").symlink_to(folder / "model.safetensors")
    for output in (folder / "model.safetensors", tmp_path / "link"):
        with pytest.raises(InputError, match="expected another file to write; this one is read, too"):
            refuse_overwriting([None, str(output)], [None, str(folder)])
    with pytest.raises(InputError, match="this one is read, too"):
        refuse_overwriting([str(folder / "new")], [str(folder / ".." / "k2" / "new")])
    refuse_overwriting([str(folder / "new.safetensors"), str(tmp_path / "y")], [str(folder), None])
