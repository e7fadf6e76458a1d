"""The one exception for input that cannot be used."""


class InputError(ValueError):
    """What the caller gave cannot be used; the message names it, what was expected and what was found.

    The command line prints the message as one line and exits with code 2.
    """
