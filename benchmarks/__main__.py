"""Print the table: `python -m benchmarks [--quick] [--checkpoint DIR] [NAME...]`."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.blocks import blocks
from benchmarks.conversions import conversions
from benchmarks.decoding import decoding
from benchmarks.linears import linears
from benchmarks.measure import Row, header, line
from benchmarks.setting import Setting
from benchmarks.whole import cold_start, growth
from blocklab.numerics.threads import worker_count
from blocklab.store.synth_checkpoint import write_synthetic

GROUPS: dict[str, Callable[[Setting], Iterator[tuple[str, Callable[[], list[Row]]]]]] = {
    "values": conversions,
    "linear": linears,
    "block": blocks,
    "token": decoding,
    "start": cold_start,
    "growth": growth,
}


def main() -> None:
    """Measure what is asked for, a row at a time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and memory beside peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(GROUPS)}, or a part: block.128, linear.*")
    parser.add_argument("--quick", action="store_true", help="small sizes: a check of the benchmarks, not of the speed")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="FP8, full size (default: a synthetic one)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name.split(".")[0] not in GROUPS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(GROUPS)}")
    with _checkpoint(options.checkpoint, options.quick) as folder:
        setting = Setting(folder, options.quick)
        print(f"{_machine()}\n\n{header()}", flush=True)
        for group, parts in GROUPS.items():
            if not _asked(group, options.names):
                continue
            for part, rows in parts(setting):
                if _asked(f"{group}.{part}", options.names):
                    for row in rows():
                        print(line(row), flush=True)


def _asked(name: str, patterns: list[str]) -> bool:
    """Whether a group or a part of one is among the patterns; a group is, too, for the sake of its parts."""
    if not patterns:
        return True
    if "." not in name:
        return any(pattern.split(".")[0] == name for pattern in patterns)
    return any(fnmatchcase(name, pattern if "." in pattern else f"{pattern}.*") for pattern in patterns)


@contextmanager
def _checkpoint(folder: Path | None, quick: bool) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        write_synthetic(Path(made) / "k2", "kimi-k2-small" if quick else "kimi-k2")
        yield Path(made) / "k2"


def _machine() -> str:
    """Return a line on when and where this is measured."""
    packages = []
    for name in ("numpy", "ml_dtypes", "torch", "transformers"):
        try:
            packages.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            packages.append(f"no {name}")
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    where = f"{date}, {_processor()}, {worker_count()} threads{load}"
    return f"{where}, Python {platform.python_version()}, {', '.join(packages)}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [text.partition(":")[2].strip() for text in lines if text.startswith("model name")]
    return f"{names[0]} x {len(names)}" if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
