"""The fixture `cupy`: a fake one by default, the real one under `pytest -m gpu`."""

import sys

import numpy as np
import pytest
from fake_cupy import make_module

FAKE = make_module()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def cupy(request, monkeypatch):
    if request.param == "real":
        module = pytest.importorskip("cupy")
        if not module.cuda.is_available():
            pytest.skip("cupy finds no CUDA device")
        return module
    monkeypatch.setitem(sys.modules, "cupy", FAKE)
    return FAKE


@pytest.fixture
def same(cupy):
    """Compare a result on the GPU with numpy's: to the bit where no order of sums is left to BLAS, else by norm.

    blas   the result shows the order in which BLAS sums
    exact  real cupy gives the same bits, too; its exponentials and float64 sums may differ in the last place
    """

    def check(found, expected, exact=True, tolerance=1e-5, blas=False):
        assert isinstance(found, cupy.ndarray)
        found = cupy.asnumpy(found)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if not blas and (exact or cupy is FAKE):
            np.testing.assert_array_equal(found.reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8))
            return
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(found[~finite], expected[~finite])
        difference = np.linalg.norm((found[finite] - expected[finite]).astype(np.float64))
        assert difference <= tolerance * np.linalg.norm(expected[finite].astype(np.float64))

    return check
