from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import harness
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(str(Path(tempfile.gettempdir()) / "blocklab-hypothesis"))


def pytest_collection_finish(session: pytest.Session) -> None:
    names = (getattr(getattr(item, "function", None), "fuzz_target", None) for item in session.items)
    harness.choose({name for name in names if name})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a finding as soon as there is one: the end of an hour may never come."""
    if report.failed and "FUZZ_MINUTES" in os.environ:
        print(f"\n{report.nodeid}\n{report.longreprtext}", file=sys.__stderr__, flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if harness.COUNTS and any(count["cases"] > 1000 for count in harness.COUNTS.values()):
        terminalreporter.section("fuzzing")
        for name, count in harness.COUNTS.items():
            terminalreporter.write_line(f"{name:24} {count['cases']:>9,} cases, {count['refused']:>9,} refused")
