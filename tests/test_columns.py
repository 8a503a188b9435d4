"""x as a vector with a density: constants are dropped, counts spread over their cells, the rest refused."""

import numpy as np
import pytest

from aptinfer.columns import MOST, fit_columns

RNG = np.random.default_rng(0)


def test_constants_are_dropped_and_checked_against_the_observation():
    x = np.stack([np.full(100, 7.0), RNG.normal(size=100), np.full(100, 0.1) + 1e-17], axis=1).reshape(
        100, 3, 1
    )
    columns = fit_columns(x, "SNL")
    assert columns.size == 1
    assert columns(np.array([[7.0], [0.3], [0.1]])).shape == (1,)
    with pytest.raises(ValueError, match=r"x_o is impossible.*x\[0, 0\] is 8.*returned 7"):
        columns(np.array([[8.0], [0.3], [0.1]]))


def test_whole_numbers_fill_their_cells_evenly_and_always_in_the_same_way():
    x = RNG.poisson(3.0, size=(5000, 2)).astype(float)
    columns = fit_columns(x, "SNL")
    rows = columns.rows(x, np.random.default_rng(1))
    np.testing.assert_array_equal(rows[:50], columns.rows(x[:50], np.random.default_rng(1)))
    u = (
        rows * columns.scaling.spread + columns.scaling.centre - x
    )  # no count is far enough out to be compressed
    assert np.abs(u).max() < 0.5 + 1e-5
    # Mean zero and variance 1/12, within five standard errors (the fourth moment of u is 1/80).
    assert np.abs(u.mean(axis=0)).max() < 5 * np.sqrt(1 / 12 / 5000)
    assert np.abs(u.var(axis=0) - 1 / 12).max() < 5 * np.sqrt((1 / 80 - 1 / 144) / 5000)
    # The observation itself lies at the centre of its cell.
    centre = columns(np.array([2.0, 4.0])) * columns.scaling.spread + columns.scaling.centre
    np.testing.assert_allclose(centre, [2, 4], rtol=1e-5)


def test_continuous_columns_stay_as_they_are():
    x = RNG.normal(5.0, 3.0, size=(1000, 2, 3))
    columns = fit_columns(x, "SNL")
    rows = columns.rows(x, np.random.default_rng(0))
    assert rows.shape == (1000, 6)
    np.testing.assert_array_equal(rows[3], columns(x[3]))
    assert 0.5 < rows.std() < 2


def test_what_has_no_density_is_refused():
    often_zero = np.maximum(RNG.normal(size=(200, 2)), 0.0)
    with pytest.raises(ValueError, match=r"x\[0\] has none: .* repeat others, the value 0 .*apt.APT\(\)"):
        fit_columns(often_zero, "SNL")
    with pytest.raises(ValueError, match="the same x"):
        fit_columns(np.ones((50, 2)), "SNL")
    with pytest.raises(ValueError, match=r"x of shape \(3, 10, 10\) has 300 numbers; up to 256.*embedding"):
        fit_columns(np.zeros((2, 3, 10, 10)), "SNL")
    assert MOST == 256
