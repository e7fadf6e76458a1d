"""Whatever a command line says, a command succeeds silently on stderr, or says in one line what is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness import target
from hypothesis import strategies as st
from material import a_trace, checkpoint, scratch, settings, trace_file

from blocklab.block.steps import STEPS
from blocklab.cli import main
from blocklab.store.safetensors_file import open_safetensors

NUMBERS = ("0", "1", "2", "3", "-1", "x", "", " 1", "1.5", "1e3", "nan", "²", "٣", "1_0", "9" * 30, "9" * 400,
           "9" * 5000, "-" + "9" * 30, "2147483648", "0x10", "\ud800", "00")  # fmt: skip
LISTS = ("0,1,2", "0", "1000", "7,7,7", "2,1,0", "0,1", ",", "1,,2", "0,1,x", "2147483647", "2147483646,2,3",
         "-1,0,1", "9" * 5000, "1," * 2000 + "1", "0, 1, 2", "255,256,0")  # fmt: skip
GLOBS = ("*", "q*", "resid_*,mlp_*", "*.in.*", "pattern", "", ",", "[", "[!a]*", "nothing", "**", "*" * 60 + "z", "?")
RECIPES = ("float64", "float32", "bfloat16", "deepseek-bf16", "deepseek-fp8", "hopper-fp8", "", "nope", "float32,",
           "deepseek-fp8,group=7", "deepseek-fp8,group=0", "deepseek-fp8,group=1e3", "deepseek-fp8,group=" + "9" * 30,
           "deepseek-fp8,amax_floor=1e-320", "deepseek-fp8,amax_floor=1e29", "deepseek-fp8,amax_floor=nan",
           "deepseek-fp8,latent_norm_eps=1e-320", "float32,latent_norm_eps=1e29", "deepseek-fp8,scale=ue8m0",
           "deepseek-fp8,granularity=tensor", "deepseek-fp8,granularity=token,scale_order=folded", "float32,name=1",
           "deepseek-fp8,promote=none", "hopper-fp8,promote=1", "hopper-fp8,promote=" + "9" * 30, "float32,x=1",
           "deepseek-fp8,activation_format=e5m2", "deepseek-fp8,quotient=reciprocal", "float32,fp8_linear=true",
           "float64,fp8_linear=true", "float16", "float32,storage=float16", "float32,storage=[", "hopper-fp8,=,",
           "bfloat16,work=float64,accumulate=hopper", "deepseek-fp8,group=\ud800")  # fmt: skip
TEXTS = ("", "a", "hello", "é😀", "\udcff\udc80", "\n\x1b[0m", "x" * 300)
INDEXES = (
    "0,0,0",
    "0,2,3",
    "1,2,23",
    "0,0,0,0",
    "0",
    "",
    "-1,0,0",
    "0,0,99",
    "9,9,9",
    "x",
    "0,0," + "9" * 30,
    "1.5,0,0",
)


ABOUT = (
    {"layer": "x"}, {"layer": "9" * 5000}, {"seed": "x"}, {"seed": "-1"}, {"seed": "9" * 5000}, {"preset": "nope"},
    {"checkpoint": "/nope"}, {"checkpoint": "\0"}, {"config": "{}"}, {"config": "[]"}, {"config": "null"},
    {"config": '{"hidden_size": "x"}'}, {"positions": "[1"}, {"positions": "{}"}, {"positions": "[[1], [1, 2]]"},
    {"positions": "[1e999, 0, 1]"}, {"positions": '["a", 0, 1]'}, {"positions": "[" * 9999}, {"recipe": "nope"},
    {"attention": "absorb"}, {"attention": "x"}, {"labels": "[1, 2, 3]"},
    {"labels": '["\\u0000", "\\ud83d\\ude00", "$x$"]'},
    {"labels": "[" * 9999}, {"config": "[" * 9999}, {"positions": "[" + "9" * 5000 + ", 0, 1]"}, {"recipe": "\n\u202e"},
)  # fmt: skip
"""What a trace may wrongly say about its run."""

FILLS = (np.nan, np.inf, -np.inf, 3e38, 1e-42, 0.0)


@functools.cache
def odd_traces() -> tuple[str, ...]:
    """Return traces that are well formed, but say odd things about themselves or hold odd values."""
    made = a_trace()
    paths = []
    for number, about in enumerate(ABOUT):
        paths.append(scratch() / f"about-{number}.safetensors")
        where = {"checkpoint": str(checkpoint())} if "checkpoint" not in about else {}
        dataclasses.replace(made, metadata={**made.metadata, **where, **about}).save(paths[-1])
    for number, value in enumerate(FILLS):
        paths.append(scratch() / f"values-{number}.safetensors")
        arrays = {n: np.full_like(a, value) if a.dtype.kind == "f" else a for n, a in made.arrays.items()}
        where = {"checkpoint": str(checkpoint()), "layer": "0", "seed": "0"}
        dataclasses.replace(made, arrays=arrays, metadata={**made.metadata, **where}).save(paths[-1])
    return tuple(map(str, paths))


@functools.cache
def inputs() -> tuple[str, ...]:
    """Return paths of all kinds: what commands read, and what they should not."""
    folder = scratch() / "in puts é\n"
    folder.mkdir(exist_ok=True)
    shutil.copy(trace_file(), folder / "a\ntrace.safetensors")
    os.mkfifo(folder / "fifo") if not (folder / "fifo").exists() else None
    shutil.copy(trace_file("naive", ".npz"), scratch() / "a.npz")
    for ending in (".npz", ".npy", ".safetensors.index.json"):
        name = scratch() / f"fifo{ending}"
        os.mkfifo(name) if not name.exists() else None
    config_is_a_pipe = scratch() / "pipe"
    if not config_is_a_pipe.exists():
        shutil.copytree(checkpoint("fp8", 2), config_is_a_pipe)
        (config_is_a_pipe / "config.json").unlink()
        os.mkfifo(config_is_a_pipe / "config.json")
        (config_is_a_pipe / "model.safetensors.index.json").unlink()
        os.mkfifo(config_is_a_pipe / "model.safetensors.index.json")
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "text.safetensors").write_text("hello\n")
    (folder / "loop").symlink_to("loop") if not (folder / "loop").is_symlink() else None
    (folder / "link").symlink_to(trace_file()) if not (folder / "link").is_symlink() else None
    (scratch() / "dir.npz").mkdir(exist_ok=True)
    (scratch() / "dir.safetensors").mkdir(exist_ok=True)
    (scratch() / "settings.json").write_text(settings())
    bare = scratch() / "bare"
    bare.mkdir(exist_ok=True)
    odd = os.fsdecode(os.fsencode(scratch()) + b"/\xff\xfe.safetensors")
    shutil.copy(trace_file(), odd)
    made = (trace_file(), trace_file("absorb"), trace_file("naive", ".npz"), trace_file("naive", ".npy"),
            checkpoint(), checkpoint("bfloat16", 1), checkpoint("fp8", 2), checkpoint() / "model.safetensors",
            config_is_a_pipe, bare, scratch() / "settings.json", scratch() / "dir.npz", scratch() / "dir.safetensors",
            *(folder / n for n in ("a\ntrace.safetensors", "fifo", "empty.safetensors", "text.safetensors", "loop",
                                   "link", "missing", "empty.safetensors/below")),
            *(scratch() / f"fifo{e}" for e in (".npz", ".npy")))  # fmt: skip
    more = ("", ".", "/", "/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", "/proc/self/mem", "x" * 300,
            "x/" * 3000, "\x1b]0;title\x07", "-", "--", odd)  # fmt: skip
    return (*map(str, made), *more, *odd_traces())


@functools.cache
def outputs() -> tuple[str, ...]:
    """Return paths to write to, in a folder that is emptied before each case."""
    folder = scratch() / "out"
    names = ("a.png", "a.svg", "a.html", "a.safetensors", "a.csv", "a", "no/such/folder.png", "é \n.svg",
             "x" * 250 + ".png", "x" * 300 + ".svg", "\ud800.png", os.fsdecode(b"\xff.png"),
             os.fsdecode(b"\xff"))  # fmt: skip
    return (*(f"{folder}/{name}" for name in names), str(folder), "/dev/null", "/dev/full", "", "/proc/x.png",
            f"{folder}/old.safetensors", f"{folder}/old.png")  # fmt: skip


def option(name: str, values: tuple[str, ...] | Callable[[], tuple[str, ...]]) -> st.SearchStrategy[list[str]]:
    """Return a strategy of the option with one of the values, made when they are wanted."""
    given = st.deferred(lambda: st.sampled_from(values() if callable(values) else values))
    return given.map(lambda value: [f"{name}={value}"] if name.startswith("-") else [value])


flag = st.sampled_from
MODEL = (
    option("--preset", ("kimi-k2-small", "nope", "")),
    option("--checkpoint", inputs),
    option("--checkpoint", lambda: (str(checkpoint()), str(checkpoint("bfloat16", 1)))),
    option("--layer", NUMBERS),
    option("--seed", NUMBERS),
)
INPUT = (
    option("--input", inputs),
    option("--token-ids", LISTS),
    option("--text", TEXTS),
    option("--batch", NUMBERS),
    option("--tokens", (*NUMBERS[:6], "9" * 30, "1000000")),
    option("--positions", LISTS),
)
RECIPE = (option("--recipe", RECIPES), option("--attention", ("naive", "absorb", "x")))
STEPS_OR_NOT = (*STEPS, "q_latent.in.codes", "nope", "")
COMMANDS = {
    "run": (
        *MODEL, *INPUT, *RECIPE, option("--steps", GLOBS), option("--trace", outputs), option("--output", outputs),
        flag((["--json"], ["--digest"], ["--device=gpu"])),
    ),
    "params": (option("--preset", ("kimi-k2", "deepseek-v3", "x")), option("--checkpoint", inputs),
               option("--layer", NUMBERS), flag((["--json"], ["--cache"]))),
    "synth": (option("dir", outputs), option("--dtype", ("fp8", "bfloat16", "x")), option("--shards", NUMBERS[:6]),
              option("--seed", NUMBERS)),
    "step": (option("--trace", inputs), option("--steps", GLOBS), option("--token", NUMBERS), *MODEL, *INPUT, *RECIPE),
    "explain": (option("step", STEPS_OR_NOT), option("index", INDEXES), option("--trace", inputs), flag((["--json"],)),
                *MODEL, *INPUT, *RECIPE),
    "plot": (option("trace", inputs), option("step", STEPS_OR_NOT), option("--output", outputs),
             option("--kind", ("heatmap", "channels", "fp8", "attention", "", "x", "waterfall", "scales")),
             option("--against", inputs), option("--batch", NUMBERS), option("--head", NUMBERS),
             option("--token", NUMBERS), *MODEL),
    "explore": (option("--output", outputs), option("--trace", inputs), option("--against", inputs),
                option("--reference", (*RECIPES, "none")), *MODEL, *INPUT, *RECIPE),
    "sweep": (option("--recipe", RECIPES), option("--seeds", LISTS[:-4]), option("--table", outputs),
              option("--vary", ("group=7,64", "group=0", "x=1", "=", "group=", "norm=once,twice")),
              option("--tokens", ("1", "3", "1,2", "0", "", "x", "9" * 30)),
              option("-o", outputs).map(lambda given: ["-o", given[0][3:]]), option("--steps", GLOBS),
              option("--workers", ("1", "0", "-1", "x")), option("--input", inputs), option("--positions", LISTS),
              option("--batch", NUMBERS[:6]), flag((["--json"],)), *MODEL[:4]),
    "conformance": (flag((["check"], ["write"], ["x"], [])), option("file", inputs), flag((["--json"],))),
    "validate": (option("dump", inputs), *MODEL, *RECIPE, flag((["--json"],))),
    "compare": (option("a", inputs), option("b", inputs), flag((["--json"],))),
    "mistakes": (flag((["--json"], ["x"])),),
}  # fmt: skip
POSITIONAL = {"synth": 1, "explain": 2, "plot": 3, "conformance": 2, "validate": 1, "compare": 2}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Draw a command with its operands, mostly, and up to four options."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    options = COMMANDS[name]
    needed = POSITIONAL.get(name, 0)
    words = [word for part in options[:needed] for word in draw(part)]
    for _ in range(draw(st.integers(0, 4))):
        words += draw(st.sampled_from(options[needed:] or options).flatmap(lambda part: part))
    if draw(st.integers(0, 9)) == 0 and words:
        words.pop(draw(st.integers(0, len(words) - 1)))
    return [name, *words]


@functools.cache
def shared_files() -> dict[Path, tuple[bytes, int]]:
    """Return the content and the time of what all targets read, and a command may be told to write."""
    inputs()
    folders = [checkpoint(), checkpoint("bfloat16", 1), checkpoint("fp8", 2)]
    traces = [trace_file(), trace_file("absorb"), trace_file("naive", ".npz"), trace_file("naive", ".npy")]
    found = [*traces, *(file for folder in folders for file in folder.iterdir())]
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in found}


def restore() -> None:
    """Put back what a command has overwritten, as it was told to."""
    for file, (content, written) in shared_files().items():
        if not file.is_file() or file.stat().st_mtime_ns != written:
            file.write_bytes(content)
            os.utime(file, ns=(written, written))


@target(command_lines(), quick=40)
def test_command_lines(words: list[str]) -> str | None:
    shared_files()
    try:
        return check_command(words)
    finally:
        restore()


def check_command(words: list[str]) -> str | None:
    folder = scratch() / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for ending in ("png", "safetensors"):
        (folder / f"old.{ending}").write_bytes(b"old")
    code, _, err = in_process(words)
    assert code in (0, 1, 2), (code, err)
    assert "Traceback" not in err
    assert "out of memory" not in err
    lines = err.splitlines()
    assert len(lines) == (code == 2), err
    assert len(err) < 3000
    assert not list(folder.rglob("*.part"))
    if code == 2:
        assert (folder / "old.png").read_bytes()[-8:] in (b"old", b"IEND\xaeB`\x82")
        if (folder / "old.safetensors").read_bytes() != b"old":  # written before another file failed
            open_safetensors(folder / "old.safetensors")
    return err if code == 2 else None


def _encodable(words: list[str]) -> list[str]:
    """Replace what no operating system passes on."""
    return [word.replace("\ud800", "?") for word in words]


def in_process(words: list[str]) -> tuple[int, str, str]:
    """Run a command here, its output strict UTF-8 as in a terminal: exit code, stdout, stderr."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    before = Path.cwd()
    os.chdir(scratch())
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(_encodable(words))
            except SystemExit as stop:
                code = int(stop.code or 0)
    finally:
        os.chdir(before)
    texts = [stream.buffer.getvalue().decode("utf-8", "backslashreplace") for stream in (out, err)]  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


@pytest.fixture(autouse=True)
def closed_figures() -> object:
    """Forget matplotlib's figures."""
    yield
    import matplotlib.pyplot

    matplotlib.pyplot.close("all")
