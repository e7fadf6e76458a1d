"""Ctrl-C and a full disk in the middle of writing: one line, the right exit code, no half file, the old one intact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from blocklab.cli import main

COMMANDS = {
    "synth": ("synth", "new"),
    "synth in shards": ("synth", "new", "--shards=3", "--dtype=bfloat16"),
    "run --trace": ("run", "--tokens=2", "--trace=old"),
    "run --output": ("run", "--tokens=300", "--steps=resid_post", "--output=old"),
    "explore": ("explore", "--tokens=2", "-o", "old"),
    "plot": ("plot", "trace.safetensors", "attn_norm", "-o", "old.png"),
    "figures": ("figures", "-o", "new"),
    "sweep --table": ("sweep", "--tokens=1", "--steps=*", "--recipe=float32", "--table=old"),
    "sweep --output": ("sweep", "--tokens=1", "--recipe=float32", "-o", "old.svg"),
    "conformance write": ("conformance", "write", "old"),
}
"""`old` is a file that is there; `new` is not."""

PAUSE = """
import os, sys, time
def wait(_):
    os.write(1, b"writing")
    time.sleep(60)
os.fsync = wait
"""
FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("old", "old.png", "old.svg"):
        (tmp_path / name).write_bytes(b"old")
    assert main(["run", "--tokens=2", f"--trace={tmp_path}/trace.safetensors"]) == 0
    return tmp_path


def start(setup: str, words: tuple[str, ...], folder: Path) -> subprocess.Popen[bytes]:
    code = f"{setup}\nfrom blocklab.cli import main\nsys.exit(main(sys.argv[1:]))"
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=folder, stdout=pipe, stderr=pipe, start_new_session=True
    )


def check_untouched(folder: Path, words: tuple[str, ...]) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")} - {"new"}
    assert names == {"old", "old.png", "old.svg", "trace.safetensors"}
    assert all((folder / name).read_bytes() == b"old" for name in ("old", "old.png", "old.svg"))
    assert not (folder / "new").exists() or words[0] == "figures"


@pytest.mark.parametrize("kind", COMMANDS)
def test_ctrl_c_while_writing(folder: Path, kind: str) -> None:
    process = start_writing(folder, kind)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"interrupted\n")
    check_untouched(folder, COMMANDS[kind])


@pytest.mark.parametrize("kind", ["synth", "run --trace"])
def test_terminated_while_writing(folder: Path, kind: str) -> None:
    process = start_writing(folder, kind)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, b"")
    check_untouched(folder, COMMANDS[kind])


def start_writing(folder: Path, kind: str) -> subprocess.Popen[bytes]:
    process = start(PAUSE, COMMANDS[kind], folder)
    assert process.stdout is not None
    seen = b""
    while not seen.endswith(b"writing"):
        byte = process.stdout.read(1)
        assert byte, process.communicate()
        seen += byte
    assert list(folder.rglob("*.part"))
    return process


@pytest.mark.parametrize("kind", COMMANDS)
def test_full_disk_while_writing(folder: Path, kind: str) -> None:
    process = start(FULL, COMMANDS[kind], folder)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.decode().count("\n") == 1
    assert b": cannot be written: File too large" in err
    assert err.startswith((b"old", b"new/"))
    check_untouched(folder, COMMANDS[kind])


def test_ctrl_c_while_workers_compute(folder: Path) -> None:
    words = ("sweep", "--recipe=hopper-fp8", "--tokens=64", f"--seeds={','.join(map(str, range(40)))}", "--workers=2")
    process = start("import sys", (*words, "--table=old"), folder)
    assert process.stdout is not None
    while b"resid_post" not in process.stdout.readline():
        pass
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"interrupted\n")
    assert time.monotonic() - begin < 20
    check_untouched(folder, words)


@pytest.mark.parametrize("wanted", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.5])
def test_workers_that_only_start(folder: Path, seconds: float, wanted: signal.Signals) -> None:
    """A worker that an interrupt meets before it has work must not leave the others waiting for ever."""
    process = start("import sys", ("sweep", "--tokens=64", "--workers=2"), folder)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"recipe")
    time.sleep(seconds)
    os.killpg(process.pid, wanted)
    _, err = process.communicate(timeout=20)  # ends when the last process has closed its stderr
    expected = (130, b"interrupted\n") if wanted == signal.SIGINT else (143, b"")
    assert (process.returncode, err) == expected


def test_error_that_cannot_be_said() -> None:
    done = subprocess.run(f"{sys.executable} -m blocklab run --tokens x 2> /dev/full", shell=True)
    assert done.returncode == 2


@pytest.mark.parametrize("environment", [{"MPLBACKEND": "none such"}, {"PYTHONOPTIMIZE": "2"}])
def test_settings_of_others(folder: Path, environment: dict[str, str]) -> None:
    words = ["plot", "trace.safetensors", "attn_norm", "-o", "old.png"]
    command = [sys.executable, "-m", "blocklab", *words]
    done = subprocess.run(command, env=os.environ | environment, cwd=folder, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_that_is_full() -> None:
    done = subprocess.run(
        f"{sys.executable} -m blocklab run --tokens 2 > /dev/full", shell=True, stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (2, b"output: No space left on device\n")


@pytest.mark.parametrize("words", ["--version", "--help", "run --help"])
def test_help_that_cannot_be_said(words: str) -> None:
    done = subprocess.run(f"{sys.executable} -m blocklab {words} > /dev/full", shell=True, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, b"output: No space left on device\n")


def test_processes_that_cannot_be_started() -> None:
    words = "ulimit -n 12; exec {} -m blocklab sweep --workers 2 --tokens 2 --preset kimi-k2-small"
    done = subprocess.run(words.format(sys.executable), shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (2, b"--workers 2: processes cannot be started: Too many open files\n")


@pytest.mark.parametrize(("words", "code"), [("run --tokens 2", 0), ("run --steps nope", 2)])
def test_streams_that_are_closed(words: str, code: int) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&- <&-"):
        done = subprocess.run(f"{sys.executable} -m blocklab {words} {closed}", shell=True, capture_output=True)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
@pytest.mark.parametrize("words", [("run", "--text", "é 😀", "--steps=pattern"), ("step", "--tokens=2", "--steps=q*")])
def test_terminal_that_cannot_show_every_character(environment: dict[str, str], words: tuple[str, ...]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run([sys.executable, "-m", "blocklab", *words], env=clean | environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout


def test_output_to_a_pipe() -> None:
    words = "run --tokens 2 --steps q --output /dev/stderr"
    done = subprocess.run(f"{sys.executable} -m blocklab {words}", shell=True, capture_output=True)
    assert done.returncode == 0
    size = int.from_bytes(done.stderr[:8], "little")
    header = json.loads(done.stderr[8 : 8 + size])
    assert header["output"]["shape"] == [1, 2, 640]
    assert len(done.stderr) == 8 + size + 2 * 2 * 640  # bfloat16


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe\n.safetensors")
    command = [sys.executable, "-m", "blocklab", "run", "--tokens=2"]
    done = subprocess.run([*command, f"--output={tmp_path}/{name}"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.listdir(tmp_path) == [name]
    done = subprocess.run([*command[:-1], f"--input={tmp_path}/x{name}"], capture_output=True)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_home_that_cannot_be_written(folder: Path) -> None:
    lost = {name: value for name, value in os.environ.items() if not name.startswith(("MPL", "XDG"))}
    words = ["plot", "trace.safetensors", "attn_norm", "-o", "old.png"]
    done = subprocess.run(
        [sys.executable, "-m", "blocklab", *words],
        env=lost | {"HOME": "/proc/none"},
        cwd=folder,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "path", ["x" * 300, "x/" * 3000, "loop", "old/below", "folder", "folder.npz", "fifo", "/dev/zero", "/dev/null"]
)
def test_paths_that_are_no_files(
    folder: Path, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    os.mkfifo("fifo")
    Path("loop").symlink_to("loop")
    for name in ("folder", "folder.npz"):
        Path(name).mkdir()
    np.savez("x.npz", input=np.zeros((1, 2, 512), np.float32))
    for words in (
        ("run", f"--input={path}"),
        ("run", f"--checkpoint={path}"),
        ("params", f"--checkpoint={path}"),
        ("step", f"--trace={path}"),
        ("explore", f"--trace={path}"),
        ("plot", path, "attn_norm", "-o", "old.png"),
        ("conformance", "check", path),
        ("sweep", f"--input={path}"),
        ("validate", path, "--preset=kimi-k2-small"),
        ("compare", path, "trace.safetensors"),
    ):
        assert main(words) == 2, words
        err = capsys.readouterr().err
        assert err.count("\n") == 1
