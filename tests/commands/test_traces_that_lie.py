"""A trace may say anything about its run, and hold any values: commands say in one line what they cannot use."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from blocklab.block.config import BlockConfig
from blocklab.cli import main
from blocklab.show.example import cat
from blocklab.store.trace import Trace

EXPLAIN, SWEEP = ("explain", "pattern", "0,0,2,1", "--trace"), ("sweep", "--recipe=float32", "--input")
STEP = ("step", "--trace")
VALIDATE = ("validate", "--preset=kimi-k2-small", "--recipe=deepseek-fp8")


SMALL = json.dumps(dataclasses.asdict(BlockConfig.preset("kimi-k2-small")))


@pytest.fixture(scope="module")
def made() -> Trace:
    return cat().trace("deepseek-fp8")


@pytest.mark.parametrize(
    ("words", "name", "text", "message"),
    [
        (EXPLAIN, "layer", "x", "t.safetensors: metadata layer: expected a number from 0 on; found 'x'"),
        (EXPLAIN, "seed", "9" * 5000, "t.safetensors: metadata seed: expected a number from 0 on; found '999"),
        (EXPLAIN, "seed", "-1", "t.safetensors: metadata seed: expected a number from 0 on; found '-1'"),
        (EXPLAIN, "preset", "nope", "no preset 'nope'"),
        (EXPLAIN, "checkpoint", "/nope", "/nope: no such file or folder"),
        (SWEEP, "seed", "²", "t.safetensors: metadata seed: expected a number from 0 on; found '²'"),
        (SWEEP, "positions", "[1", "t.safetensors: metadata positions: expected JSON"),
        (SWEEP, "positions", "[" * 9999, "t.safetensors: metadata positions: expected JSON"),
        (SWEEP, "positions", '{"a": 1}', "metadata positions: expected integers from 0 on; found others"),
        (SWEEP, "positions", "[0]", "metadata positions: expected [23] or [1, 23]; found [1]"),
        (VALIDATE, "positions", '["a", 0]', "metadata positions: expected integers from 0 on; found others"),
        (VALIDATE, "positions", "[1e999, 0]", "metadata positions: expected integers from 0 on; found others"),
        (VALIDATE, "positions", "null", "metadata positions: expected integers from 0 on; found others"),
        (VALIDATE, "positions", "[1", "t.safetensors: metadata positions: expected JSON"),
        (VALIDATE, "positions", "[[1], [1, 2]]", "metadata positions: expected a list of integers; found [[1]"),
        (STEP, "positions", "[]", "t.safetensors: metadata positions: expected [23] or [1, 23]; found [0]"),
        (STEP, "positions", "[0]", "t.safetensors: metadata positions: expected [23] or [1, 23]; found [1]"),
        (STEP, "positions", "[NaN, 0]", "t.safetensors: metadata positions: expected integers from 0 on"),
        (STEP, "positions", "[" + "9" * 40 + "]", "t.safetensors: metadata positions: expected integers from 0 on"),
        (EXPLAIN, "positions", "[-3" + ", 0" * 22 + "]", "metadata positions: expected integers from 0 on"),
        (
            STEP,
            "config",
            '{"x": 1}',
            "t.safetensors: metadata config: expected the settings of a block; found {'x': 1}",
        ),
        (EXPLAIN, "config", SMALL.replace("640", "-1"), "metadata config: hidden_size must be positive; found -1"),
    ],
)
def test_what_is_told_of_the_run(
    made: Trace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    name: str,
    text: str,
    message: str,
) -> None:
    path = str(tmp_path / "t.safetensors")
    dataclasses.replace(made, metadata={**made.metadata, name: text}).save(path)
    assert main([*words, path]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert len(err) < 1100


@pytest.mark.parametrize("about", [{"labels": "[" * 9999}, {"config": "[" * 9999}, {"labels": '["\\u0000"]'}])
def test_what_cannot_be_read_is_left_out(made: Trace, tmp_path: Path, about: dict[str, str]) -> None:
    path = str(tmp_path / "t.safetensors")
    dataclasses.replace(made, metadata={**made.metadata, **about}).save(path)
    assert main(["step", "--trace", path, "--steps=pattern"]) == 0
    assert main(["plot", path, "attn_norm", "-o", str(tmp_path / "p.png")]) == 0


def test_labels_that_no_font_has(made: Trace, tmp_path: Path) -> None:
    path = str(tmp_path / "t.safetensors")
    T = made["resid_pre"].shape[1]
    labels = "[" + ", ".join(['"\\u0000"', '"\\ud83d\\ude00"', '"$x"'][n % 3] for n in range(T)) + "]"
    dataclasses.replace(made, metadata={**made.metadata, "labels": labels}).save(path)
    for words in (["attn_norm"], ["pattern", "--token=1"], ["pattern"]):
        assert main(["plot", path, *words, "-o", str(tmp_path / "p.png")]) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-42, np.float64(1e300)])
def test_values_of_any_size_are_shown_without_warnings(made: Trace, tmp_path: Path, value: float) -> None:
    path = str(tmp_path / "t.safetensors")
    some = ("resid_pre", "attn_norm", "q_latent", "attn_masked", "pattern", "z", "attn_out", "resid_mid")
    dtype = np.float64 if isinstance(value, np.float64) else np.float32
    arrays = {name: np.full_like(made[name], value, dtype) for name in some}
    dataclasses.replace(made, arrays=arrays).save(path)
    assert main(["step", "--trace", path]) == 0
    assert main(["explore", "--trace", path, "-o", str(tmp_path / "p.html")]) == 0
    assert main(["plot", path, "attn_norm", "-o", str(tmp_path / "p.png")]) == 0
    assert main(["plot", path, "pattern", "-o", str(tmp_path / "p.svg")]) == 0
    assert main(["explain", "pattern", "0,0,2,1", "--trace", path]) in (0, 1)
    assert main(["explain", "q_latent", "0,2,1", "--trace", path]) in (0, 1)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("q_latent", np.zeros((3, 4), np.float32), "q_latent: expected floats [B 1, T"),
        ("pattern", np.zeros((1, 8, 3, 3), np.float32), "pattern: expected floats [B 1, H 8, T"),
        ("resid_pre", np.zeros((), np.float32), "resid_pre: expected floats [B, T, D]; found float32[]"),
        ("resid_mid", np.zeros((1, 0, 512), np.float32), "resid_mid: expected floats"),
        ("q", np.ones((1, 3, 8, 96), np.complex64), "q: expected real numbers; found complex64"),
        ("gate.in.codes", np.zeros((0, 3, 24), np.uint8), "gate.in.codes: expected uint8 codes [.., K] beside scales"),
        ("gate.in.codes", np.zeros((), np.float32), "gate.in.codes: expected uint8 codes [.., K] beside scales"),
    ],
)
def test_steps_that_are_not_in_their_axes(
    made: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, array: np.ndarray, message: str
) -> None:
    path = str(tmp_path / "t.safetensors")
    dataclasses.replace(made, arrays={**made.arrays, name: array}).save(path)
    for words in (["step", "--trace", path], ["plot", path, "resid_post", "-o", str(tmp_path / "p.png")]):
        assert main(words) == 2
        assert message in capsys.readouterr().err


def test_values_near_the_end_of_float64(made: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t.safetensors")
    huge = np.full_like(made["q_latent"], 1e308, np.float64)
    dataclasses.replace(made, arrays={**made.arrays, "q_latent": huge}).save(path)
    assert main(["plot", path, "q_latent", "-o", str(tmp_path / "p.png")]) == 2
    assert "plot: q_latent has values up to 1e+308" in capsys.readouterr().err
    assert main(["explore", "--trace", path, "-o", str(tmp_path / "p.html")]) == 0
    assert main(["step", "--trace", path]) == 0
    assert main(["compare", path, path]) == 0
    assert main(["validate", path, "--preset=kimi-k2-small", "--recipe=deepseek-fp8"]) == 1


def test_labels_that_are_long_are_cut(made: Trace, tmp_path: Path) -> None:
    path = str(tmp_path / "t.safetensors")
    labels = json.dumps(["x" * 300] * made["resid_pre"].shape[1])
    dataclasses.replace(made, metadata={**made.metadata, "labels": labels}).save(path)
    assert main(["plot", path, "pattern", "-o", str(tmp_path / "p.png")]) == 0  # a warning would fail it
    assert main(["plot", path, "pattern", "--token=1", "-o", str(tmp_path / "p.png")]) == 0
