"""Arrays from numpy's own files, .npz and .npy: headers checked first, pickles never read."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from blocklab.errors import InputError, brief, shown
from blocklab.file_array import FileArray, OpenFile
from blocklab.store.lazy import LazyArray
from blocklab.store.safetensors_file import fits_array

Header = tuple[tuple[int, ...], bool, np.dtype]
"""Shape, whether in Fortran's order, dtype."""

_DAMAGED = (
    *(OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)


def open_arrays(path: Path) -> dict[str, LazyArray]:
    """Return the arrays of an npz file by name, none of them read yet; an npy file holds one named `input`.

    Raises InputError for objects (pickles), for ml_dtypes arrays, which numpy saves without their format, and for
    a file that is damaged.
    """
    try:
        if path.suffix == ".npy":
            return {"input": _open_npy(path)}
        return _open_npz(path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except _DAMAGED as error:
        raise InputError(f"{path}: expected an {path.suffix[1:]} file: {_one_line(error)}") from None


def _open_npy(path: Path) -> LazyArray:
    content = OpenFile(path)
    with open(path, "rb") as file:
        header = _checked_header(f"{path}", file)
        start = file.tell()
    shape, turned, dtype = header
    expected = start + math.prod(shape) * dtype.itemsize
    if content.size != expected:
        raise InputError(f"{path}: expected {expected:,} bytes, found {content.size:,}")
    stored = FileArray(content, start, dtype, shape[::-1] if turned else shape, f"{path}")
    return _lazy(header, lambda: np.asarray(stored).T if turned else np.asarray(stored), f"{path}")


def _open_npz(path: Path) -> dict[str, LazyArray]:
    if path.exists() and not path.is_file():  # a pipe or a device may never end
        raise InputError(f"{path}: expected a file, found something else")
    found: dict[str, LazyArray] = {}
    archive = zipfile.ZipFile(path)  # stays open while an array may be read
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        where = f"{path}: array {shown(name)}"
        if name == member.filename or name in found:
            fault = "a second array of this name" if name in found else "another kind of file"
            raise InputError(f"{where}: expected arrays with the suffix .npy, found {fault}")
        with archive.open(member) as file:
            header = _checked_header(where, file)
            expected = file.tell() + math.prod(header[0]) * header[2].itemsize
        if member.file_size != expected:
            raise InputError(f"{where}: expected {expected:,} bytes, found {member.file_size:,}")
        found[name] = _lazy(header, partial(_read_member, archive, member, where), where)
    return found


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> np.ndarray:
    try:
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except _DAMAGED as error:
        raise InputError(f"{where}: cannot be read: {_one_line(error)}") from None


def _lazy(header: Header, read: Callable[[], np.ndarray], label: str) -> LazyArray:
    """Return what gives numbers in the byte order of this machine, float16 as float32."""
    shape, _, stored = header
    dtype = np.dtype(np.float32) if stored == np.float16 else stored.newbyteorder("=")
    return LazyArray(dtype, shape, lambda: np.asarray(read(), dtype), label, stored.name)


def _checked_header(where: str, file: IO[bytes]) -> Header:
    """Read an npy header and refuse what is not numbers."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"{where}: expected npy version 1.0 or 2.0, found {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, turned, dtype = read(file)
    except InputError:
        raise
    # numpy parses the header as Python text, and damage there raises whatever that parser raises.
    except Exception as error:
        raise InputError(f"{where}: expected an npy header: {_one_line(error)}") from None
    if not all(type(n) is int for n in shape):  # True is 1 to Python
        raise InputError(f"{where}: expected a shape of integers, found {brief(shape)}")
    if not fits_array(shape):
        raise InputError(f"{where}: expected a shape that memory can hold, found {brief(shape)}")
    if dtype.hasobject:
        raise InputError(f"{where}: expected numbers, found Python objects: pickles are never read")
    if dtype.kind == "V" and dtype.names is None:
        raise InputError(
            f"{where}: expected numbers, found {dtype.str}: numpy stores bfloat16 and FP8 arrays without their format;"
            " save them as float32, or as safetensors"
        )
    if dtype.kind not in "fiubc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise InputError(f"{where}: expected numbers of at most 64 bits, found dtype {_one_line(dtype)}")
    return shape, turned, dtype


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
