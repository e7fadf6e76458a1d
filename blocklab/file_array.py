"""Arrays in files, read tile by tile into memory: a file that shrinks meanwhile gives an error, where a map of it
would end the process."""

from __future__ import annotations

import math
import os
import stat
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.errors import InputError

_KEPT = 32 << 20
"""Bytes of the rows that a thread keeps."""


class OpenFile:
    """A regular file, open for reading at any place by any thread until nobody holds it.

    Errors: InputError naming the file, for what cannot be read and for pipes and devices, which may never end.
    """

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self.path = path
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise InputError(f"{path}: expected a file, found something else")
            self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
        weakref.finalize(self, os.close, self._handle)
        self.size = os.fstat(self._handle).st_size
        self._lock = threading.Lock()
        self.kept = threading.local()

    def read(self, start: int, count: int) -> bytes:
        """Return `count` bytes from `start` on."""
        return self.array(start, np.dtype("u1"), (count,), str(self.path)).tobytes()

    def array(self, start: int, dtype: np.dtype, shape: tuple[int, ...], label: str) -> np.ndarray:
        """Read an array, which cannot be written to; `label` opens the message of an error."""
        found = np.empty(shape, dtype)
        room = memoryview(found.reshape(-1).view(np.uint8).data)
        done = 0
        try:
            while done < room.nbytes:
                count = self._read_into(room[done:], start + done)
                if not count:
                    raise InputError(
                        f"{label}: expected {room.nbytes:,} bytes from {start:,} on, found {done:,}: the file was cut"
                        " short after it was opened"
                    )
                done += count
        except OSError as error:
            raise InputError(f"{label}: cannot be read: {error.strerror or error}") from None
        found.flags.writeable = False
        return found

    def _read_into(self, room: memoryview, start: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._handle, [room], start)
        with self._lock:  # Windows
            os.lseek(self._handle, start, os.SEEK_SET)
            content = os.read(self._handle, min(len(room), 1 << 30))
            room[: len(content)] = content
            return len(content)


class FileArray:
    """An array in a file: nothing is read before it is used. `raw[rows]` and `raw[rows, columns]` read those rows.

    np.asarray reads all of it. A thread keeps the rows that it cut columns out of last, since products go through the
    columns of the same rows tile by tile.
    """

    def __init__(self, file: OpenFile, start: int, dtype: np.dtype, shape: tuple[int, ...], label: str) -> None:
        """Say where in the file the array is, in C order; `label` opens the message of an error."""
        self.file, self.start, self.dtype, self.shape, self.label = file, start, dtype, shape, label
        self.ndim, self.size, self.itemsize = len(shape), math.prod(shape), dtype.itemsize
        self.nbytes = self.size * self.itemsize

    def pieces(self, count: int) -> Iterator[np.ndarray]:
        """Read all elements in order, `count` at a time."""
        for first in range(0, self.size, count):
            shape = (min(count, self.size - first),)
            yield self.file.array(self.start + first * self.itemsize, self.dtype, shape, self.label)

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read the whole array."""
        found = self.file.array(self.start, self.dtype, self.shape, self.label)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Read a row, or rows that follow each other, and cut out of them what else is asked for."""
        first, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(first, int | np.integer) and -len(self) <= first < len(self):
            row = int(first) % len(self)
            return self._rows(row, row + 1)[(0, *rest)]
        if not isinstance(first, slice) or first.step not in (None, 1):
            return np.asarray(self)[key]
        start, stop, _ = first.indices(len(self))
        if not rest:
            return self._rows(start, stop)
        kept = getattr(self.file.kept, "rows", None)
        if kept is None or kept[0] != (self.start, start, stop):
            rows = self._rows(start, stop)
            kept = (self.start, start, stop), rows
            self.file.kept.rows = kept if rows.nbytes <= _KEPT else None
        return kept[1][(slice(None), *rest)]

    def _rows(self, start: int, stop: int) -> np.ndarray:
        width = self.itemsize * math.prod(self.shape[1:])
        shape = (max(stop - start, 0), *self.shape[1:])
        return self.file.array(self.start + start * width, self.dtype, shape, self.label)


def in_memory(x: Any) -> Any:
    """Return the array, read if it is in a file."""
    return np.asarray(x) if isinstance(x, FileArray) else x
