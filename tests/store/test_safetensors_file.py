from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from blocklab.errors import InputError
from blocklab.store.safetensors_file import open_safetensors, tensor_names


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    return {"dtype": dtype, "shape": plain(shape), "data_offsets": plain(offsets)}


TWO = b'{"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, "a": {"dtype": "U8", "shape": [0]}}'

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "empty file"),
    "five bytes": (b"\x01\x00\x00\x00\x00", "at least 8 bytes, found 5"),
    "header beyond file": (
        (1000).to_bytes(8, "little") + b"{}      ",
        "header length 1,000 is beyond the file.* 8 bytes",
    ),
    "enormous header": (b"\xff" * 7 + b"\x7f{}", "header length 9,223,372,036,854,775,807 is beyond the file"),
    "text": (b"this is a readme, and not a tensor\n", "found a text file that begins 'this is a readme"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
    "gguf": (b"GGUF\x03\x00\x00\x00\x01\x02", "GGUF"),
    "pickle": (pickle.dumps({"a": 1}), "pickles are never read"),
    "torch zip": (b"PK\x03\x04" + bytes(40), "pickles are never read"),
    "not json": (raw(b"{oops}"), "header: expected JSON"),
    "not utf-8": (raw(b'{"\xff\xfe": 1}'), "header: expected JSON"),
    "deep nesting": (raw(b'{"a":' + b"[" * 200_000), "header: expected JSON"),
    "array": (raw([1, 2]), "expected a JSON object, found a list"),
    "duplicate key": (raw(TWO, b"12"), "duplicate key a"),
    "metadata of numbers": (raw({"__metadata__": {"n": 1}}), "__metadata__ to map names to strings"),
    "entry of wrong type": (raw({"a": [1]}), "tensor a: expected dtype, shape and data_offsets, found a list"),
    "entry lacks shape": (
        raw({"a": {"dtype": "F32"}}),
        "tensor a: expected dtype, shape and data_offsets, found dtype",
    ),
    "unknown dtype": (raw({"a": entry("F7")}, bytes(8)), "tensor a: unknown dtype 'F7'; expected one of BOOL"),
    "dtype of wrong type": (raw({"a": entry(["F32"])}, bytes(8)), "tensor a: unknown dtype"),
    "negative axis": (raw({"a": entry(shape=(-2,))}, bytes(8)), "tensor a: expected a shape .* found \\[-2\\]"),
    "boolean axis": (raw({"a": entry(shape=(True, 2))}, bytes(8)), "tensor a: expected a shape .*True"),
    "float axis": (raw({"a": entry(shape=(2.0,))}, bytes(8)), "tensor a: expected a shape .*2.0"),
    "huge axis": (raw({"a": entry(shape=(2**62, 0))}, bytes(8)), "tensor a: expected a shape"),
    "empty but huge": (raw({"a": entry(shape=(0, 2**39, 2**39), offsets=(0, 0))}), "tensor a: expected a shape"),
    "offsets beyond 64 bits": (raw({"a": entry(offsets=(10**400, 10**400 + 8))}, bytes(8)), "data_offsets .begin, end"),
    "lone surrogate": (raw(b'{"\\udc80": 1}'), "header: expected Unicode text, found a lone surrogate in '.udc80'"),
    "metadata with a lone surrogate": (raw(b'{"__metadata__": {"a": "\\ud800"}}'), "header: expected Unicode text"),
    "last key of many twice": (
        raw(b"{" + b",".join(b'"%d":0' % n for n in range(100_000)) + b',"99999":1}'),
        "header: duplicate key 99999",
    ),
    "long number": (raw(b'{"a":' + b"1" * 5000 + b"}"), "header: expected JSON"),
    "long name": (raw(b'{"' + b"a" * 5000 + b'": 1}'), r"tensor a{100}\.\.\. \(5,000 characters\): expected dtype"),
    "too many axes": (raw({"a": entry(shape=(1,) * 99)}, bytes(4)), "tensor a: expected a shape"),
    "shape and offsets": (
        raw({"a": entry(shape=(3,))}, bytes(8)),
        r"tensor a: expected 12 bytes for F32 \[3\].*\[0, 8\]",
    ),
    "offsets reversed": (raw({"a": entry(offsets=(8, 0))}, bytes(8)), "tensor a: expected data_offsets"),
    "offsets boolean": (raw({"a": entry(offsets=(False, 8))}, bytes(8)), "tensor a: expected data_offsets"),
    "offset of minus zero": (
        raw(b'{"a": {"dtype": "U8", "shape": [2], "data_offsets": [-0, 2]}}', b"12"),
        "tensor a: expected data_offsets",
    ),
    "shape of minus zero": (
        raw(b'{"a": {"dtype": "U8", "shape": [-0], "data_offsets": [0, 0]}}'),
        "tensor a: expected a shape",
    ),
    "offset missing": (raw({"a": entry(offsets=(8,))}, bytes(8)), "tensor a: expected data_offsets"),
    "overlap": (
        raw({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
        "tensor b: overlaps a: expected data_offsets from 8, found 4",
    ),
    "gap": (
        raw({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)),
        "tensor b: leaves a gap of 4 bytes after a: expected data_offsets from 8, found 12",
    ),
    "gap at the start": (
        raw({"a": entry(offsets=(4, 12))}, bytes(12)),
        "tensor a: leaves a gap of 4 bytes after the header",
    ),
    "truncated": (
        raw({"a": entry(), "b": entry(offsets=(8, 16))}, bytes(9)),
        "truncated: .* tensor b ends beyond the file",
    ),
    "bytes left over": (raw({"a": entry()}, bytes(11)), "3 bytes belong to no tensor"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    content, words = BROKEN[kind]
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        open_safetensors(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 600


def test_header_above_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as file:
        file.write((100_000_001).to_bytes(8, "little") + b"{")
        file.truncate(100_000_100)
    with pytest.raises(InputError, match="header length 100,000,001 is above the format's limit"):
        open_safetensors(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        open_safetensors(tmp_path / "absent.safetensors")
    with pytest.raises(InputError, match="expected a file"):
        open_safetensors(tmp_path)


def test_name_that_would_break_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw({"a\nb": entry(shape=(3,))}, bytes(8)))
    with pytest.raises(InputError, match=re.escape(r"tensor 'a\nb': expected 12 bytes")):
        open_safetensors(path)


def test_reads_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    rng = np.random.default_rng(0)
    arrays = {
        "f16": rng.standard_normal((3, 4)).astype(np.float16),
        "f32": rng.standard_normal((5, 2), dtype=np.float32),
        "f64": rng.standard_normal((1, 7)),
        "i64": np.arange(-3, 3),
        "u8": np.arange(256, dtype=np.uint8),
        "bool": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(2.5),
    }
    save_file(arrays, path, metadata={"made": "by a test"})
    file = open_safetensors(path)
    assert file.metadata == {"made": "by a test"}
    assert tensor_names(path) == arrays.keys() == file.tensors.keys()
    for name, expected in arrays.items():
        found = file.array(name)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert not np.asarray(found).flags.writeable
        np.testing.assert_array_equal(found, expected)


def test_unaligned_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = np.array([1.5, -2.25, 3e8], np.float32)
    header = {"odd": entry("U8", (1,), (0, 1)), "a": entry(shape=(3,), offsets=(1, 13))}
    for padding in range(4):
        text = json.dumps(header).encode() + b" " * padding
        path.write_bytes(raw(text, b"\x07" + values.tobytes()))
        found = np.asarray(open_safetensors(path).array("a"))
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(found @ found, values @ values)


def test_codes_of_bfloat16_and_fp8(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    header = {"b": entry("BF16", (1, 2), (0, 4)), "e": entry("F8_E4M3", (3,), (4, 7)), "z": entry("F32", (0,), (7, 7))}
    path.write_bytes(raw(header, b"\x80\x3f\x00\xc0\x7e\x08\x80"))
    file = open_safetensors(path)
    np.testing.assert_array_equal(file.array("b"), np.array([[0x3F80, 0xC000]], np.uint16))
    np.testing.assert_array_equal(file.array("e"), np.array([0x7E, 0x08, 0x80], np.uint8))
    assert file.array("z").shape == (0,)
