"""Named arrays on disk: traces and dumps, as safetensors or npz, read tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from blocklab.errors import InputError, shown
from blocklab.numerics import decode
from blocklab.store.lazy import LazyArray, LazyArrays
from blocklab.store.npz import open_arrays
from blocklab.store.safetensors_file import FORMATS, SafetensorsFile, open_safetensors
from blocklab.store.writing import Source, source, write_safetensors
from blocklab.xp import Array, asnumpy

_PLAIN = {"float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL", "complex64": "C64"} | {
    f"{kind}int{bits}": f"{letter}{bits}" for kind, letter in (("", "I"), ("u", "U")) for bits in (8, 16, 32, 64)
}
_NARROW = {"bfloat16": "BF16"} | {name: _PLAIN[name] for name in ("float16", "float32", "float64")}
_CODES = {name: stored for stored, name in FORMATS.items() if stored.startswith("F8_")}


class TensorFile(NamedTuple):
    """A file of named arrays.

    arrays    float32 or float64 values, integers, booleans; read on access
    metadata  the file's own text; empty for npz and npy
    formats   name -> "bfloat16", "float32", ...: how each is stored ("int64" and the like for the rest)
    """

    arrays: LazyArrays
    metadata: Mapping[str, str]
    formats: Mapping[str, str]


def save_tensors(
    path: str | Path,
    arrays: Mapping[str, Array],
    formats: Mapping[str, str] | str = "float32",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write arrays as safetensors, each float array in its storage format where that is exact.

    formats  the storage format of all float arrays, or name -> format; a name that is left out is stored as it is

    An array with a value that its format cannot hold is stored in its own dtype instead: nothing is ever rounded.
    uint8 codes named `*.codes` are stored as F8_E4M3 unless `formats` gives them another FP8 format; other
    integers and booleans are stored as they are. The file appears whole or not at all.
    """
    chosen = dict.fromkeys(arrays, formats) if isinstance(formats, str) else formats
    tensors = {name: _source(f"{path}: tensor {shown(name)}", name, array, chosen) for name, array in arrays.items()}
    write_safetensors(path, tensors, metadata)


def load_tensors(path: str | Path) -> TensorFile:
    """Open a safetensors or npz file of named arrays, or an npy file, whose array is named `input`.

    Nothing but headers is read before it is used.

    bfloat16, float16 and FP8 are decoded to float32 on access, except FP8 tensors named `*.codes`, which stay
    uint8. Raises InputError, naming the file and the array, for what cannot be read as numbers.
    """
    path = Path(path)
    if path.suffix in (".npz", ".npy"):
        headers, metadata = open_arrays(path), dict[str, str]()
    else:
        file = open_safetensors(path)
        names = sorted(file.tensors, key=lambda name: file.tensors[name].start)
        headers, metadata = {name: _lazy(file, name) for name in names}, dict(file.metadata)
    return TensorFile(LazyArrays(headers), metadata, {name: entry.format for name, entry in headers.items()})


def _lazy(file: SafetensorsFile, name: str) -> LazyArray:
    raw, stored = file.array(name), FORMATS.get(file.tensors[name].dtype)
    if stored is None or stored in ("float32", "float64") or (stored in _CODES and name.endswith(".codes")):
        return LazyArray(raw.dtype, raw.shape, lambda: np.asarray(raw), raw.label, stored or raw.dtype.name)
    return LazyArray(np.dtype("f4"), raw.shape, lambda: np.asarray(decode(raw, stored)), raw.label, stored)


def _source(label: str, name: str, given: Array, formats: Mapping[str, str]) -> Source:
    """Choose the stored dtype of an array: its format's if that holds every value, else its own."""
    array = asnumpy(given)
    wanted = formats.get(name, "")
    if array.dtype == np.uint8 and (wanted in _CODES or name.endswith(".codes")):
        return source(_CODES.get(wanted, "F8_E4M3"), array)
    own = _PLAIN.get(array.dtype.name)
    if own is None:
        raise InputError(f"{label}: expected numbers of one of {', '.join(_PLAIN)}; found dtype {array.dtype}")
    if array.dtype.kind != "f" or wanted not in _NARROW or narrowed(array, wanted) is None:
        return source(own, array)
    # Narrowed once more when its turn comes, so that never two copies of a whole trace are held.
    return Source(_NARROW[wanted], array.shape, lambda: np.asarray(narrowed(array, wanted)))


def narrowed(array: np.ndarray, number_format: str) -> np.ndarray | None:
    """Return the array as a format stores it, bfloat16 as uint16 codes; None unless every value is kept."""
    with np.errstate(over="ignore", under="ignore"):
        plain = array.astype(np.float32 if number_format == "bfloat16" else number_format)
    if not ((plain == array) | (np.isnan(plain) & np.isnan(array))).all():
        return None
    if number_format != "bfloat16":
        return np.asarray(plain)
    bits = plain.view(np.uint32)
    return None if (bits & 0xFFFF).any() else (bits >> 16).astype(np.uint16)
