"""The one exception for input that cannot be used, and how its messages show what was found."""


class InputError(ValueError):
    """What the caller gave cannot be used; the message names it, what was expected and what was found.

    The command line prints the message as one line and exits with code 2.
    """


def shown(name: str) -> str:
    """Return a name as it may stand in a one-line message: printable, and cut where it is very long."""
    return _cut(name if name.isprintable() else ascii(name))


def brief(value: object) -> str:
    """Return a value as it may stand in a one-line message, cut where it is very long."""
    return _cut(shown(repr(value)))


def _cut(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:100]}... ({len(text):,} characters)"
