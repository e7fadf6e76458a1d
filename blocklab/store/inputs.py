"""What a run starts from: weights, tokens or activations, positions and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError, brief, listed
from blocklab.json_file import parse_json
from blocklab.store.checkpoint import embedding_rows, has_embedding, load_weights
from blocklab.store.memory import require_memory
from blocklab.store.trace_file import load_tensors
from blocklab.synth.circuits import START_OF_TEXT
from blocklab.synth.weights import synthetic_embedding, synthetic_weights, text_tokens

BYTES = 256
"""Tokens of a preset: one a byte."""


@dataclass(frozen=True)
class Model:
    """A block and where its weights and its tokens come from."""

    name: str
    weights: BlockWeights
    checkpoint: Path | None
    seed: int

    @property
    def config(self) -> BlockConfig:
        """The sizes of the block."""
        return self.weights.config

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        """Return the residual stream that layer 0 receives for token ids: float32 [..., D]."""
        if self.checkpoint is not None:
            return embedding_rows(self.checkpoint, token_ids)
        bad = token_ids[(token_ids < 0) | (token_ids >= BYTES)]
        if bad.size:
            raise InputError(f"token ids: a preset's tokens are the bytes 0 to {BYTES - 1}; found {int(bad[0])}")
        return np.asarray(synthetic_embedding(self.config, self.seed).values())[token_ids]


@dataclass(frozen=True)
class Tokens:
    """The input of a run.

    x       [B, T, D] float32
    ids     [B, T] token ids, or None where activations came from a file
    labels  T texts that name the positions, or None
    source  where it came from, in words
    """

    x: np.ndarray
    ids: np.ndarray | None
    labels: tuple[str, ...] | None
    source: str


def open_model(preset: str, checkpoint: str | None, layer: int, seed: int) -> Model:
    """Return a checkpoint's layer, or a preset's config with synthetic weights."""
    if checkpoint is not None:
        return Model(f"{checkpoint}, layer {layer}", load_weights(checkpoint, layer), Path(checkpoint), seed)
    weights = synthetic_weights(BlockConfig.preset(preset), seed)
    return Model(f"preset {preset}, synthetic weights, seed {seed}", weights, None, seed)


def tokens_from_text(model: Model, text: str) -> Tokens:
    """Run the start-of-text token and the UTF-8 bytes of a text; only where the vocabulary is the 256 bytes."""
    if model.config.vocab_size != BYTES and model.checkpoint is not None:
        raise InputError(
            f"{model.checkpoint}: text is run as bytes, and this checkpoint has a vocabulary of its own"
            f" ({model.config.vocab_size} tokens, not {BYTES}): pass token ids"
        )
    if not text:
        raise InputError("text: expected at least one byte; found none")
    ids = np.array(text_tokens(text.encode("utf-8", "surrogateescape")), dtype=np.int64)[None]  # [1, T]
    return Tokens(model.embed(ids), ids, tuple(map(label_byte, ids[0])), f"start and the bytes of {text!r}")


def tokens_from_ids(model: Model, ids: Sequence[int]) -> Tokens:
    """Run the given token ids: rows of the embedding."""
    huge = [i for i in ids if abs(i) >> 31]
    if huge:
        raise InputError(f"token ids: expected numbers below 2^31; found {huge[0]}")
    array = np.asarray(ids, dtype=np.int64)[None]  # [1, T]
    return Tokens(model.embed(array), array, tuple(map(str, ids)), f"{array.size} token ids")


def tokens_from_seed(model: Model, batch: int, tokens: int, seed: int) -> Tokens:
    """Run seeded random tokens; standard normal activations where a checkpoint has no embedding."""
    require_size(batch, tokens)
    size = 4 * batch * tokens * (model.config.hidden_size + tokens)  # the input and the mask, at the least
    require_memory(size, f"an input of {batch} x {tokens} tokens", "take fewer tokens")
    rng = np.random.default_rng(seed)
    vocabulary = BYTES if model.checkpoint is None else model.config.vocab_size or BYTES
    if model.checkpoint is None or has_embedding(model.checkpoint):
        ids = rng.integers(0, vocabulary, (batch, tokens))
        return Tokens(model.embed(ids), ids, None, f"random tokens, seed {seed}")
    x = rng.standard_normal((batch, tokens, model.config.hidden_size)).astype(np.float32)
    return Tokens(x, None, None, f"standard normal activations, seed {seed} (the checkpoint has no embedding)")


def require_size(batch: int, tokens: int) -> None:
    """Refuse an input without sequences or without tokens."""
    if batch < 1 or tokens < 1:
        raise InputError(f"batch and tokens must be at least 1; found {batch} and {tokens}")


def tokens_from_file(config: BlockConfig, path: str) -> Tokens:
    """Run recorded activations: the array `input` (or `resid_pre`) of a file, [B, T, D] or [T, D]."""
    arrays = load_tensors(path).arrays
    name = next((n for n in ("input", "resid_pre") if n in arrays), None)
    if name is None:
        some = listed(arrays)
        raise InputError(f"{path}: expected an array named input (or resid_pre); found {some}")
    x = arrays[name]
    width = config.hidden_size
    if x.ndim not in (2, 3) or x.shape[-1] != width or x.dtype.kind != "f" or x.size == 0:
        raise InputError(f"{path}: {name}: expected floats [B, T, {width}]; found {x.dtype} {list(x.shape)}")
    require_activations(x, f"{path}: {name}")
    return Tokens(x if x.ndim == 3 else x[None], None, None, f"{name} of {path}")


def require_activations(x: np.ndarray, label: str) -> None:
    """Refuse activations to start from that are not finite, or that float32 cannot hold."""
    fine = np.abs(x) <= np.finfo(np.float32).max
    if not fine.all():
        index = [int(i) for i in np.unravel_index(int(np.argmin(fine)), x.shape)]
        raise InputError(f"{label}{index}: expected finite values that float32 holds; found {x[tuple(index)]}")


def parse_positions(text: str | None, T: int) -> np.ndarray:
    """Return T positions from "1000" (counting up from there) or from a list "0,1,2,7"; default 0 .. T-1."""
    try:
        numbers = [int(n) for n in (text or "0").split(",")]
    except ValueError:
        raise InputError(f"positions: expected a start or a list of integers; found {text!r}") from None
    if len(numbers) not in (1, T):
        raise InputError(f"positions: expected a start or {T} positions; found {len(numbers)}")
    last = numbers[0] + T - 1 if len(numbers) == 1 else max(numbers)
    if min(numbers) < 0 or last >= 1 << 31:
        raise InputError(f"positions: expected 0 to {(1 << 31) - 1}; found {text}, the last of which is {last}")
    return np.array(numbers) if len(numbers) > 1 else np.arange(numbers[0], last + 1)


def told_positions(text: str, where: str) -> np.ndarray:
    """Return the positions that a trace's metadata tells as a JSON list; `where` opens the message of an error."""
    places = parse_json(text.encode(), where)
    try:
        return np.asarray(places)
    except (ValueError, OverflowError):  # lists of different lengths
        raise InputError(f"{where}: expected a list of integers; found {brief(places)}") from None


def checked_positions(found: np.ndarray, B: int, T: int, where: str) -> np.ndarray:
    """Return recorded positions as integers, [T] or [B or 1, T]; floats are taken where they are whole."""
    if found.dtype.kind not in "iuf" or not (np.isfinite(found) & (np.abs(found) < 1 << 31)).all():
        raise InputError(f"{where}: expected integers from 0 on; found others")
    whole = found.astype(np.int64)
    if whole.ndim not in (1, 2) or whole.shape[-1] != T or (whole.ndim == 2 and len(whole) not in (1, B)):
        raise InputError(f"{where}: expected [{T}] or [{B}, {T}]; found {list(whole.shape)}")
    if (whole != found).any() or (whole < 0).any():
        raise InputError(f"{where}: expected integers from 0 on; found others")
    return whole


def label_byte(byte: int) -> str:
    """Return a byte as the character it stands for, ^ for start of text, or 0x.. where it cannot be printed."""
    if byte in (START_OF_TEXT, ord(" ")):
        return "^" if byte == START_OF_TEXT else "␣"
    return chr(byte) if 33 <= byte < 127 else f"0x{byte:02x}"
