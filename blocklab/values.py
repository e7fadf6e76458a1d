"""What numbers may be, whoever gives them: a file, an option or a caller."""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Any

import numpy as np

from blocklab.errors import InputError, brief

LARGEST_SIZE = 2**31 - 1


def require_number(name: str, value: Any) -> None:
    """Refuse what is not a finite number."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    value = value.item() if isinstance(value, np.number) else value
    fine = number and abs(value) <= sys.float_info.max  # no NaN, nor an integer that no float can hold
    require(fine, f"{name} must be a finite number; found {brief(value)}")


def require_size(name: str, value: Any) -> None:
    """Refuse what is not a positive integer below 2^31."""
    fine = isinstance(value, Integral) and not isinstance(value, bool)
    require(fine, f"{name} must be an integer; found {brief(value)}")
    require(value > 0, f"{name} must be positive; found {brief(value)}")
    require(value <= LARGEST_SIZE, f"{name} must be at most {LARGEST_SIZE}; found {brief(value)}")


def require(condition: bool, message: str) -> None:
    """Raise InputError with the message unless the condition holds."""
    if not condition:
        raise InputError(message)
