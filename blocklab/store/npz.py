"""Arrays from numpy's own files, .npz and .npy: headers checked first, pickles never read."""

from __future__ import annotations

import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from blocklab.errors import InputError, shown
from blocklab.store.safetensors_file import fits_array

Reader = Callable[[], np.ndarray]
Header = tuple[np.dtype, tuple[int, ...]]

_DAMAGED = (
    *(OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)


def open_arrays(path: Path) -> dict[str, tuple[Header, Reader]]:
    """Return name -> ((dtype, shape), what reads the array) for an npz file; an npy file holds one named `input`.

    Raises InputError for objects (pickles), for ml_dtypes arrays, which numpy saves without their format, and for
    a file that is damaged.
    """
    try:
        _require_file(path)
        if path.suffix == ".npy":
            return {"input": _open_npy(path)}
        return _open_npz(path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except _DAMAGED as error:
        raise InputError(f"{path}: expected an {path.suffix[1:]} file: {_one_line(error)}") from None


def _require_file(path: Path) -> None:
    """Refuse pipes and devices, which may never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: expected a file, found something else")


def _open_npy(path: Path) -> tuple[Header, Reader]:
    with open(path, "rb") as file:
        header = _checked_header(f"{path}", file)
        start, expected = file.tell(), file.tell() + math.prod(header[1]) * header[0].itemsize
    if path.stat().st_size != expected:
        raise InputError(f"{path}: expected {expected:,} bytes, found {path.stat().st_size:,}")
    return header, lambda: _native(np.load(path, mmap_mode="r" if expected > start else None, allow_pickle=False))


def _open_npz(path: Path) -> dict[str, tuple[Header, Reader]]:
    found: dict[str, tuple[Header, Reader]] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            where = f"{path}: array {shown(name)}"
            if name == member.filename or name in found:
                fault = "a second array of this name" if name in found else "another kind of file"
                raise InputError(f"{where}: expected arrays with the suffix .npy, found {fault}")
            with archive.open(member) as file:
                header = _checked_header(where, file)
                expected = file.tell() + math.prod(header[1]) * header[0].itemsize
            if member.file_size != expected:
                raise InputError(f"{where}: expected {expected:,} bytes, found {member.file_size:,}")
            found[name] = header, _npz_reader(path, member.filename, where)
    return found


def _npz_reader(path: Path, member: str, where: str) -> Reader:
    def read() -> np.ndarray:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                return _native(np.lib.format.read_array(file, allow_pickle=False))
        except _DAMAGED as error:
            raise InputError(f"{where}: cannot be read: {_one_line(error)}") from None

    return read


def _checked_header(where: str, file: IO[bytes]) -> Header:
    """Read an npy header and refuse what is not numbers."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"{where}: expected npy version 1.0 or 2.0, found {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except InputError:
        raise
    # numpy parses the header as Python text, and damage there raises whatever that parser raises.
    except Exception as error:
        raise InputError(f"{where}: expected an npy header: {_one_line(error)}") from None
    if not fits_array(shape):
        raise InputError(f"{where}: expected a shape that memory can hold, found {shape}")
    if dtype.hasobject:
        raise InputError(f"{where}: expected numbers, found Python objects: pickles are never read")
    if dtype.kind == "V" and dtype.names is None:
        raise InputError(
            f"{where}: expected numbers, found {dtype.str}: numpy stores bfloat16 and FP8 arrays without their format;"
            " save them as float32, or as safetensors"
        )
    if dtype.kind not in "fiubc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise InputError(f"{where}: expected numbers of at most 64 bits, found dtype {_one_line(dtype)}")
    return dtype, shape


def _native(array: np.ndarray) -> np.ndarray:
    """Return numbers in the byte order of this machine, float16 as float32."""
    return np.asarray(array, np.float32 if array.dtype == np.float16 else array.dtype.newbyteorder("="))


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
