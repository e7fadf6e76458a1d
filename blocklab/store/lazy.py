"""Arrays that are read when they are asked for, and then only if memory can hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklab.errors import InputError
from blocklab.store.memory import require_memory

_LARGE = 16 << 20
"""Bytes of an array from which on memory is asked about first."""


@dataclass(frozen=True)
class LazyArray:
    """An array of a file: its dtype and shape once decoded, and what reads it.

    label   the file and the array, for messages
    format  how the file stores it
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]
    label: str
    format: str

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read it. Errors: InputError where memory cannot hold it, stored and decoded."""
        need = 2 * self.size * self.dtype.itemsize
        if need > _LARGE:
            require_memory(need, f"{self.label}: {self.dtype}{list(self.shape)}", "record fewer tokens or steps")
        try:
            found = self.read()
        except MemoryError:
            raise InputError(f"{self.label}: {self.dtype}{list(self.shape)} does not fit into memory") from None
        return found if dtype is None else found.astype(dtype, copy=False)


class LazyArrays(Mapping[str, np.ndarray]):
    """A mapping of names to arrays, each read and decoded when it is asked for; `headers` tell dtypes and shapes."""

    def __init__(self, headers: Mapping[str, LazyArray]) -> None:
        """Take the arrays by name."""
        self.headers = headers
        self._last: tuple[str, np.ndarray] | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        """Read one array; the last one is kept, as it is mostly asked for again."""
        last = self._last
        if last is None or last[0] != name:
            self._last = last = (name, np.asarray(self.headers[name]))
        return last[1]

    def __contains__(self, name: object) -> bool:
        """Tell whether there is such a name, reading nothing."""
        return name in self.headers

    def __iter__(self) -> Iterator[str]:
        """Go through the names in order."""
        return iter(self.headers)

    def __len__(self) -> int:
        """Count the names."""
        return len(self.headers)

    def only(self, names: Iterable[str]) -> LazyArrays:
        """Return some of the arrays, in the order of the names."""
        return LazyArrays({name: self.headers[name] for name in names})


def header(arrays: Mapping[str, Any], name: str) -> Any:
    """Return what has the dtype and the shape of an array, reading none that is in a file."""
    return arrays.headers[name] if isinstance(arrays, LazyArrays) else arrays[name]
