"""The one exception for input that cannot be used, and how its messages show what was found."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


class InputError(ValueError):
    """What the caller gave cannot be used; the message names it, what was expected and what was found.

    The command line prints the message as one line and exits with code 2.
    """


def shown(name: str) -> str:
    """Return a name as it may stand in a one-line message: printable, and cut where it is very long."""
    return _cut(name if name.isprintable() else ascii(name))


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return the first names as they may stand in a one-line message, or "nothing"."""
    return ", ".join(map(shown, islice(names, most))) or "nothing"


def brief(value: object) -> str:
    """Return a value as it may stand in a one-line message, cut where it is very long."""
    return _cut(shown(repr(value)))


def _cut(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:100]}... ({len(text):,} characters)"
