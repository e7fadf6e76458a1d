"""The command line: `blocklab COMMAND`, the same as `python -m blocklab COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from blocklab import __version__
from blocklab.commands import COMMANDS
from blocklab.errors import InputError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_LONGEST = 1000
"""Characters of a message that are printed."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report wrong usage like any other bad input: one line, exit code 2."""
        raise InputError(f"{self.prog}: {message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print the help or the version; argparse would say nothing where it cannot."""
        (file or sys.stdout).write(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 good, 1 the check failed, 2 bad input."""
    _open_streams()
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files; an unknown setting would end the import of matplotlib
    with contextlib.suppress(ValueError):  # signals belong to the main thread
        signal.signal(signal.SIGTERM, _terminated)
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of a home folder that it cannot write
    try:
        try:
            options = _parser().parse_args(arguments)
            _refuse_nothing(options)
            with np.errstate(all="ignore"):  # the values that are shown tell of overflow and NaN
                code: int = options.run(options)
        finally:
            sys.stdout.flush()
        return code
    except InputError as error:
        return _fail(str(error))
    except MemoryError as error:
        return _fail(f"out of memory: {error or 'take fewer tokens or record fewer steps'}")
    except BrokenPipeError:
        _discard_output()
        return 0
    # A file's own errors are named where it is read or written; this is left for stdout, paths and the like.
    except OSError as error:
        _discard_output()
        where = error.filename if error.filename is not None else "output"
        return _fail(f"{where}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def _refuse_nothing(options: argparse.Namespace) -> None:
    """Refuse options without a value: empty ones, and `--option=--`, of which argparse (Python 3.11) makes a list."""
    for name, value in vars(options).items():
        if (value == [] and name != "vary") or (isinstance(value, list) and [] in value):
            raise InputError(f"--{name.replace('_', '-')}: expected a value; found --")
        if value == "" and name != "text":  # which says by itself what it needs
            raise InputError(f"{name.replace('_', '-')}: expected a value; found nothing")


def _fail(message: str, code: int = 2) -> int:
    """Say in one printable line what is wrong."""
    line = " ".join(message.split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    with contextlib.suppress(OSError):
        print(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...", file=sys.stderr, flush=True)
    return code


def _terminated(*_: object) -> NoReturn:
    """End as after Ctrl-C, so that no half file and no process is left."""
    raise SystemExit(128 + signal.SIGTERM)


def _open_streams() -> None:
    """Let output hold any character, and go nowhere where it is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Drop what is left in the buffer of stdout, which cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="blocklab", description="One Kimi K2 transformer block in numpy, step by step.")
    parser.add_argument("--version", action="version", version=f"blocklab {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for command in COMMANDS:
        summary = (command.__doc__ or "").strip().partition("\n")[0]  # python -OO leaves none
        name = command.__name__.rpartition(".")[2]
        sub = commands.add_parser(name, help=summary, description=summary)
        command.add_options(sub)
        sub.set_defaults(run=command.run)
    return parser
