"""Sweeps: the same numbers by any executor, in the order of the cases, failures in their rows."""

import csv
import json
import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from blocklab.check import sweep as module
from blocklab.check.sweep import Case, Outcome, grid, measure, relative_error, sweep, table, write_table
from blocklab.cli import main
from blocklab.errors import InputError
from blocklab.numerics import RECIPES, quantize
from blocklab.numerics.linears import quantize_input
from blocklab.show.sweep_plot import plot_sweep
from goldens import FIXTURES

CHECKPOINT = str(FIXTURES / "checkpoints" / "kimi-fp8")
GRID = {"recipes": ["bfloat16", "deepseek-fp8"], "vary": {"amax_floor": ["1e-4", "1e-10"]}, "checkpoint": CHECKPOINT}


def test_a_grid_has_all_combinations_with_the_recipes_of_one_input_together():
    cases = grid(["bfloat16"], {"group": [32, 64], "quotient": ["divide"]}, seeds=[3, 4], lengths=[8, 9], batch=2)
    assert [(c.seed, c.tokens, c.recipe) for c in cases[:3]] == [
        (3, 8, "bfloat16,group=32,quotient=divide"),
        (3, 8, "bfloat16,group=64,quotient=divide"),
        (3, 9, "bfloat16,group=32,quotient=divide"),
    ]
    assert len(cases) == 8
    assert all(c.batch == 2 for c in cases)
    with pytest.raises(InputError, match="has no option grup"):
        grid(["bfloat16"], {"grup": [32]})


def test_errors_are_those_of_the_recipes():
    outcomes = sweep(grid(["float64", "float32", "bfloat16", "deepseek-fp8"], checkpoint=CHECKPOINT))
    errors = {o.case.recipe: o.errors["resid_post"] for o in outcomes}
    assert errors["float64"] == 0
    assert 1e-9 < errors["float32"] < 1e-6
    assert 1e-3 < errors["bfloat16"] < 1e-2
    assert 2 * errors["bfloat16"] < errors["deepseek-fp8"] < 0.1


def test_smaller_groups_err_less():
    outcomes = sweep(grid(vary={"group": [32, 256]}, seeds=[0]), steps="attn_out,resid_post")
    fine, coarse = (o.errors for o in outcomes)
    assert list(fine) == ["attn_out", "resid_post"]
    assert 1.3 * fine["resid_post"] < coarse["resid_post"]


def test_granularities_share_scales_as_they_say():
    x = np.random.default_rng(0).standard_normal((2, 3, 200)).astype(np.float32)
    scales = {}
    for granularity, block in (("group", (1, 128)), ("token", (1, None)), ("tensor", (None, None))):
        codes, scales[granularity] = quantize_input(x, RECIPES["deepseek-fp8"].replace(granularity=granularity))
        np.testing.assert_array_equal(codes, quantize(x.reshape(6, 200), block=block)[0].reshape(x.shape))
    assert {name: (s.shape, np.unique(s).size) for name, s in scales.items()} == {
        "group": ((2, 3, 2), 12),
        "token": ((2, 3, 2), 6),
        "tensor": ((2, 3, 2), 1),
    }
    e5m2, _ = quantize_input(x, RECIPES["deepseek-fp8"].replace(activation_format="e5m2"))
    np.testing.assert_array_equal(e5m2, quantize(x, "e5m2")[0])


def test_granularities_and_formats_are_swept():
    vary = {"granularity": ["group", "token", "tensor"], "activation_format": ["e4m3fn", "e5m2"]}
    errors = {o.case.recipe: o.errors["attn_out"] for o in sweep(grid(vary=vary), steps="attn_out")}
    assert len(errors) == 6
    for four, three in zip(list(errors)[::2], list(errors)[1::2], strict=True):
        assert 1.5 * errors[four] < errors[three]  # one bit of significand less
    assert min(errors, key=errors.__getitem__) == "deepseek-fp8,granularity=group,activation_format=e4m3fn"


def test_one_scale_for_the_tensor_does_not_depend_on_what_is_listened_to(monkeypatch):
    monkeypatch.setattr("blocklab.block.tiling.TILE_TOKENS", 4)
    case = Case("deepseek-fp8,granularity=tensor", checkpoint=CHECKPOINT)
    alone, listening = measure(case), measure(case, "gate,resid_post")
    assert alone.errors["resid_post"] == listening.errors["resid_post"]


def test_relative_error_leaves_out_masked_scores():
    exact = np.array([3.0, 4.0, -np.inf])
    assert relative_error(np.array([3.0, 4.5, -np.inf]), exact) == pytest.approx(0.1)
    assert relative_error(np.zeros(2), np.zeros(2)) == 0
    assert relative_error(np.ones(2), np.zeros(2)) == np.inf


def numbers(outcomes):
    return [(o.case, o.errors, o.failure) for o in outcomes]


@pytest.fixture(scope="module")
def one_by_one():
    return numbers(sweep(grid(**GRID, lengths=[5, 6])))


def test_threads_give_the_same_and_open_the_block_once(one_by_one, monkeypatch):
    module._model.cache_clear()
    module._float64_run.cache_clear()
    opened = []
    real = module.open_model
    monkeypatch.setattr(module, "open_model", lambda *args: opened.append(args) or real(*args))
    with ThreadPoolExecutor(4) as pool:
        assert numbers(sweep(grid(**GRID, lengths=[5, 6]), pool)) == one_by_one
    assert len(opened) == 1
    assert module._float64_run.cache_info().misses == 2


def test_processes_give_the_same(one_by_one):
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert numbers(sweep(grid(**GRID, lengths=[5, 6]), pool)) == one_by_one


@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_gives_the_same(one_by_one):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert numbers(sweep(grid(**GRID, lengths=[5, 6]), client.get_executor())) == one_by_one


def test_a_case_that_fails_is_reported_in_its_place():
    cases = [Case(checkpoint=CHECKPOINT), Case(checkpoint="nowhere"), Case("bfloat16", checkpoint=CHECKPOINT, tokens=0)]
    seen = []
    outcomes = sweep(cases, report=seen.append)
    assert outcomes == seen
    assert [o.case for o in outcomes] == cases
    assert outcomes[0].failure is None
    assert "nowhere" in outcomes[1].failure
    assert "tokens must be at least 1" in outcomes[2].failure
    assert table(outcomes)[1]["error"] is None


class _Dying:
    """An executor whose worker dies on the second case."""

    def submit(self, work, case):
        from concurrent.futures import Future

        future = Future()
        if case.tokens == 2:
            future.set_exception(RuntimeError("the worker\ndied"))
        else:
            future.set_result(work(case))
        return future


def test_a_worker_that_dies_takes_only_its_case_along():
    outcomes = sweep(grid(checkpoint=CHECKPOINT, lengths=[1, 2, 3]), _Dying())
    assert [o.failure for o in outcomes] == [None, "RuntimeError: the worker died", None]


def test_steps_that_do_not_exist_are_refused_before_anything_runs():
    with pytest.raises(InputError, match="no step matches"):
        sweep([Case()], steps="resid_pots")
    assert (
        "float64 with naive attention computes none of them"
        in measure(Case(checkpoint=CHECKPOINT), steps="q.in.*").failure
    )


def test_the_table_is_written_whole(tmp_path):
    path = tmp_path / "t.csv"
    outcome = Outcome(Case("deepseek-fp8,group=32"), {"q": 0.5, "z": 0.25}, 1.23456789)
    write_table(path, [outcome, Outcome(Case(), failure='no, "really"')], ["group"])
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(r["step"], r["error"], r["group"], r["seconds"], r["failure"]) for r in rows] == [
        ("q", "0.5", "32", "1.2346", ""),
        ("z", "0.25", "32", "1.2346", ""),
        ("", "", "128", "0.0", 'no, "really"'),
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_the_command_writes_table_plot_and_json(tmp_path, capsys):
    csv_file, png = tmp_path / "t.csv", tmp_path / "p.png"
    common = [
        "sweep",
        "--checkpoint",
        CHECKPOINT,
        "--recipe",
        "deepseek-fp8",
        "--vary",
        "group=64,128",
        "--tokens",
        "4,5",
    ]
    assert main([*common, "--steps", "z,resid_post", "--table", str(csv_file), "-o", str(png)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["recipe", "seed", "tokens", "step", "error", "s"]
    assert out.count("deepseek-fp8,group=64") == 4
    assert len(csv_file.read_text().splitlines()) == 9
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert main([*common, "--json", "--workers", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [o["case"]["tokens"] for o in found] == [4, 4, 5, 5]
    assert all(0 < o["errors"]["resid_post"] < 0.1 for o in found)


@pytest.mark.parametrize("steps", ["*", "resid_*"])
def test_every_step_has_room_in_the_picture(tmp_path, steps):
    """With more steps than strokes, steps are the rows."""
    cases = grid(["float32", "bfloat16"], seeds=[0, 1], lengths=[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_sweep(sweep(cases, steps=steps), tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    assert "constrained" not in text
    rows = 27 if steps == "*" else 2
    assert text.count('<g id="ytick_') == rows


def test_a_file_that_has_changed_is_read_again(tmp_path):
    path = str(tmp_path / "x.npy")
    errors = []
    for seed in (0, 1):
        np.save(path, np.random.default_rng(seed).standard_normal((1, 3, 640)).astype(np.float32))
        errors.append(measure(Case("float32", input=path)).errors["resid_post"])
    assert max(errors) < 1e-5


def test_a_trace_brings_its_block_and_positions(tmp_path, capsys):
    trace = str(tmp_path / "trace.safetensors")
    assert main(["run", "--checkpoint", CHECKPOINT, "--positions", "1000", "--trace", trace]) == 0
    capsys.readouterr()
    assert main(["sweep", "--input", trace, "--recipe", "float32", "--json"]) == 0
    case = json.loads(capsys.readouterr().out)[0]["case"]
    assert case["checkpoint"] == CHECKPOINT
    assert case["positions"].startswith("1000,1001,")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--vary", "group"], 2, "expected OPTION=VALUE"),
        (["--vary", "group=0"], 2, "group must be"),
        (["--recipe", "fp9"], 2, "no recipe 'fp9'"),
        (["--seeds", "a"], 2, "invalid comma-separated integers"),
        (["-o", "p.txt"], 2, "ends in .png or .svg"),
        (["--workers", "0"], 2, "workers: expected 1 or more"),
        (["--steps", "resid"], 2, "no step matches"),
        (["--input", "x.npz", "--tokens", "3"], 2, "--input brings its own size"),
        (["--vary", "group=32", "--vary", "group=64"], 2, "--vary group=64: expected group once"),
        (["--table", "p.png", "-o", "p.png"], 2, "expected a file for each output"),
        (["--checkpoint", "nowhere", "--recipe", "float32"], 2, "nowhere: no such file or folder"),
        (["--checkpoint", CHECKPOINT, "--layer", "7"], 2, "layer 7: expected"),
        (["--layer", "1"], 2, "--layer is for a checkpoint"),
        (["--input", "nowhere.npz"], 2, "nowhere.npz: cannot be read"),
        (["--input", __file__], 2, "expected safetensors"),
        (["--tokens", "1000000000", "--recipe", "float32"], 1, ""),
        (["--tokens", "1000000000", "-o", "p.png"], 2, "no case of the sweep was measured"),
    ],
)
def test_wrong_options_are_told_from_cases_that_fail(options, code, message, capsys):
    assert main(["sweep", *options]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_the_relative_error_of_values_of_any_size(size):
    exact = np.array([3.0, 4.0]) * size
    assert relative_error(exact + np.array([0, 5.0]) * size, exact) == pytest.approx(1.0)
    assert relative_error(exact * 0, exact * 0) == 0
    assert relative_error(exact, exact * 0) == np.inf
    assert np.isnan(relative_error(exact * np.nan, exact))
    assert relative_error(exact * np.inf, exact) == np.inf
