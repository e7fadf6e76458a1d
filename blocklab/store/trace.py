"""Traces: every named value of one run of the block, in memory and on disk."""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import numpy as np

from blocklab.block.cache import LatentCache
from blocklab.block.config import BlockConfig
from blocklab.block.dense import dense_block
from blocklab.block.steps import QUANTISED, STEPS, Step, step_of
from blocklab.block.taps import Chain, Tap
from blocklab.block.weights import BlockWeights
from blocklab.errors import InputError, listed, shown
from blocklab.numerics import Recipe, get_recipe
from blocklab.store.lazy import header
from blocklab.store.statistics import Statistics, statistics
from blocklab.store.trace_file import load_tensors, save_tensors
from blocklab.xp import Array, asnumpy


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, np.ndarray]):
    """A mapping from step name to array, in the order of computation.

    arrays      name -> array; empty where only statistics were kept
    summary     name -> Statistics
    formats     name -> storage format
    given       what the run was given: "rotary.cos", "rotary.sin", "attention_mask", "cache.*" as it was before
    metadata    recipe, attention, config and whatever else describes the run, as text
    """

    arrays: Mapping[str, np.ndarray]
    summary: Mapping[str, Statistics]
    formats: Mapping[str, str]
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            kept = ", ".join(self.arrays) or "statistics only"
            raise KeyError(f"the trace has no values of {name!r}; it has {kept}")
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def steps(self) -> Iterator[tuple[Step, np.ndarray]]:
        """Yield (step, value) in the order of computation, quantised inputs left out."""
        for step, _ in self.headers():
            yield step, self.arrays[step.name]

    def headers(self) -> Iterator[tuple[Step, Array]]:
        """Yield (step, what has its dtype and shape) likewise, reading no values from a file."""
        for name in self.arrays:
            if name in STEPS:
                yield STEPS[name], header(self.arrays, name)

    def digest(self) -> dict[str, str]:
        """Return for every value the sha256 of its float32 (or float64) bytes: equal only if equal to the bit."""
        return {name: value_digest(value) for name, value in self.arrays.items()}

    def save(self, path: str | Path) -> None:
        """Write a safetensors file that `load_trace` and `blocklab validate` read; bfloat16 stays bfloat16.

        Errors: InputError for a trace that kept statistics only, and where the file cannot be written.
        """
        if not self.arrays:
            raise InputError(f"{path}: this trace kept statistics and no values: nothing could be read back")
        save_tensors(path, {**self.given, **self.arrays}, self.formats, self.metadata)

    def __repr__(self) -> str:
        what = f"{len(self.arrays)} steps" if self.arrays else f"statistics of {len(self.summary)} steps"
        shape = next((f" of input {list(s.shape)}" for name, s in self.summary.items() if name == "resid_pre"), "")
        return f"<Trace: {what}{shape}, recipe {self.metadata.get('recipe', 'unknown')}>"

    def _repr_html_(self) -> str:
        rows = []
        for name, s in self.summary.items():
            numbers = (f"{s.rms:.4g}", f"{s.peak:.4g}")
            cells = (name, axes_text(name, s.shape), self.formats.get(name, ""), *numbers, step_of(name).note)
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
        head = "".join(f"<th>{h}</th>" for h in ("step", "shape", "format", "rms", "max", ""))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def select_steps(patterns: str | Iterable[str]) -> Callable[[str], bool]:
    """Return a test for names that match any of the comma-separated globs ("q*,attn_*", "*.in.*").

    "*" means every step, and not the quantised inputs, which a glob must name by their ".in".
    Raises InputError for a pattern that matches no step.
    """
    globs = [g.strip() for g in patterns.split(",")] if isinstance(patterns, str) else list(patterns)
    chosen: set[str] = set()
    for glob in globs:
        names = [n for n in (*STEPS, *(QUANTISED if ".in" in glob else ())) if fnmatchcase(n, glob)]
        if not names:
            raise InputError(f"no step matches {glob!r}; the steps are {', '.join(STEPS)}")
        chosen.update(names)
    return chosen.__contains__


class Recorder:
    """A tap that keeps what it sees: values, or only their statistics."""

    def __init__(self, steps: str = "*", keep: Literal["values", "statistics"] = "values") -> None:
        """Record the steps that match `steps`, comma-separated globs; keep values or only statistics."""
        if keep not in ("values", "statistics"):
            raise InputError(f"keep: expected 'values' or 'statistics'; found {keep!r}")
        self.wants = select_steps(steps)
        self.keep = keep
        self.values: dict[str, np.ndarray] = {}
        self.summary: dict[str, Statistics] = {}

    def __call__(self, name: str, value: Array) -> Array:
        """Record and return the value."""
        self.summary[name] = statistics(value)
        if self.keep == "values":
            self.values[name] = np.array(asnumpy(value), order="C")
        return value


def trace(
    x: Array,
    R: Array,
    M: Array,
    weights: BlockWeights,
    recipe: str | Recipe = "float32",
    attention: str = "naive",
    cache: LatentCache | None = None,
    tap: Tap | None = None,
    steps: str = "*",
    keep: Literal["values", "statistics"] = "values",
    labels: Sequence[str] | None = None,
) -> Trace:
    """Run `dense_block` and return a Trace of its steps; arguments as there.

    steps   comma-separated globs of step names; "*.in.*" adds the quantised inputs of FP8 linears
    keep    "values", or "statistics" to hold a few numbers a step
    tap     sees every value before it is recorded, and may replace it
    labels  names of the T positions, which pictures write along their axes
    """
    recipe = get_recipe(recipe)
    recorder = Recorder(steps, keep)
    if labels is not None and len(labels) != x.shape[1]:
        raise InputError(f"labels: expected one for each of {x.shape[1]} tokens; found {len(labels)}")
    cached = {} if cache is None or not len(cache) else _cached(cache)
    dense_block(x, R, M, weights, recipe, attention, cache, recorder if tap is None else Chain(tap, recorder))
    about = {} if labels is None else {"labels": json.dumps(list(labels))}
    made = recorded(recorder, R, M, weights.config, recipe, attention, **about)
    return replace(made, given={**made.given, **cached})


def _cached(cache: LatentCache) -> dict[str, np.ndarray]:
    parts = {"cache.kv_latent_norm": cache.kv_latent_norm, "cache.k_rot": cache.k_rot}
    return {name: np.array(asnumpy(part)) for name, part in parts.items()}


def recorded(
    recorder: Recorder, R: Array, M: Array, config: BlockConfig, recipe: Recipe, attention: str, **metadata: str
) -> Trace:
    """Return what a recorder kept of one run, with what the run was given."""
    parts = {"rotary.cos": asnumpy(R).real, "rotary.sin": asnumpy(R).imag, "attention_mask": asnumpy(M)}
    given = {name: np.array(part) for name, part in parts.items()}  # copies: the caller may go on to change his own
    settings = {"recipe": recipe.name, "attention": attention, "config": json.dumps(asdict(config), sort_keys=True)}
    return Trace(recorder.values, recorder.summary, value_formats(recorder.summary, recipe), given, settings | metadata)


class NotATrace(InputError):
    """A file that can be read, and whose tensors are named otherwise: perhaps another program's dump."""


def load_trace(path: str | Path) -> Trace:
    """Read a trace written by `Trace.save`.

    Errors: NotATrace, an InputError naming the file, where no tensor is named as a step.
    """
    file = load_tensors(path)
    names = [name for name in file.arrays if name.partition(".in.")[0] in STEPS]
    if not names:
        found = listed(file.arrays)
        raise NotATrace(f"{path}: expected a trace with steps such as resid_pre; found {found}")
    order = list(STEPS)
    names.sort(key=lambda name: (order.index(name.partition(".in.")[0]), ".in." not in name, name))
    values, given = file.arrays.only(names), file.arrays.only(n for n in file.arrays if n not in names)
    for name, value in values.headers.items():
        if value.dtype.kind not in "fiub":
            raise InputError(f"{path}: {shown(name)}: expected real numbers; found {value.dtype}")
    return Trace(values, _Described(values), {name: file.formats[name] for name in names}, given, file.metadata)


class _Described(Mapping[str, Statistics]):
    """Statistics of arrays, computed when they are asked for."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays

    def __getitem__(self, name: str) -> Statistics:
        return statistics(self.arrays[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def value_digest(value: Array) -> str:
    """Return the sha256 of an array's bytes in C order, little-endian."""
    array = np.ascontiguousarray(asnumpy(value))
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()


def value_formats(names: Mapping[str, Any], recipe: Recipe) -> dict[str, str]:
    """Return the storage format of each traced value: codes and scales of quantised inputs have their own."""
    endings = {"codes": recipe.activation_format, "scale": "float32"}
    return {name: endings.get(name.rpartition(".in.")[2], recipe.storage) for name in names}


def axes_text(name: str, shape: tuple[int, ...]) -> str:
    """Return a shape with its axis letters, as in "B 1, T 16, Q 384"."""
    axes = step_of(name).axes if name in STEPS else ()
    if len(axes) != len(shape):
        return " x ".join(map(str, shape))
    return ", ".join(f"{axis} {size}" for axis, size in zip(axes, shape, strict=True))
