"""Whole processes: from nothing to the first output, and time and memory as inputs get longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import peers
from benchmarks.measure import Process, Row, processes
from benchmarks.setting import Setting

HALF = 0.5
LIMIT = 4096.0
"""MiB that the longest input may take."""


def cold_start(setting: Setting) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Yield the time from the start of a process to its end, one block computed, and its peak memory."""
    T = 8 if setting.quick else 128
    yield f"{T}", lambda: _cold_start(setting, T)


def _cold_start(setting: Setting, T: int) -> list[Row]:
    folder, recipes = str(setting.checkpoint), ("float32", "deepseek-bf16", "deepseek-fp8")
    commands = [["block", folder, recipe, str(T)] for recipe in recipes]
    dtypes = ("float32", "bfloat16") if peers.TRANSFORMERS else ()
    commands += [["transformers", folder, dtype, str(T)] for dtype in dtypes]
    found = processes(commands, 1 if setting.quick else 3)
    ours = dict(zip(recipes, found, strict=False))
    theirs: dict[str, Process] = dict(zip(dtypes, found[len(recipes) :], strict=True))
    rows = []
    for dtype, other in theirs.items():
        for recipe, process in ours.items():
            name, beside = f"cold start, {T} tokens, {recipe}", f"transformers, {dtype}"
            rows.append(Row(name, process.seconds, beside, other.seconds, "s", HALF))
            rows.append(Row(f"peak memory, {T} tokens, {recipe}", _mib(process), beside, _mib(other), "MiB", HALF))
    if not theirs:
        rows = [
            Row(f"cold start, {T} tokens, {recipe}", p.seconds, "the block alone", p.said["seconds"], "s")
            for recipe, p in ours.items()
        ]
    return rows


def growth(setting: Setting) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Yield the block's time per token, beside that of 512 tokens, and its peak memory, beside 4 GiB."""
    for recipe in ("float32", "deepseek-fp8"):
        yield recipe, lambda recipe=recipe: _growth(setting, recipe)


def _growth(setting: Setting, recipe: str) -> list[Row]:
    lengths = (16, 64) if setting.quick else (128, 512, 2048, 8192)
    found = {T: processes([["block", str(setting.checkpoint), recipe, str(T)]], 1)[0] for T in lengths}
    base = 1e3 * found[lengths[1]].said["seconds"] / lengths[1]
    rows = []
    for T, process in found.items():
        per_token = 1e3 * process.said["seconds"] / T
        rows.append(Row(f"a token of {T}, {recipe}", per_token, f"a token of {lengths[1]}", base, "ms"))
        rows.append(Row(f"peak memory, {T} tokens, {recipe}", _mib(process), "4 GiB", LIMIT, "MiB", 1.0))
    return rows


def _mib(process: Process) -> float:
    return process.peak / (1 << 20)
