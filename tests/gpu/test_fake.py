"""The fake refuses what cupy refuses, so that what passes on it has a chance on a GPU."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cupy_names import NAMES

import blocklab
from blocklab.xp import FUNCTIONS

SOURCES = Path(blocklab.__file__).parent


@pytest.mark.parametrize(
    ("what", "refused"),
    [
        ("implicit conversion", lambda cp, a, x: np.asarray(a)),
        ("an operand of numpy", lambda cp, a, x: a + x),
        ("numpy on the left", lambda cp, a, x: x + a),
        ("numpy among the arguments", lambda cp, a, x: cp.maximum(a, x)),
        ("numpy in a list", lambda cp, a, x: cp.concatenate([a, x])),
        ("ufunc where", lambda cp, a, x: cp.add(a, a, where=a > 0)),
        ("the mode of take", lambda cp, a, x: cp.take(a, cp.asarray([0]), mode="clip")),
        ("where in a sum", lambda cp, a, x: a.sum(where=a > 0)),
        ("initial in a maximum", lambda cp, a, x: a.max(initial=0)),
    ],
)
def test_what_cupy_refuses(cupy, what, refused):
    x = np.arange(3.0)
    with pytest.raises(TypeError):
        refused(cupy, cupy.asarray(x), x)


def test_float8_is_refused(cupy):
    with pytest.raises((TypeError, ValueError)):
        cupy.asarray(np.zeros(3, ml_dtypes.float8_e4m3fn)).sum()


def test_what_cupy_allows(cupy):
    a = cupy.asarray(np.arange(6.0).reshape(2, 3))
    assert isinstance(np.float32(2) * a, cupy.ndarray)
    assert isinstance(a.max(), cupy.ndarray)
    assert isinstance(a[0, 0], cupy.ndarray)
    assert isinstance(np.sqrt(a), cupy.ndarray)
    b = a
    b += 1
    assert b is a
    assert cupy.add(a, a, out=b) is a
    assert a.tolist() == [[2, 4, 6], [8, 10, 12]]
    a[a > 6] = 0
    assert int(a.sum()) == 12
    assert cupy.asarray(a) is a


def test_functions_taken_from_the_array_module_are_those_listed_and_cupy_has_them():
    used = set()
    for path in [*(SOURCES / "numerics").glob("*.py"), *(SOURCES / "block").glob("*.py")]:
        used |= set(re.findall(r"\b(?:xp|array_module\([^()]*\))\.(\w+)", path.read_text(encoding="utf-8")))
    assert used - {"inf", "nan"} == FUNCTIONS
    assert FUNCTIONS <= NAMES
