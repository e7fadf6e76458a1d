import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blocklab.errors import InputError
from blocklab.show.pooling import colour_range, edges, pool

INF = np.inf


def test_by_hand():
    values = np.array([[1.0, -2.0, 0.5, 0.0], [0.0, 1.0, -INF, -7.0]])
    assert pool(values, 1, 2).tolist() == [[-2.0, -7.0]]
    assert pool(values, 2, 2).tolist() == [[-2.0, 0.5], [1.0, -7.0]]
    assert pool(values, 9, 9) is values or (pool(values, 9, 9) == values).all()


def test_hidden_cells_stay_hidden_only_where_nothing_else_is():
    pooled = pool(np.array([[-INF, -INF, -INF, 0.0], [-INF, -INF, -INF, -INF]]), 1, 2)
    assert pooled.tolist() == [[-INF, 0.0]]


def test_one_nan_stays_visible():
    pooled = pool(np.array([[1.0, np.nan, 900.0, 2.0], [-INF, -INF, -INF, 3.0]]), 1, 2)
    assert np.isnan(pooled[0, 0])
    assert pooled[0, 1] == 900.0


def test_one_loud_value_among_thousands_survives():
    values = np.full((100, 5000), 0.01)
    values[37, 4321] = -900.0
    pooled = pool(values, 16, 64)
    assert pooled.shape == (16, 64)
    assert pooled.min() == -900.0
    assert (pooled == -900.0).sum() == 1


@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.floats(-9, 9)), st.data())
def test_every_cell_is_the_loudest_of_its_values(values, data):
    rows, columns = (data.draw(st.integers(1, n)) for n in values.shape)
    pooled = pool(values, rows, columns)
    down, across = edges(values.shape[0], rows), edges(values.shape[1], columns)
    for (i, j), cell in np.ndenumerate(pooled):
        under = values[down[i] : down[i + 1], across[j] : across[j + 1]]
        assert cell in under
        assert abs(cell) == np.abs(under).max()


def test_an_empty_matrix_is_refused():
    with pytest.raises(InputError, match="not empty"):
        pool(np.zeros((0, 3)), 1, 1)


class TestColourRange:
    def test_outliers_do_not_stretch_it(self):
        values = np.ones((10, 100))
        values[3, 50] = -40.0
        chosen = colour_range(values)
        assert chosen.limit == 1.0
        assert np.argwhere(chosen.beyond).tolist() == [[3, 50]]

    def test_near_maxima_are_in_range(self):
        values = np.linspace(-1, 1, 1000).reshape(10, 100)
        chosen = colour_range(values)
        assert chosen.limit == 1.0
        assert not chosen.beyond.any()

    def test_masked_scores_do_not_count(self):
        values = np.array([[1.0, -INF], [np.nan, 0.5]])
        chosen = colour_range(values)
        assert chosen.limit == 1.0
        assert not chosen.beyond.any()

    def test_nothing_to_see(self):
        assert colour_range(np.zeros((2, 2))).limit == 1.0
        assert colour_range(np.full((2, 2), -INF)).limit == 1.0
