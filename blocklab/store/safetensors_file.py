"""Safetensors files: the header validated against the file's size, then arrays that are read when they are used.

The safetensors package is not used for reading: as of 0.8 it reads FP8 into numpy not at all, and bfloat16 only
once ml_dtypes is imported, and it copies. The format is eight bytes of little-endian header length, a JSON header
`{name: {dtype, shape, data_offsets}}`, and the tensors' bytes without gap or overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.errors import InputError, brief, shown
from blocklab.file_array import FileArray, OpenFile
from blocklab.json_file import json_kind, parse_json

NUMPY_DTYPES: Mapping[str, np.dtype] = {
    name: np.dtype(dtype)
    for name, dtype in {
        **{"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4"},
        **{"U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "BF16": "<u2"},
        **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), "u1"),
    }.items()
}
"""Stored dtype -> numpy dtype that it is read as: raw codes for bfloat16 and FP8, which numpy lacks."""

FORMATS: Mapping[str, str] = {
    **{"F8_E4M3": "e4m3fn", "F8_E5M2": "e5m2", "F8_E8M0": "e8m0", "F8_E4M3FNUZ": "e4m3fnuz"},
    **{"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"},
}
"""Stored dtype -> name of the number format in `blocklab.numerics`, for the float dtypes that have one."""

_MAX_HEADER = 100_000_000
_MAX_AXES = 32
MAX_AXIS = 2**40
"""A longer axis is taken for damage."""


@dataclass(frozen=True)
class Entry:
    """What the header says about one tensor; start and stop are positions in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class SafetensorsFile:
    """An open file and its validated entries by name."""

    path: Path
    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str]
    content: OpenFile

    def array(self, name: str) -> FileArray:
        """Return a tensor: FP8 as uint8 codes, bfloat16 as uint16 codes. Nothing is read before it is used."""
        entry = self.tensors[name]
        label = f"{self.path}: tensor {shown(name)}"
        return FileArray(self.content, entry.start, NUMPY_DTYPES[entry.dtype], entry.shape, label)


@dataclass(frozen=True)
class Stored:
    """One tensor of an open file."""

    file: SafetensorsFile
    name: str

    @property
    def entry(self) -> Entry:
        """What the header says about it."""
        return self.file.tensors[self.name]

    @property
    def label(self) -> str:
        """The file and the tensor, for messages."""
        return f"{self.file.path}: tensor {shown(self.name)}"

    def array(self) -> FileArray:
        """Return its values, which are read when they are used."""
        return self.file.array(self.name)


def open_safetensors(path: str | Path) -> SafetensorsFile:
    """Open a safetensors file after checking that its header describes exactly the bytes that are there.

    Raises InputError, naming the file and the tensor, for anything that the format does not allow.
    """
    path = Path(path)
    content = OpenFile(path)
    header, data_start = _read_header(content)
    metadata = _checked_metadata(path, header.pop("__metadata__", {}))
    tensors = {name: _checked_entry(path, name, value, data_start) for name, value in header.items()}
    _check_coverage(path, tensors, data_start, content.size)
    return SafetensorsFile(path, tensors, metadata, content)


def tensor_names(path: str | Path) -> frozenset[str]:
    """Return the names in a file's header, leaving the entries unchecked: quick for shards of no interest."""
    header, _ = _read_header(OpenFile(Path(path)))
    return frozenset(header.keys() - {"__metadata__"})


def fits_array(shape: Sequence[int]) -> bool:
    """Tell whether numpy can make an array of this shape; an axis of 0 does not help where the others are huge."""
    return all(0 <= n < MAX_AXIS for n in shape) and math.prod(n for n in shape if n) < 1 << 59


def _read_header(file: OpenFile) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the position where the data starts."""
    path, size = file.path, file.size
    if size == 0:
        raise InputError(f"{path}: expected a safetensors file, found an empty file")
    start = file.read(0, min(size, 64))
    refusal = _foreign_format(path, start)
    if refusal:
        raise InputError(f"{path}: {refusal}")
    if size < 8:
        raise InputError(f"{path}: expected a safetensors file of at least 8 bytes, found {size}")
    length = int.from_bytes(start[:8], "little")
    if length > size - 8:
        raise InputError(
            f"{path}: header length {length:,} is beyond the file, which has {size - 8:,} bytes after it:"
            " truncated, or not safetensors"
        )
    if length > _MAX_HEADER:
        raise InputError(f"{path}: header length {length:,} is above the format's limit of {_MAX_HEADER:,} bytes")
    return _parse_header(path, file.read(8, length)), 8 + length


def _parse_header(path: Path, text: bytes) -> dict[str, Any]:
    header = parse_json(text, f"{path}: header")
    if not isinstance(header, dict):
        raise InputError(f"{path}: header: expected a JSON object, found {json_kind(header)}")
    return header


def _foreign_format(path: Path, start: bytes) -> str | None:
    """Return a sentence where the first bytes belong to something else than safetensors."""
    looks_right = start[8:9] == b"{" and start[4:8] == bytes(4)
    if looks_right:
        return None
    pickled = start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if start[:4] == b"PK\x03\x04" or pickled or path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        return "expected safetensors, found a pickle or zip archive: pickles are never read, since reading one runs it"
    if start[:4] == b"GGUF":
        return "expected safetensors, found a GGUF file"
    if start.startswith(b"version https://git-lfs"):
        return "expected safetensors, found a Git LFS pointer: the file itself was not downloaded"
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        line = start.decode("ascii").splitlines()[0][:40]
        return f"expected safetensors, found a text file that begins {line!r}"
    return None


def _checked_metadata(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InputError(f"{path}: header: expected __metadata__ to map names to strings")
    return metadata


def _checked_entry(path: Path, name: str, value: Any, data_start: int) -> Entry:
    where = f"{path}: tensor {shown(name)}"
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        found = shown(", ".join(value)) if isinstance(value, dict) else json_kind(value)
        raise InputError(f"{where}: expected dtype, shape and data_offsets, found {found or 'nothing'}")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in NUMPY_DTYPES:
        raise InputError(f"{where}: unknown dtype {brief(dtype)}; expected one of {', '.join(NUMPY_DTYPES)}")
    sizes = isinstance(shape, list) and len(shape) <= _MAX_AXES and all(type(n) is int for n in shape)
    if not sizes or not fits_array(shape):
        raise InputError(
            f"{where}: expected a shape of at most {_MAX_AXES} non-negative integers, found {brief(shape)}"
        )
    pair = isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)
    if not pair or not 0 <= offsets[0] <= offsets[1] < 1 << 63:
        raise InputError(f"{where}: expected data_offsets [begin, end], found {brief(offsets)}")
    expected = math.prod(shape) * NUMPY_DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != expected:
        raise InputError(
            f"{where}: expected {expected:,} bytes for {dtype} {shape}, found data_offsets {offsets}"
            f" of {offsets[1] - offsets[0]:,} bytes"
        )
    return Entry(dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _check_coverage(path: Path, tensors: Mapping[str, Entry], data_start: int, size: int) -> None:
    """Check that the tensors follow each other without gap or overlap, to the last byte of the file."""
    end, previous = data_start, "the header"
    for name, entry in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != end:
            fault = "overlaps" if entry.start < end else f"leaves a gap of {entry.start - end:,} bytes after"
            raise InputError(
                f"{path}: tensor {shown(name)}: {fault} {shown(previous)}: expected data_offsets from"
                f" {end - data_start}, found {entry.start - data_start}"
            )
        end, previous = entry.stop, name
    if end > size:
        first = min((e.stop, n) for n, e in tensors.items() if e.stop > size)[1]
        raise InputError(
            f"{path}: truncated: expected {end:,} bytes, found {size:,}; tensor {shown(first)} ends beyond the file"
        )
    if end < size:
        raise InputError(f"{path}: expected {end:,} bytes, found {size:,}: {size - end:,} bytes belong to no tensor")
