"""numpy, or cupy for arrays that live on a GPU: the module that fits the arrays at hand.

Code in `numerics/` and `block/` asks `array_module(x)` and takes from it only what numpy and cupy share; FUNCTIONS
lists it, and a test holds the code to the list and the list to cupy's. It does without ufunc `where=`, the mode of
`take`, float8 dtypes, implicit conversion from or to numpy, and views that change the width of a number.

cupy's kernels flush float32 subnormals to zero. Encoding, rounding and decoding do not depend on that: they work on
bits, or on values far above.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from blocklab.errors import InputError

Array: TypeAlias = Any
"""An array of numpy or cupy."""

FUNCTIONS = frozenset(
    """
    empty empty_like zeros zeros_like ones_like arange array asarray ascontiguousarray concatenate moveaxis
    abs add subtract multiply divide square sqrt exp clip maximum copysign floor trunc frexp ldexp
    bitwise_and right_shift where take repeat isnan isinf isfinite any sum mean max matmul
    """.split()  # noqa: SIM905
)
"""What may be taken from the module that `array_module` returns, beside the constants inf and nan."""


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


def move(x: Array, xp: ModuleType) -> Array:
    """Return `x` as an array of numpy or cupy, copied to or from the GPU only if it lives elsewhere."""
    return asnumpy(x) if xp is np else xp.asarray(x)


def open_device(name: str) -> ModuleType:
    """Return the array module of "cpu" or "gpu"; this is the one place that imports cupy.

    Raises InputError where cupy is not installed or finds no device.
    """
    if name == "cpu":
        return np
    try:
        cupy = importlib.import_module("cupy")
        if cupy.cuda.is_available():
            return cupy
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"device gpu: cupy is not installed ({reason}): pip install blocklab[gpu]") from None
    raise InputError("device gpu: cupy found no CUDA device that it can use")
