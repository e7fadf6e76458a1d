"""Comparing two dumps or traces with each other: no model is run, so nothing is known about tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blocklab.block.steps import STEPS
from blocklab.check.layout import readings
from blocklab.check.measures import Measures, difference, measure
from blocklab.check.names import read_name
from blocklab.check.outcome import Outcome, apart, not_finite, share, worst_place
from blocklab.errors import InputError, brief, listed
from blocklab.store.trace_file import load_tensors, narrowed
from blocklab.tables import format_table

LIMITS = {"float32": 1e-5, "bfloat16": 4e-3}
"""Relative error, in norm, up to which two implementations that round alike may be apart."""


@dataclass(frozen=True)
class Pair:
    """Two tensors of one step."""

    step: str
    name_a: str
    name_b: str
    measures: Measures
    limit: float

    @property
    def passed(self) -> bool:
        """Whether they are as close as two correct implementations."""
        m = self.measures
        return m.relative <= self.limit and m.spoiled == 0


@dataclass(frozen=True)
class Comparison(Outcome):
    """The result of `compare`: b against a, in the order of computation."""

    a: str
    b: str
    storage: str
    pairs: tuple[Pair, ...]
    not_compared: tuple[str, ...]

    @property
    def first_divergence(self) -> str | None:
        """The first step that is further apart than two correct implementations."""
        return next((pair.step for pair in self.pairs if not pair.passed), None)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        different = [pair for pair in self.pairs if pair.measures.equal < 1]
        if not different:
            return f"All {len(self.pairs)} common tensors are equal."
        if different[0].step == "resid_pre":
            return "The inputs differ, so that nothing after them can be equal."
        pair = next((p for p in self.pairs if not p.passed), different[0])
        m = pair.measures
        if m.spoiled:
            return f"`{pair.step}` is the first step that differs: {not_finite(m, 'b', 'a')}."
        place = f"by {m.relative:.1e} in norm, most at {worst_place(m)}; b is {m.ratio:.4f} times a"
        if self.passed:
            return f"`{pair.step}` is the first step that is not equal, {place}: within what rounding explains."
        return f"`{pair.step}` is the first step that differs, {place}."

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values, with the keys of `validate`."""
        return {
            "verdict": self.verdict,
            "first_divergence": self.first_divergence,
            "sentence": self.sentence,
            "a": self.a,
            "b": self.b,
            "storage": self.storage,
            "steps": [
                {
                    "step": p.step,
                    "dump_name": p.name_b,
                    "name_a": p.name_a,
                    "end_to_end": p.measures.to_json() | {"pass": p.passed},
                }
                for p in self.pairs
            ],
            "not_compared": list(self.not_compared),
        }

    def table(self) -> str:
        """Return one line a tensor, then the verdict."""
        heads = ("step", "a", "b", "", "equal", "ulp", "error", "cosine", "ratio", "worst at")
        rows = [_row(pair) for pair in self.pairs]
        lines = [f"a: {self.a}", f"b: {self.b}", "", format_table(heads, rows, "<<<<>>>>><")]
        if self.not_compared:
            lines += ["", "not compared: " + ", ".join(self.not_compared)]
        return "\n".join([*lines, "", self.sentence])


def compare(a: str | Path | Mapping[str, Any], b: str | Path | Mapping[str, Any]) -> Comparison:
    """Compare two dumps or traces step by step.

    a, b  safetensors or npz files, or mappings of names to arrays (a Trace, too); names and layouts as in `validate`

    Tensors of the same step are compared, whatever each side calls them. Distances in ulp are those of bfloat16 where
    all values of both are bfloat16 numbers, else of float32.
    Errors: InputError for what cannot be read, for shapes that do not fit, and where nothing is common.
    """
    (label_a, first), (label_b, second) = _opened(a, "a"), _opened(b, "b")
    names_a, names_b = _by_step(first), _by_step(second)
    common = [step for step in STEPS if step in names_a and step in names_b]
    if not common:
        found = f"found {listed(first)} and {listed(second)}"
        raise InputError(f"{label_a} and {label_b}: expected tensors of the same steps; {found}")
    arrays = {
        s: _aligned(s, first[names_a[s]], second[names_b[s]], f"{label_a}: {names_a[s]}", f"{label_b}: {names_b[s]}")
        for s in common
    }
    narrow = all(narrowed(x, "bfloat16") is not None for pair in arrays.values() for x in pair)
    storage = "bfloat16" if narrow else "float32"
    pairs = [
        Pair(step, names_a[step], names_b[step], measure(step, theirs, ours, storage), LIMITS[storage])
        for step, (ours, theirs) in arrays.items()
    ]
    used = {names_a[step] for step in common} | {names_b[step] for step in common}
    alone = [name for name in (*first, *second) if name not in used]
    return Comparison(label_a, label_b, storage, tuple(pairs), tuple(dict.fromkeys(alone)))


def _opened(source: str | Path | Mapping[str, Any], label: str) -> tuple[str, Mapping[str, Any]]:
    if isinstance(source, str | Path):
        label, source = str(source), load_tensors(source).arrays
    for name, array in source.items():
        dtype = getattr(array, "dtype", None)
        if not isinstance(name, str) or dtype is None or dtype.kind not in "fiub":
            found = type(array).__name__ if dtype is None else f"{dtype}{list(array.shape)}"
            raise InputError(f"{label}: expected names with arrays of real numbers; found {brief(name)} with {found}")
    return label, source


def _by_step(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return step -> name, the most specific name where several mean it; fused tensors are left out."""
    found: dict[str, str] = {}
    for name in sorted(arrays, key=len, reverse=True):
        meaning = read_name(name)
        if meaning is not None and len(meaning.steps) == 1:
            found.setdefault(meaning.steps[0], name)
    return found


def _aligned(step: str, a: np.ndarray, b: np.ndarray, label_a: str, label_b: str) -> tuple[np.ndarray, np.ndarray]:
    """Return both in the axes of the step, as far as one of them has those; the nearest reading of the other."""
    if a.shape == b.shape:
        return a, b
    whole = len(STEPS[step].axes)
    reference, other = (a, b) if a.ndim == whole else (b, a)
    R = reference.shape[-1] if step in ("q_rot", "k_rot") else None
    if reference.ndim != whole:
        raise InputError(f"{label_b}: expected the shape {list(a.shape)} of {label_a}; found {list(b.shape)}")
    label = label_b if other is b else label_a
    options = [reading.values for reading in readings(step, other, reference.shape, R, label)]
    nearest = min(options, key=lambda values: float(np.square(np.clip(difference(values, reference), -1e9, 1e9)).sum()))
    return (reference, nearest) if reference is a else (nearest, reference)


def _row(pair: Pair) -> tuple[str, ...]:
    m = pair.measures
    numbers = (share(m.equal), f"{m.max_ulp:.3g}", apart(m), f"{m.cosine:.6f}", f"{m.ratio:.4f}")
    return (pair.step, pair.name_a, pair.name_b, "ok" if pair.passed else "DIFFERS", *numbers, worst_place(m))
