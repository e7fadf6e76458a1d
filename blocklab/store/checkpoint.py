"""Weights, embedding rows and the parameter table of a checkpoint in the published layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError
from blocklab.numerics import decode
from blocklab.numerics.weight import Weight
from blocklab.store.accounting import Component
from blocklab.store.layer import Layer, closest, open_layer, read_config
from blocklab.store.safetensors_file import FORMATS, Stored, open_safetensors
from blocklab.store.shards import find_shards, locate

_SCAN_BYTES = 1 << 20
_EXPONENT_ONES = {"F8_E4M3": 0x7F, "BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000, "F64": 0x7FF0000000000000}
_EMBEDDING = re.compile(r"(?:.*\.)?embed_tokens\.weight", re.DOTALL)
_EMBEDDING_DTYPES = ("BF16", "F16", "F32")


def load_weights(path: str | Path, layer: int = 0) -> BlockWeights:
    """Load one dense layer of a checkpoint: values are read and decoded when they are used.

    path    a folder with config.json and safetensors files, or one safetensors file beside its config.json
    layer   which layer; it must be dense

    Every value is looked at once: NaN or infinite weights and scales that are not positive are refused, since
    one of them spoils all that follows.
    Raises InputError, naming the file, the tensor, what was expected and what was found.
    """
    found = open_layer(path, layer)
    return BlockWeights.from_mapping(found.config, {name: _weight(found, name) for name in found.weights})


def parameter_table(path: str | Path, layer: int = 0) -> list[Component]:
    """List the parameters of a dense layer from headers alone, block scales and rotary buffers left out."""
    weights = open_layer(path, layer).weights
    return [Component(name, s.entry.shape, FORMATS[s.entry.dtype]) for name, s in weights.items()]


def checkpoint_config(path: str | Path) -> BlockConfig:
    """Read the config.json of the checkpoint at `path`, a folder or one safetensors file."""
    return read_config(Path(path))


def has_embedding(path: str | Path) -> bool:
    """Whether the checkpoint names an `embed_tokens.weight`."""
    return any(_EMBEDDING.fullmatch(name) for name in find_shards(path).all_names())


def embedding_rows(path: str | Path, token_ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the rows of `embed_tokens` for some token ids, [..., D] float32: the input of layer 0.

    Only those rows are read. Raises InputError for an id outside the vocabulary.
    """
    shards = find_shards(path)
    config = read_config(shards.where)
    known = shards.all_names()
    names = sorted(name for name in known if _EMBEDDING.fullmatch(name))
    if len(names) != 1:
        found = f"found {', '.join(names)}" if names else f"found none{closest('model.embed_tokens.weight', known)}"
        raise InputError(f"{shards.where}: expected one embed_tokens.weight for token ids, {found}")
    stored = Stored(open_safetensors(locate(shards, names)[names[0]]), names[0])
    entry = stored.entry
    if entry.dtype not in _EMBEDDING_DTYPES:
        raise InputError(f"{stored.label}: expected dtype {', '.join(_EMBEDDING_DTYPES)}, found {entry.dtype}")
    vocabulary = entry.shape[0] if entry.shape and config.vocab_size is None else config.vocab_size
    if entry.shape != (vocabulary, config.hidden_size):
        raise InputError(
            f"{stored.label}: expected shape {[vocabulary, config.hidden_size]} = [vocab_size, hidden_size] of"
            f" config.json, found {list(entry.shape)}"
        )
    ids = _checked_ids(stored, token_ids, entry.shape[0])
    table, (known_ids, places) = stored.array(), np.unique(ids, return_inverse=True)
    codes = np.stack([table[i] for i in known_ids])[places].reshape(*ids.shape, -1)
    rows = np.asarray(decode(codes, FORMATS[entry.dtype]))
    if not np.isfinite(rows).all():
        bad = np.unravel_index(int(np.argmin(np.isfinite(rows))), rows.shape)
        raise InputError(f"{stored.label}: row of token {ids[bad[:-1]]}: expected finite values, found {rows[bad]}")
    return rows


def _checked_ids(stored: Stored, token_ids: Sequence[int] | np.ndarray, vocabulary: int) -> np.ndarray:
    try:
        ids = np.asarray(token_ids)
    except (ValueError, OverflowError):
        ids = np.asarray(None)
    if ids.size == 0 or ids.dtype.kind not in "iu":
        found = "none" if ids.size == 0 else f"dtype {ids.dtype}"
        raise InputError(f"token ids: expected integers, found {found}")
    outside = ids[(ids < 0) | (ids >= vocabulary)]
    if outside.size:
        raise InputError(
            f"{stored.label}: token id out of range: expected 0 to {vocabulary - 1}, found {int(outside[0])}"
        )
    return ids


def _weight(layer: Layer, name: str) -> Weight:
    stored = layer.weights[name]
    _check_finite(stored)
    number_format = FORMATS[stored.entry.dtype]
    scale = layer.scales.get(name)
    if scale is None:
        return Weight(stored.array(), number_format)
    return Weight(stored.array(), number_format, _checked_scale(scale), layer.config.weight_block_size)


def _checked_scale(stored: Stored) -> np.ndarray:
    scale = np.asarray(decode(np.asarray(stored.array()), FORMATS[stored.entry.dtype]))
    good = np.isfinite(scale) & (scale > 0)
    if not good.all():
        index = np.unravel_index(int(np.argmin(good)), scale.shape)
        raise InputError(
            f"{stored.label}{[int(i) for i in index]}: expected a positive finite scale, found {scale[index]}"
        )
    return scale


def _check_finite(stored: Stored) -> None:
    """Refuse NaN and infinity by their codes: all exponent bits set, for e4m3fn all bits but the sign."""
    raw, ones, first = stored.array(), _EXPONENT_ONES[stored.entry.dtype], 0
    for piece in raw.pieces(_SCAN_BYTES // raw.itemsize):
        codes = piece.view(f"<u{raw.itemsize}")
        bad = (codes & codes.dtype.type(ones)) == ones
        if bad.any():
            at = int(np.argmax(bad))
            index = [int(i) for i in np.unravel_index(first + at, raw.shape)]
            code = f"0x{int(codes[at]):0{2 * raw.itemsize}X}"
            raise InputError(f"{stored.label}{index}: expected finite values, found NaN or infinity: code {code}")
        first += codes.size
