from __future__ import annotations

import numpy as np
import pytest

from blocklab.store.statistics import statistics


@pytest.mark.parametrize("size", [1e-300, 1e-3, 1.0, 1e300])
def test_numbers_of_any_size(size: float) -> None:
    found = statistics(np.array([[3 * size, -4 * size], [0, 0]]))
    assert found.rms == pytest.approx(2.5 * size, abs=1e-200)
    assert (found.shape, found.peak, found.zeros, found.hidden, found.nan) == ((2, 2), 4 * size, 0.5, 0, 0)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    found = statistics(np.array([np.nan, -np.inf, np.inf, 2.0], np.float32))
    assert (found.rms, found.peak, found.hidden, found.nan) == (2, 2, 2, 1)
    assert statistics(np.zeros((0, 3), np.float32)).rms == 0
    assert statistics(np.array([3, 4], np.uint8)).rms == pytest.approx(12.5**0.5)
