"""Files written whole or not at all: a temporary file beside the target takes its place at the end."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from blocklab.errors import InputError, brief, shown
from blocklab.store.safetensors_file import NUMPY_DTYPES

PICTURES = (".png", ".svg")
"""Endings of pictures that can be written."""

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


@dataclass(frozen=True)
class Source:
    """A tensor to be written: its stored dtype and shape, known beforehand, and what makes its array.

    `make` is called once, when the tensor's turn comes, so that a large file never has to fit into memory.
    bfloat16 arrives as uint16 codes, FP8 as uint8 codes.
    """

    dtype: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]

    def __post_init__(self) -> None:
        if self.dtype not in NUMPY_DTYPES:
            raise InputError(f"stored dtype: expected one of {', '.join(NUMPY_DTYPES)}, found {self.dtype!r}")

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return math.prod(self.shape) * NUMPY_DTYPES[self.dtype].itemsize


def source(dtype: str, array: np.ndarray) -> Source:
    """Return an array in memory as something to be written."""
    return Source(dtype, array.shape, lambda: array)


def write_safetensors(
    path: str | Path, tensors: Mapping[str, Source], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors one after the other, always in C order, largest elements first so that each is aligned.

    Whatever interrupts it, the file that was there before stays as it was and no temporary file remains.
    Raises InputError where the file cannot be written, for a name that would be read as numpy's, and for a tensor that
    is not what it was declared to be.
    """
    require_safetensors(path)
    _require_texts(path, tensors, metadata or {})
    # The safetensors package (0.8) writes the bytes of transposed arrays in memory order, hence our own writer.
    order = sorted(tensors, key=lambda name: -NUMPY_DTYPES[tensors[name].dtype].itemsize)
    with atomic_file(path) as file:
        file.write(_header({name: tensors[name] for name in order}, metadata))
        for name in order:
            _write_tensor(file, f"{path}: tensor {shown(name)}", tensors[name])


def require_safetensors(*paths: str | Path) -> None:
    """Refuse, before anything is computed, safetensors files that cannot be written or read again under these names."""
    for path in paths:
        if Path(path).suffix.lower() in (".npz", ".npy"):
            raise InputError(f"{path}: expected a file name that ends in .safetensors, which is what is written")
    require_targets(*paths)


def require_targets(*paths: str | Path, endings: Sequence[str] = ()) -> None:
    """Refuse, before anything is computed, files that cannot be written: folders, lost folders, one name twice.

    endings  what their names end in, if that matters
    """
    for path in paths:
        target = real_path(path)
        if endings and target.suffix.lower() not in endings:
            raise InputError(f"{path}: expected a file name that ends in {' or '.join(endings)}")
        if target.is_dir() or str(path).endswith(_SEPARATORS):
            raise InputError(f"{path}: cannot be written: it is a folder")
        if not target.parent.is_dir():
            raise InputError(f"{path}: cannot be written: there is no folder {target.parent}")
        if target.is_symlink():
            raise InputError(f"{path}: cannot be written: its symbolic links lead in a circle")
    if len({real_path(path) for path in paths}) < len(paths):
        raise InputError(f"{paths[0]}: expected a file for each output, found one for two")


def refuse_overwriting(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Refuse to write what is read: an input itself, or a file in a checkpoint's folder; None is neither."""
    read = {real_path(path) for path in inputs if path is not None}
    for path in outputs:
        target = None if path is None else real_path(path)
        if target is not None and (target in read or (target.parent in read and target.exists())):
            raise InputError(f"{path}: expected another file to write; this one is read, too")


def real_path(path: str | Path) -> Path:
    """Return what a path leads to, symbolic links followed, whether or not it exists."""
    try:
        return Path(os.path.realpath(path))
    except OSError as error:  # the working folder is gone
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def atomic_write(path: str | Path, content: str | bytes) -> None:
    """Write a whole file, or leave what was there. Text is written as UTF-8, half characters as \\udc80."""
    with atomic_file(path) as file:
        file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under `path` only when the body has ended well.

    On any exception, KeyboardInterrupt too, the old file stays and the temporary one is removed. A symbolic link
    is followed; a device or a pipe, such as /dev/stdout, is written to directly. OSError becomes InputError.
    """
    target = real_path(path)
    try:
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            with _open_device(path) as device:
                yield device
            return
        if target.is_dir():
            raise InputError(f"{path}: cannot be written: it is a folder")
        temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _open_device(path: str | Path) -> BinaryIO:
    """Open what is no file, by the name given, since a pipe's real one leads nowhere; a pipe must have a reader."""
    device = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(device, True)
    return os.fdopen(device, "wb")


def _require_texts(path: str | Path, tensors: Mapping[str, Source], metadata: Mapping[str, str]) -> None:
    """Refuse names and metadata that no reader could read again."""
    for text in (*tensors, *metadata, *metadata.values()):
        if not isinstance(text, str) or text == "__metadata__":
            raise InputError(f"{path}: expected texts as names and metadata; found {brief(text)}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{path}: expected Unicode names and metadata; found half a character in {brief(text)}"
            ) from None


def _header(tensors: Mapping[str, Source], metadata: Mapping[str, str] | None) -> bytes:
    """Return the length and the JSON header, padded with spaces to a multiple of eight bytes."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, tensor in tensors.items():
        end = position + tensor.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_tensor(file: BinaryIO, label: str, tensor: Source) -> None:
    dtype = NUMPY_DTYPES[tensor.dtype]
    array = tensor.make()
    if array.shape != tensor.shape or array.dtype != dtype:
        raise InputError(
            f"{label}: expected {dtype} {list(tensor.shape)} for {tensor.dtype},"
            f" found {array.dtype} {list(array.shape)}"
        )
    file.write(np.ascontiguousarray(array, dtype=dtype).reshape(-1).view(np.uint8).data)
