"""Fuzzing: a target is a check and the strategy of its cases; every case runs under a deadline and a memory limit.

`pytest` runs a few seconds of each target, always the same cases; `pytest -m slow tests/fuzz` ten thousand and more;
FUZZ_MINUTES=60 shares an hour among the targets that are run, with new cases every time.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
from hypothesis.strategies import SearchStrategy

from blocklab.errors import InputError

SECONDS, BYTES = 20, 1 << 30
"""What one case may take: time, and memory beyond what the process holds already."""

COUNTS: dict[str, Counter[str]] = {}
"""Target -> cases, and how many of them were refused."""

_MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))
_ROUND = 1000
_chosen: set[str] = set()


class Hang(BaseException):
    """A case took too long; no `except Exception` may swallow it."""


@contextmanager
def limits(seconds: int = SECONDS, extra: int = BYTES) -> Iterator[None]:
    """Turn a hang into `Hang` and a huge allocation into MemoryError; a hang inside C ends the process."""

    def late(*_: object) -> None:
        raise Hang(f"still running after {seconds} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as statm:
        held = int(statm.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(3 * seconds, exit=True)
    resource.setrlimit(resource.RLIMIT_AS, (held + extra, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(call: Callable[[], Any]) -> str | None:
    """Return the one line with which `call` refuses its input, or None where it succeeds; all else is raised."""
    try:
        call()
    except InputError as error:
        text = str(error)
        assert text.strip(), "an empty message"
        assert len(text.splitlines()) == 1, f"more than one line: {text!r}"
        assert len(text) < 2000, f"{len(text)} characters: {text[:200]!r}"
        text.encode()
        return text
    return None


def target(strategy: SearchStrategy[Any], quick: int, slow: int = 10_000) -> Callable[[Callable[[Any], Any]], Any]:
    """Make a pytest test of a check; a check that returns a text says that the case was refused."""

    def wrap(check: Callable[[Any], Any]) -> Any:
        name = check.__name__.removeprefix("test_")

        @pytest.mark.parametrize(
            "cases", [pytest.param(quick, id="quick"), pytest.param(slow, id="slow", marks=pytest.mark.slow)]
        )
        def test(cases: int) -> None:
            if cases == slow and _MINUTES:
                _run_for(60 * _MINUTES / len(_chosen), name, check, strategy)
            else:
                _run(name, check, strategy, cases, derandomize=True)

        test.fuzz_target = name  # type: ignore[attr-defined]
        return test

    return wrap


def choose(names: set[str]) -> None:
    """Say which targets share FUZZ_MINUTES."""
    _chosen.update(names)


def _run_for(
    seconds: float, name: str, check: Callable[[Any], Any], strategy: SearchStrategy[Any], cases: int = _ROUND
) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _run(name, check, strategy, cases, derandomize=False, end=end)


def _run(
    name: str,
    check: Callable[[Any], Any],
    strategy: SearchStrategy[Any],
    cases: int,
    derandomize: bool,
    end: float = float("inf"),
) -> None:
    counts = COUNTS.setdefault(name, Counter())

    def once(case: Any) -> None:
        if time.monotonic() > end:
            return
        counts["cases"] += 1
        with limits(), warnings.catch_warnings():
            warnings.simplefilter("error")
            counts["refused"] += isinstance(check(case), str)

    once.__name__ = name
    settings = hypothesis.settings(
        max_examples=cases,
        derandomize=derandomize,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        print_blob=False,
    )
    settings(hypothesis.given(strategy)(once))()
