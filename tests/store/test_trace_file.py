from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from blocklab.errors import InputError
from blocklab.numerics import round_to
from blocklab.store import memory
from blocklab.store.safetensors_file import open_safetensors
from blocklab.store.trace_file import load_tensors, save_tensors

RNG = np.random.default_rng(11)
WIDE = RNG.standard_normal((2, 5, 7), dtype=np.float32) * np.float32(1e-30)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-133, -3e38], np.float32)


def stored(path: Path) -> dict[str, str]:
    return {name: entry.dtype for name, entry in open_safetensors(path).tensors.items()}


@pytest.mark.parametrize("carrier", [np.float32, np.float64])
def test_bfloat16_is_stored_as_bfloat16(tmp_path: Path, carrier: Any) -> None:
    path = tmp_path / "t.safetensors"
    on_grid = round_to(WIDE, "bfloat16").astype(carrier)
    arrays = {
        "q": on_grid,
        "turned": on_grid.transpose(2, 0, 1),
        "special": round_to(SPECIAL, "bfloat16").astype(carrier),
    }
    save_tensors(path, arrays, "bfloat16", {"recipe": "bfloat16"})
    found, metadata, formats = load_tensors(path)
    assert stored(path) == dict.fromkeys(arrays, "BF16")
    assert formats == dict.fromkeys(arrays, "bfloat16")
    assert metadata == {"recipe": "bfloat16"}
    for name, expected in arrays.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], expected)
        np.testing.assert_array_equal(np.signbit(found[name]), np.signbit(expected))


def test_nothing_is_ever_rounded(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    off_grid = np.array([1.0, 1.0 + 2.0**-20], np.float32)
    payload = np.array([0x7F800001], np.uint32).view(np.float32)  # a NaN whose upper half is infinity
    arrays = {
        **{"off": off_grid, "payload": payload, "large": np.array([1e5], np.float32), "fine": np.array([1 + 2.0**-40])},
        "huge": np.array([1e300]),
    }
    formats = {"off": "bfloat16", "payload": "bfloat16", "large": "float16", "fine": "float32", "huge": "float16"}
    save_tensors(path, arrays, formats)
    assert stored(path) == {"off": "F32", "payload": "F32", "large": "F32", "fine": "F64", "huge": "F64"}
    for name, expected in arrays.items():
        np.testing.assert_array_equal(load_tensors(path).arrays[name], expected)


def test_other_dtypes(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    arrays = {
        "half": np.array([0.5, 65504, 2.0**-24], np.float32),
        "double": np.array([np.pi]),
        "single": WIDE,
        "left_out": np.array([1.5], np.float32),
        "mask": np.array([[True, False]]),
        "position_ids": np.arange(5),
        "bytes": np.arange(4, dtype=np.uint8),
        "q_latent.in.codes": np.arange(256, dtype=np.uint8).reshape(2, 128),
        "gate.in.codes": np.arange(3, dtype=np.uint8),
        "R": np.array([1 + 2j], np.complex64),
    }
    formats = {"half": "float16", "double": "float64", "single": "float32", "gate.in.codes": "e5m2", "mask": "float32"}
    save_tensors(path, arrays, formats)
    found = load_tensors(path)
    assert stored(path) == {
        **{"half": "F16", "double": "F64", "single": "F32", "left_out": "F32", "mask": "BOOL", "position_ids": "I64"},
        **{"bytes": "U8", "q_latent.in.codes": "F8_E4M3", "gate.in.codes": "F8_E5M2", "R": "C64"},
    }
    assert found.formats["q_latent.in.codes"] == "e4m3fn"
    assert found.formats["mask"] == "bool"
    for name, expected in arrays.items():
        assert found.arrays[name].dtype == expected.dtype
        np.testing.assert_array_equal(found.arrays[name], expected)


def test_fp8_values_of_others_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_tensors(path, {"act": np.array([0x7E, 0x01], np.uint8)}, {"act": "e4m3fn"})
    np.testing.assert_array_equal(load_tensors(path).arrays["act"], np.float32([448, 2.0**-9]))


def test_dtype_that_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.safetensors: tensor R: expected numbers of one of float64.*complex128"):
        save_tensors(tmp_path / "t.safetensors", {"R": np.array([1j])})
    assert os.listdir(tmp_path) == []


def test_loading_is_lazy(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_tensors(path, {"a": WIDE, "b": WIDE[0]}, "float32")
    arrays = load_tensors(path).arrays
    assert list(arrays) == ["a", "b"]
    assert len(arrays) == 2
    assert "a" in arrays
    assert "c" not in arrays
    assert {name: header.shape for name, header in arrays.headers.items()} == {"a": (2, 5, 7), "b": (5, 7)}
    os.truncate(path, path.stat().st_size - 4)
    np.testing.assert_array_equal(arrays["a"], WIDE)
    with pytest.raises(InputError, match=r"t\.safetensors: tensor b: expected 140 bytes .* cut short"):
        arrays["b"]
    with pytest.raises(KeyError):
        arrays["c"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "d.npz"
    arrays = {"input": WIDE, "turned": np.asfortranarray(WIDE[0]), "ids": np.arange(3), "scalar": np.array(2.5)}
    save(path, **arrays)
    found, metadata, formats = load_tensors(path)
    assert metadata == {}
    assert formats == {"input": "float32", "turned": "float32", "ids": "int64", "scalar": "float64"}
    assert found.headers["turned"].shape == (5, 7)
    for name, expected in arrays.items():
        np.testing.assert_array_equal(found[name], expected)


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", WIDE)
    found = load_tensors(tmp_path / "x.npy")
    assert found.formats == {"input": "float32"}
    np.testing.assert_array_equal(found.arrays["input"], WIDE)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    with pytest.raises(InputError, match=r"x\.npy: expected 408 bytes, found 407"):
        load_tensors(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (
            np.array([{"a": 1}], dtype=object),
            "d.npz: array x: expected numbers, found Python objects: pickles are never",
        ),
        (np.ones(3, ml_dtypes.bfloat16), "d.npz: array x: expected numbers, found .V2: numpy stores bfloat16"),
        (np.ones(3, ml_dtypes.float8_e4m3fn), "d.npz: array x: expected numbers, found .V1: numpy stores"),
        (np.array(["text"]), "d.npz: array x: expected numbers of at most 64 bits, found dtype <U4"),
        (np.zeros(2, [("a", "f4")]), "d.npz: array x: expected numbers of at most 64 bits, found dtype"),
        (np.zeros(2, "datetime64[s]"), "d.npz: array x: expected numbers of at most 64 bits, found dtype datetime64"),
    ],
)
def test_npz_that_holds_no_numbers(tmp_path: Path, array: np.ndarray, words: str) -> None:
    np.savez(tmp_path / "d.npz", x=array, allow_pickle=True)
    with pytest.raises(InputError, match=words) as caught:
        load_tensors(tmp_path / "d.npz")
    assert "\n" not in str(caught.value)


def test_numbers_of_other_machines(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=WIDE.astype(">f4"), half=np.float16([1.5]), empty=np.zeros((0, 3)))
    arrays = load_tensors(tmp_path / "d.npz").arrays
    assert [a.dtype.str for a in arrays.values()] == ["<f4", "<f4", "<f8"]
    np.testing.assert_array_equal(arrays["x"], WIDE)
    np.save(tmp_path / "x.npy", np.zeros((0, 3), ">f8"))
    assert load_tensors(tmp_path / "x.npy").arrays["input"].shape == (0, 3)
    np.savez(tmp_path / "d.npz", x=np.zeros(2, np.longdouble))
    with pytest.raises(InputError, match="array x: expected numbers of at most 64 bits, found dtype float128"):
        load_tensors(tmp_path / "d.npz")


@pytest.mark.parametrize("ending", ["npz", "npy", "safetensors"])
def test_file_that_may_never_end(tmp_path: Path, ending: str) -> None:
    os.mkfifo(tmp_path / f"x.{ending}")
    (tmp_path / f"zero.{ending}").symlink_to("/dev/zero")
    for name in ("x", "zero"):
        with pytest.raises(InputError, match=rf"{name}\.{ending}: expected a file, found something else"):
            load_tensors(tmp_path / f"{name}.{ending}")


def test_npz_that_is_empty_but_huge(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 549755813888, 549755813888), }\n"
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(InputError, match="array x: expected a shape that memory can hold"):
        load_tensors(tmp_path / "d.npz")


@pytest.mark.parametrize("shape", ["(True, 3)", "(3, True, )", "(False, 3)", "(1.0, 3)"])
def test_axes_that_are_no_integers(tmp_path: Path, shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(12)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", content)
    for name in ("x.npy", "d.npz"):
        with pytest.raises(InputError, match=rf"{name}: .*expected (a shape of integers|an npy header)"):
            load_tensors(tmp_path / name)


def test_an_archive_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "d.npz", **{f"x{n}": WIDE for n in range(20)})
    opened = []

    class Counted(zipfile.ZipFile):
        def __init__(self, *arguments: Any) -> None:
            opened.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    arrays = load_tensors(tmp_path / "d.npz").arrays
    assert sum(array.size for array in arrays.values()) == 20 * WIDE.size
    assert len(opened) == 1


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_arrays_that_memory_cannot_hold_are_refused_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = tmp_path / f"d.{ending}"
    arrays = {"q": np.zeros((1, 3, 1 << 20), np.float32), "small": WIDE}
    np.savez_compressed(path, **arrays) if ending == "npz" else save_tensors(path, arrays)
    monkeypatch.setattr(memory, "free_memory", lambda: 20 << 20)
    found = load_tensors(path).arrays
    np.testing.assert_array_equal(found["small"], WIDE)
    with pytest.raises(
        InputError, match=rf"d\.{ending}: (tensor|array) q: float32\[1, 3, 1048576\] would need about 0\.0 GiB"
    ):
        found["q"]


def test_damaged_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=WIDE)
    content = path.read_bytes()
    for broken, words in (
        (b"", "d.npz: expected an npz file: File is not a zip file"),
        (b"text", "not a zip file"),
        (content[:-30], "not a zip file"),
        (content.replace(b"(2, 5, 7)", b"(2, 5, 9)"), "array x: expected 488 bytes, found 408|CRC"),
        (content.replace(b"NUMPY", b"NUMPI"), "array x: expected an npy header"),
    ):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=words):
            load_tensors(path)
    path.write_bytes(content.replace(WIDE.tobytes(), WIDE[::-1].tobytes()))
    with pytest.raises(InputError, match=r"array x: .*Bad CRC-32"):
        load_tensors(path).arrays["x"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match=r"array readme\.txt: expected arrays with the suffix \.npy"):
        load_tensors(path)
    with pytest.raises(InputError, match="No such file"):
        load_tensors(tmp_path / "absent.npz")
    with pytest.raises(InputError, match="No such file"):
        load_tensors(tmp_path / "absent.safetensors")
