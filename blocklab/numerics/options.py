"""What options may be: one of some words, or a number that counts."""

from __future__ import annotations

from numbers import Integral


def chosen(value: object, *words: str) -> bool:
    """Return whether an option is one of these words, whatever else it may be: an array, or something unhashable."""
    return isinstance(value, str) and value in words


def is_count(value: object, least: int = 1) -> bool:
    """Return whether a value is an integer from `least` on, of Python or numpy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
