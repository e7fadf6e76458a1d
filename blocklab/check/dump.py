"""Dumps: named arrays of somebody's implementation, each matched to the step of the block that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.block.config import BlockConfig
from blocklab.block.steps import STEPS
from blocklab.check.layout import Reading, readings
from blocklab.check.names import Named, read_name, without_layer
from blocklab.errors import InputError, brief, listed, shown
from blocklab.store.accounting import step_shapes
from blocklab.store.inputs import require_activations
from blocklab.store.trace_file import load_tensors

INPUTS = ("input", "resid_pre", "inp_embd")
POSITIONS = ("position_ids", "positions", "cache_position")
MASKS = ("attention_mask", "mask", "causal_mask")
TABLES = ("rotary.cos", "rotary.sin")
CACHES = ("cache.kv_latent_norm", "cache.k_rot")
SHOWN = 8


@dataclass(frozen=True)
class Matched:
    """A tensor of the dump that shows a step.

    readings  the ways to read it in the step's axes; more than one where a shape leaves it open
    how       what matched: the kind of name, and the part of a fused tensor
    also      other tensors of the dump with exactly these values
    """

    step: str
    dump_name: str
    readings: tuple[Reading, ...]
    how: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unmatched:
    """A tensor of the dump that is compared with nothing, and why."""

    dump_name: str
    why: str


@dataclass(frozen=True)
class Dump:
    """What somebody's implementation computed.

    x             the input [B, T, D]
    matched       tensors that show a step, in the order of computation
    not_compared  all others but those that the run is given
    given         "position_ids", "attention_mask", "rotary.cos", "rotary.sin", "cache.*" as the dump has them
    formats       dump name -> how the file stores it
    """

    source: str
    x: np.ndarray
    matched: tuple[Matched, ...]
    not_compared: tuple[Unmatched, ...]
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> set[str]:
        """The steps that it shows."""
        return {match.step for match in self.matched}

    def of(self, step: str) -> list[Matched]:
        """Return the tensors that show a step."""
        return [match for match in self.matched if match.step == step]

    def take(self, sequences: slice, tokens: np.ndarray, past: int) -> Dump:
        """Return the dump of some tokens of some sequences, with `past` keys before them that are cached."""
        batch = np.arange(len(self.x))[sequences]
        parts = {"B": batch, "T": tokens, "S": np.concatenate([np.arange(past), past + tokens])}
        cut = [replace(m, readings=tuple(_cut(m.step, r, parts) for r in m.readings)) for m in self.matched]
        return replace(self, x=self.x[sequences][:, tokens], matched=tuple(cut))


def read_dump(source: str | Path | Mapping[str, Any], config: BlockConfig, layer: int | None = None) -> Dump:
    """Read a dump of the block that `config` describes.

    source  a safetensors or npz file, or a mapping of names to arrays (a Trace, too)
    layer   which layer's tensors to take where names give layers; None takes the only one there is

    Errors: InputError, one line that names the file and the tensor, for a dump without input, of another width or
    batch, with NaN in its input, or in which no name means a step.
    """
    file = _opened(source)
    if not file.arrays:
        raise InputError(f"{file.label}: expected named tensors, found none")
    x = _input(file, config)
    B, T, _ = x.shape
    given = {key: _numbers(file, name) for key, name in _given_names(file).items()}
    S = T + (given[CACHES[0]].shape[1] if CACHES[0] in given and given[CACHES[0]].ndim == 3 else 0)
    shapes = step_shapes(config, B, T, S)
    taken = set(_given_names(file).values()) | {name for name in INPUTS if name in file.arrays}
    named, unmatched = _by_name(file, taken, layer)
    for name in taken.intersection(INPUTS):
        if not np.array_equal(np.asarray(file.arrays[name]).reshape(-1), x.reshape(-1)):
            unmatched.append(Unmatched(name, "another input than the one that is used"))
    matched = [match for name, meaning in named.items() for match in _match(file, name, meaning, shapes)]
    if not matched:
        others = listed(sorted(entry.dump_name for entry in unmatched), SHOWN)
        raise InputError(
            f"{file.label}: nothing to compare: beside the input, expected tensors named as steps (q_latent) or as"
            f" modules (self_attn.q_a_proj, attn.wq_a); found {others}"
        )
    if all(np.isnan(match.readings[0].values).all() for match in matched):
        raise InputError(f"{file.label}: expected numbers, found NaN everywhere in {len(matched)} tensors")
    order = list(STEPS)
    # Of several names of one step the longest is the most specific: self_attn.o_proj before self_attn.
    matched.sort(key=lambda match: (order.index(match.step), -len(match.dump_name)))
    joined = _join_equal(matched)
    return Dump(file.label, x, tuple(joined), tuple(unmatched), given, file.formats, file.metadata)


@dataclass(frozen=True)
class _File:
    """Named arrays from a file or from memory."""

    label: str
    arrays: Mapping[str, Any]
    formats: Mapping[str, str]
    metadata: Mapping[str, str]


def settled(dump: Dump, gain: np.ndarray) -> Dump:
    """Return the dump with llama.cpp's `kv_cmpr` under the step that it is: it names the latent and its norm alike.

    gain  of the latent's norm: divided by it, a normed latent has root mean square 1 in every token
    """
    matched = []
    for match in dump.matched:
        if match.step == "kv_latent" and without_layer(match.dump_name)[0] == "kv_cmpr":
            with np.errstate(all="ignore"):
                rms = np.sqrt(np.square(match.readings[0].values / gain, dtype=np.float64).mean(-1))
            if (np.abs(rms - 1) < 0.02).mean() > 0.9:
                match = replace(match, step="kv_latent_norm", how=f"{match.how}, after the norm by its size")
        matched.append(match)
    return replace(dump, matched=tuple(matched))


def _opened(source: str | Path | Mapping[str, Any]) -> _File:
    if isinstance(source, str | Path):
        file = load_tensors(source)
        return _File(str(source), file.arrays, file.formats, file.metadata)
    arrays = {**getattr(source, "given", {}), **source}
    for name, array in arrays.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise InputError(f"dump: expected names with numpy arrays; found {brief(name)} with {type(array).__name__}")
    formats = {name: array.dtype.name for name, array in arrays.items()} | dict(getattr(source, "formats", {}))
    return _File("dump", arrays, formats, getattr(source, "metadata", {}))


def _input(file: _File, config: BlockConfig) -> np.ndarray:
    name = next((n for wanted in INPUTS for n in file.arrays if without_layer(n)[0] == wanted), None)
    if name is None:
        others = listed(file.arrays, SHOWN)
        raise InputError(f"{file.label}: expected a tensor input [B, T, {config.hidden_size}]; found {others}")
    x = _numbers(file, name)
    if x.ndim == 2:
        x = x[None]
    if x.ndim != 3 or x.shape[2] != config.hidden_size or x.dtype.kind != "f" or x.size == 0:
        raise InputError(
            f"{file.label}: {shown(name)}: expected floats [B, T, {config.hidden_size}], the hidden_size of"
            f" config.json; found {x.dtype}{list(x.shape)}"
        )
    require_activations(x, f"{file.label}: {shown(name)}")
    if not x.any():
        raise InputError(f"{file.label}: {shown(name)}: expected values, found zeros only: was it ever written?")
    return x


def _numbers(file: _File, name: str) -> np.ndarray:
    array = np.asarray(file.arrays[name])
    if array.dtype.kind not in "fiub":
        raise InputError(f"{file.label}: {shown(name)}: expected real numbers, found {array.dtype}")
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _given_names(file: _File) -> dict[str, str]:
    """Return what the run is given -> the name under which the dump has it."""
    wanted = {"position_ids": POSITIONS, "attention_mask": MASKS} | {name: (name,) for name in (*TABLES, *CACHES)}
    known = {without_layer(name)[0]: name for name in reversed(list(file.arrays))}
    found = {key: next((known[name] for name in names if name in known), None) for key, names in wanted.items()}
    return {key: name for key, name in found.items() if name is not None}


def _by_name(file: _File, taken: set[str], layer: int | None) -> tuple[dict[str, Named], list[Unmatched]]:
    """Sort the tensors into those whose name means a step of the wanted layer, and the rest with the reason."""
    meanings = {name: read_name(name) for name in file.arrays if name not in taken}
    layers = {m.layer for m in meanings.values() if m is not None and m.layer is not None}
    if layer is None and len(layers) > 1:
        raise InputError(f"{file.label}: expected tensors of one layer, found layers {sorted(layers)}: choose one")
    named, unmatched = {}, []
    for name, meaning in meanings.items():
        if meaning is None:
            quantised = name.endswith((".in.codes", ".in.scale"))
            unmatched.append(Unmatched(name, "a quantised input" if quantised else "the name means no step"))
        elif layer is not None and meaning.layer not in (None, layer):
            unmatched.append(Unmatched(name, f"of layer {meaning.layer}, not {layer}"))
        else:
            named[name] = meaning
    return named, unmatched


def _match(file: _File, name: str, meaning: Named, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Matched]:
    array = _numbers(file, name)
    R = shapes["k_rot"][-1]
    for step, part, how in _parts(array, meaning, shapes, f"{file.label}: {shown(name)}"):
        found = readings(step, part, shapes[step], R, f"{file.label}: {shown(name)}")
        yield Matched(step, name, tuple(found), how)


def _parts(
    array: np.ndarray, meaning: Named, shapes: Mapping[str, tuple[int, ...]], label: str
) -> Iterator[tuple[str, np.ndarray, str]]:
    """Yield (step, values, how): one, or the parts of a fused tensor, cut along its last axis."""
    if len(meaning.steps) == 1:
        yield meaning.steps[0], array, meaning.how
        return
    widths = [shapes[step][-1] for step in meaning.steps]
    if not array.ndim or array.shape[-1] != sum(widths):
        text = " + ".join(f"{step} {width}" for step, width in zip(meaning.steps, widths, strict=True))
        raise InputError(f"{label}: expected a last axis of {sum(widths)} = {text}; found {list(array.shape)}")
    start = 0
    for step, width in zip(meaning.steps, widths, strict=True):
        yield step, array[..., start : start + width], f"{meaning.how}: [{start}:{start + width}]"
        start += width


def _join_equal(matched: list[Matched]) -> Iterator[Matched]:
    """Join tensors that show one step with the same values (`self_attn` and its `o_proj`)."""
    kept: dict[str, list[Matched]] = {}
    for match in matched:
        for i, earlier in enumerate(kept.setdefault(match.step, [])):
            if np.array_equal(earlier.readings[0].values, match.readings[0].values, equal_nan=True):
                kept[match.step][i] = replace(earlier, also=(*earlier.also, match.dump_name))
                break
        else:
            kept[match.step].append(match)
    for matches in kept.values():
        yield from matches


def _cut(step: str, reading: Reading, parts: Mapping[str, np.ndarray]) -> Reading:
    values = reading.values
    for i, axis in enumerate(STEPS[step].axes):
        values = values.take(parts[axis], axis=i) if axis in parts else values
    return replace(reading, values=values)
