"""Traces, dumps and arrays that are damaged or odd are refused in one line, or shown and run as they are."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import refused, target
from hypothesis import strategies as st
from material import checkpoint, config, scratch, trace_file
from mutations import Damage, Edit, damaged, damages, edits, odd_json
from test_headers import changed

from blocklab.block.steps import STEPS
from blocklab.check import compare, validate
from blocklab.check.dump import read_dump
from blocklab.commands.traces import require_axes
from blocklab.show.explore import explorer_page
from blocklab.show.stepper import print_all
from blocklab.store.checkpoint import load_weights
from blocklab.store.inputs import Model, tokens_from_file
from blocklab.store.trace import load_trace
from blocklab.store.trace_file import load_tensors, save_tensors

DTYPES = ("<f4", "<f8", "<f2", ">f4", "<f16", "<i8", "u1", "?", "<c8", "<U3", "O", "V2", "m8[s]", "i1", ">i8")
SHAPES = ((), (0,), (1,), (24,), (1, 24), (3, 24), (2, 3, 24), (0, 3, 24), (2, 0, 24), (2, 3, 0), (1,) * 5, (3, 3),
          (2, 1, 3, 3), (2, 3), (2, 3, 3), (3,), (2, 3, 3, 14), (6, 24), (24, 3, 2))  # fmt: skip
NAMES = (*STEPS, "input", "position_ids", "attention_mask", "rotary.cos", "rotary.sin", "cache.kv_latent_norm",
         "cache.k_rot", "layers.1.q_a_proj", "self_attn.fused_qkv_a_proj", "q_latent.in.codes", "gate_up_proj",
         "layers." + "9" * 5000 + ".q_a_proj", "Kcur-" + "9" * 5000, "", "q\n", "layers.0", "kq-0", "😀")  # fmt: skip
FILLS = (0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 3e38, 1e-42, 1e300, 448.0, 2.0**62)


class Odd(NamedTuple):
    """An array that replaces or joins those of a dump."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: float
    whole: bool

    def make(self) -> np.ndarray:
        """Return the array: filled, or zero with one odd value."""
        with np.errstate(all="ignore"):
            if self.dtype in ("O", "<U3", "V2", "m8[s]"):
                return np.zeros(self.shape, self.dtype)
            array = np.full(self.shape, self.fill if self.whole else 0).astype(self.dtype)
            if array.size and not self.whole:
                array.reshape(-1)[array.size // 2] = np.array(self.fill).astype(self.dtype)
            return array


odd_arrays = st.builds(
    Odd,
    st.sampled_from(NAMES),
    st.sampled_from(DTYPES),
    st.sampled_from(SHAPES),
    st.sampled_from(FILLS),
    st.booleans(),
)
KEYS = ("recipe", "attention", "config", "labels", "positions", "prefill", "model", "layer", "checkpoint", "preset")
metadata = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(
        odd_json.map(lambda value: str(value) if isinstance(value, str) else json.dumps(value)),
        st.sampled_from(("²", "[" * 2000, "[1, 2, 3]", '[0, 1, "x"]', "[[1], [1, 2]]", "[0, 1, 1e999]", "{}")),
    ).map(lambda text: text.encode("utf-8", "backslashreplace").decode()),
    max_size=3,
)


def use(path: Path) -> str | None:
    """Read a file in every way that a command reads it; return the last refusal, if any."""
    last = refused(lambda: [load_tensors(path).arrays[name] for name in load_tensors(path).arrays])
    model = Model("tiny", load_weights(checkpoint()), checkpoint(), 0)
    last = refused(lambda: tokens_from_file(model.config, str(path))) or last
    last = refused(lambda: read_dump(path, config())) or last
    return refused(lambda: show(path)) or last


def show(path: Path) -> None:
    """Explore a trace and walk through it."""
    trace = load_trace(path)
    explorer_page(trace, None, {}).encode()
    lines: list[str] = []
    require_axes(trace, str(path))
    print_all(trace, [step.name for step, _ in trace.steps()], 80, None, lines.append)
    trace.digest()


@target(st.tuples(st.sampled_from(("naive", "absorb")), edits, st.one_of(st.just([]), damages)), quick=40)
def test_damaged_traces(case: tuple[str, list[Edit], list[Damage]]) -> str | None:
    path = scratch() / "damaged.safetensors"
    path.write_bytes(changed(trace_file(case[0]).read_bytes(), *case[1:]))
    return use(path)


@target(st.tuples(st.sampled_from((".npz", ".npy")), damages), quick=60)
def test_damaged_npz(case: tuple[str, list[Damage]]) -> str | None:
    path = scratch() / f"damaged{case[0]}"
    path.write_bytes(damaged(trace_file("naive", case[0]).read_bytes(), case[1]))
    return use(path)


@target(st.tuples(st.lists(odd_arrays, min_size=1, max_size=3), metadata), quick=60)
def test_odd_traces(case: tuple[list[Odd], dict[str, str]]) -> str | None:
    file = load_tensors(trace_file("absorb"))
    path = scratch() / "odd.safetensors"
    arrays = {**file.arrays, **{odd.name: odd.make() for odd in case[0]}}
    told = refused(lambda: save_tensors(path, arrays, file.formats, {**file.metadata, **case[1]}))
    return told or use(path)


@target(st.tuples(st.lists(odd_arrays, min_size=1, max_size=4), st.booleans(), st.booleans()), quick=60)
def test_odd_dumps(case: tuple[list[Odd], bool, bool]) -> str | None:
    odd, few, packed = case
    arrays: dict[str, Any] = {} if few else dict(load_tensors(trace_file("naive")).arrays)
    arrays |= {one.name: one.make() for one in odd}
    path = scratch() / "odd.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=True)
            archive.writestr(f"{name[:60]}.npy", content.getvalue())
    return use(path)


@target(
    st.tuples(
        st.lists(odd_arrays, max_size=2),
        metadata,
        st.sampled_from(("naive", "absorb")),
        st.sampled_from((None, 0, 1, -1)),
    ),
    quick=15,
    slow=2_000,
)
def test_validated_dumps(case: tuple[list[Odd], dict[str, str], str, int | None]) -> str | None:
    odd, about, form, layer = case
    file = load_tensors(trace_file(form))
    path = scratch() / "odd.safetensors"
    arrays = {**file.arrays, **{one.name: one.make() for one in odd}}

    def run() -> None:
        save_tensors(path, arrays, file.formats, {**file.metadata, **about})
        report = validate(path, load_weights(checkpoint()), "deepseek-fp8", None, layer)
        json.dumps(report.to_json())
        report.table().encode()
        compare(path, trace_file(form)).table()

    return refused(run)


class Bomb:
    """An object whose unpickling would be noticed."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (scratch() / "unpickled",)


@target(
    st.tuples(st.sampled_from((".npz", ".npy", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".safetensors")),
              st.integers(0, 5), st.one_of(st.just([]), damages)),
    quick=60,
)  # fmt: skip
def test_pickles(case: tuple[str, int, list[Damage]]) -> str | None:
    import pickle

    ending, protocol, changes = case
    content = io.BytesIO()
    if ending in (".npz", ".npy"):
        (np.savez if ending == ".npz" else np.save)(content, np.array([Bomb()], object), allow_pickle=True)
    else:
        content.write(pickle.dumps(Bomb(), protocol))
    path = scratch() / f"pickle{ending}"
    path.write_bytes(damaged(content.getvalue(), changes))
    told = use(path)
    assert not (scratch() / "unpickled").exists()
    assert told
    if not changes:
        assert "pickle" in told
    return told
