"""Sweeps: the error of many recipes, options, seeds and lengths against float64, by any executor.

A case is a few plain values, so that it travels to threads, processes or a cluster; the worker that gets it opens
the block, and keeps it and the float64 run for the cases that follow.
"""

from __future__ import annotations

import csv
import io
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from blocklab.block.masks import causal_mask
from blocklab.block.rotary import rotary_table
from blocklab.errors import InputError
from blocklab.numerics import get_recipe
from blocklab.store.inputs import Model, Tokens, open_model, parse_positions, tokens_from_file, tokens_from_seed
from blocklab.store.statistics import root_mean_square
from blocklab.store.trace import Trace, select_steps, trace
from blocklab.store.writing import atomic_write

State: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Case:
    """One run to be measured; the names are those of the options of `blocklab run`.

    recipe     "NAME" or "NAME,option=value,..."
    seed       of synthetic weights and of the input
    input      a file of activations, such as a trace; then batch and tokens are its own
    positions  "1000" (counting up from there) or a list
    """

    recipe: str = "deepseek-fp8"
    attention: str = "naive"
    preset: str = "kimi-k2-small"
    checkpoint: str | None = None
    layer: int = 0
    seed: int = 0
    tokens: int = 16
    batch: int = 1
    input: str | None = None
    positions: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What was measured for a case.

    errors   step -> |ours - float64| / |float64|, norms over all values that float64 leaves finite
    seconds  the case took, the opening of weights and the float64 run included where they came first
    failure  why there are no errors, or None
    """

    case: Case
    errors: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    failure: str | None = None


def grid(
    recipes: Sequence[str] = ("deepseek-fp8",),
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: Sequence[int] = (0,),
    lengths: Sequence[int] = (16,),
    **fixed: Any,
) -> list[Case]:
    """Return all combinations as cases: for each seed and length all recipes, so that what they share is kept.

    vary   recipe option -> values, as in {"group": [32, 64, 128]}
    fixed  other fields of Case
    Errors: InputError for a recipe or an option that does not exist, and for anything given twice.
    """
    vary = vary or {}
    names = [
        ",".join([recipe, *(f"{option}={value}" for option, value in zip(vary, values, strict=True))])
        for recipe in recipes
        for values in itertools.product(*vary.values())
    ]
    for name in names:
        get_recipe(name)
    for what, values in (("recipe", names), ("seed", seeds), ("length", lengths)):
        if len(set(values)) < len(values):
            raise InputError(f"sweep: expected each {what} once; found {', '.join(map(str, values))}")
    return [Case(recipe=n, tokens=t, seed=s, **fixed) for s in seeds for t in lengths for n in names]


def sweep(
    cases: Iterable[Case],
    executor: Executor | None = None,
    steps: str = "resid_post",
    report: Callable[[Outcome], object] | None = None,
) -> list[Outcome]:
    """Measure every case and return the outcomes in the order of the cases; one that fails does not stop the rest.

    executor  anything with `submit` of concurrent.futures: threads, processes, the one of a dask.distributed
              client (`client.get_executor()`); None runs one case after the other
    steps     comma-separated globs of step names
    report    called with each outcome, in order, as soon as it is there
    """
    select_steps(steps)
    work = partial(measure, steps=steps)
    cases = list(cases)
    outcomes = []
    futures = [None] * len(cases) if executor is None else [executor.submit(work, case) for case in cases]
    try:
        for case, future in zip(cases, futures, strict=True):
            outcomes.append(work(case) if future is None else _result(case, future))
            if report is not None:
                report(outcomes[-1])
    finally:
        for future in futures:
            if future is not None:
                future.cancel()
    return outcomes


def measure(case: Case, steps: str = "resid_post") -> Outcome:
    """Run one case and its float64 counterpart and compare their steps."""
    start = time.perf_counter()
    try:
        with _LOCK:
            exact = _float64_run(replace(case, recipe="float64"), steps, _state(case.checkpoint, case.input))
        found = _run(case, steps)
        errors = {name: relative_error(found[name], exact[name]) for name in found if name in exact}
        if not errors:
            raise InputError(f"steps {steps}: float64 with {case.attention} attention computes none of them")
    # Whatever goes wrong in one case, out of memory too, belongs into its row of the table.
    except Exception as error:
        return Outcome(case, {}, time.perf_counter() - start, _one_line(error))
    return Outcome(case, errors, time.perf_counter() - start)


def relative_error(found: np.ndarray, exact: np.ndarray) -> float:
    """Return |found - exact| / |exact|; places where `exact` is not finite (masked scores) are left out."""
    finite = np.isfinite(exact)
    exact, found = np.where(finite, exact, 0.0), np.where(finite, found, 0.0).astype(np.float64)
    with np.errstate(all="ignore"):
        delta = found - exact
        if not np.isfinite(delta).all():
            return float(np.abs(delta).max())  # NaN where one is
        size, difference = float(root_mean_square(exact)), float(root_mean_square(delta))
        return difference / size if size else (0.0 if difference == 0 else float("inf"))


def table(outcomes: Iterable[Outcome], options: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return one row for each step of each case (and for each failure): the case, step, error, seconds, failure.

    options  recipe options that get a column of their own
    """
    rows = []
    for outcome in outcomes:
        case = {f.name: getattr(outcome.case, f.name) for f in fields(Case)}
        recipe = get_recipe(outcome.case.recipe)
        case |= {option: getattr(recipe, option) for option in options}
        rest = {"seconds": round(outcome.seconds, 4), "failure": outcome.failure}
        errors = outcome.errors.items() or [(None, None)]
        rows += [case | {"step": step, "error": error} | rest for step, error in errors]
    return rows


def write_table(path: str | Path, outcomes: Iterable[Outcome], options: Iterable[str] = ()) -> None:
    """Write the table as CSV, whole or not at all."""
    rows = table(outcomes, options)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(path, text.getvalue())


_LOCK = threading.Lock()
"""Held while weights are opened and float64 is run, so that threads do not do either twice."""


@lru_cache(maxsize=2)
def _model(preset: str, checkpoint: str | None, layer: int, seed: int, state: State) -> Model:
    return open_model(preset, checkpoint, layer, seed)


@lru_cache(maxsize=4)
def _float64_run(case: Case, steps: str, state: State) -> Trace:
    return _run(case, steps)


def _state(*paths: str | None) -> State:
    """Return sizes and times of files, and of those in folders: what was kept of others is not theirs."""
    found = [Path(path) for path in paths if path is not None]
    files = sorted({file for path in found for file in (path, *(path.glob("*") if path.is_dir() else ()))})
    return tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists())


def _run(case: Case, steps: str) -> Trace:
    recipe = get_recipe(case.recipe)
    model = _model(case.preset, case.checkpoint, case.layer, case.seed, _state(case.checkpoint))
    x = _tokens(model, case).x
    positions = parse_positions(case.positions, x.shape[1])
    R, M = rotary_table(model.config, positions, recipe.rotary_table), causal_mask(x.shape[1])
    return trace(x, R, M, model.weights, recipe, case.attention, steps=steps)


def _tokens(model: Model, case: Case) -> Tokens:
    if case.input is not None:
        return tokens_from_file(model.config, case.input)
    return tokens_from_seed(model, case.batch, case.tokens, case.seed)


def _result(case: Case, future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    # A worker that died, or a case that could not travel.
    except Exception as error:
        return Outcome(case, {}, 0.0, _one_line(error))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"
