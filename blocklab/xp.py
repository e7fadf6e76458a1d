"""numpy, or cupy for arrays that live on a GPU: the module that fits the arrays at hand.

Code in `numerics/` and `block/` asks `array_module(x)` and uses only functions that numpy and cupy
share: creation (`empty`, `zeros`, `arange`, `full`), elementwise ufuncs with `out=`, `where` with three
arguments, `clip`, `ldexp`, `frexp`, `rint`, `maximum`, `matmul`, `sum`, `max`, `min`, `any`, `all`,
`isnan`, `isfinite`, `concatenate`, `take` without mode, views of equal width, slicing and fancy indexing
with arrays of the same module. Not: ufunc `where=`, implicit conversion from numpy, `errstate`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from blocklab.errors import InputError

Array: TypeAlias = Any
"""An array of numpy or cupy."""


def array_module(*arrays: Array) -> ModuleType:
    """Return the module (numpy or cupy) that all `arrays` belong to; cupy only if it is already imported.

    Raises InputError when arrays of both modules are mixed.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return np
    on_gpu = [isinstance(a, cupy.ndarray) for a in arrays]
    if not any(on_gpu):
        return np
    for a, is_cupy in zip(arrays, on_gpu, strict=True):
        if not is_cupy and isinstance(a, np.ndarray) and a.ndim:
            raise InputError(
                f"expected arrays of one module, found numpy {a.dtype}{list(a.shape)} beside cupy arrays:"
                " move it with cupy.asarray, or the others with blocklab.xp.asnumpy"
            )
    return cupy


def asnumpy(x: Array) -> np.ndarray:
    """Return `x` as a numpy array, copied from the GPU if it lives there."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(x, cupy.ndarray):
        return np.asarray(cupy.asnumpy(x))
    return np.asarray(x)
