"""The command line: `blocklab COMMAND`, the same as `python -m blocklab COMMAND`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from blocklab import __version__
from blocklab.commands import COMMANDS
from blocklab.errors import InputError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report wrong usage like any other bad input: one line, exit code 2."""
        raise InputError(f"{self.prog}: {message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 good, 1 the check failed, 2 bad input."""
    try:
        options = _parser().parse_args(arguments)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except InputError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"out of memory: {error or 'take fewer tokens or record fewer steps'}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="blocklab", description="One Kimi K2 transformer block in numpy, step by step.")
    parser.add_argument("--version", action="version", version=f"blocklab {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for command in COMMANDS:
        summary = (command.__doc__ or "").strip().splitlines()[0]
        name = command.__name__.rpartition(".")[2]
        sub = commands.add_parser(name, help=summary, description=summary)
        command.add_options(sub)
        sub.set_defaults(run=command.run)
    return parser
