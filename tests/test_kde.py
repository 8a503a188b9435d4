"""The kernel density estimate at theta*, and the median distance to the observation."""

import numpy as np
import pytest
from scipy.stats import chi2, norm

from aptinfer.diagnostics import kde_log_density, median_distance


def test_the_estimate_is_the_sum_of_its_kernels():
    draws, point = np.array([[0.0, 1.0], [2.0, -1.0], [1.0, 0.5]]), np.array([0.5, 0.5])
    widths, weights = np.array([0.5, 2.0]), np.array([1.0, 3.0, 4.0])
    kernels = norm.pdf(point, draws, widths).prod(1)
    value = kde_log_density(draws, point, weights=weights, bandwidth=widths)
    assert value == pytest.approx(np.log(np.average(kernels, weights=weights)), rel=1e-12)
    assert kde_log_density(draws, point, bandwidth=1) == pytest.approx(
        np.log(np.mean(norm.pdf(point, draws, 1.0).prod(1))), rel=1e-12
    )


@pytest.mark.parametrize(("dim", "factor"), [(4, 0.345), (3, 0.296)])
def test_the_bandwidth_is_the_papers_in_standard_deviations(dim, factor):
    draws = np.random.default_rng(0).normal(0, 3, (5000, dim))
    expected = kde_log_density(draws, np.ones(dim), bandwidth=factor * draws.std(0))
    assert kde_log_density(draws, np.ones(dim)) == pytest.approx(expected, abs=0.02)


def test_gaussian_draws_give_the_smoothed_gaussian():
    # The estimate's mean is N(0, (1 + b²) I). Its variance at the centre is below E K² / n, with
    # E K² = (4π b²)^(-dim/2) N(0; 0, (1 + b²/2) I).
    n, dim = 5000, 2
    b = n ** (-1 / (dim + 4))
    draws = np.random.default_rng(1).normal(size=(n, dim))
    mean = (2 * np.pi * (1 + b**2)) ** (-dim / 2)
    square = (4 * np.pi * b**2) ** (-dim / 2) * (2 * np.pi * (1 + b**2 / 2)) ** (-dim / 2)
    noise = np.sqrt(square / n) / mean
    assert kde_log_density(draws, np.zeros(dim)) == pytest.approx(np.log(mean), abs=4 * noise)


def test_units_shift_the_log_density_by_their_logarithm():
    draws, point = np.random.default_rng(2).normal(size=(200, 2)), np.array([0.3, -0.4])
    units = np.array([1e-6, 1e4])
    value = kde_log_density(draws * units + 7, point * units + 7)
    assert value == pytest.approx(kde_log_density(draws, point) - np.log(units).sum(), abs=1e-6)


def test_equal_weights_are_none_and_effective_numbers_set_the_bandwidth():
    draws, point = np.random.default_rng(3).normal(size=(100, 1)), np.array([0.1])
    assert kde_log_density(draws, point, weights=np.full(100, 7.0)) == pytest.approx(
        kde_log_density(draws, point), rel=1e-12
    )
    half = np.repeat([1.0, 0.0], 50)
    assert kde_log_density(draws, point, weights=half) == pytest.approx(
        kde_log_density(draws[:50], point), rel=1e-12
    )


def test_far_points_have_finite_log_densities():
    draws = np.random.default_rng(4).normal(size=(100, 1))
    expected = norm.logpdf(1e3, draws.max(), 0.1) - np.log(100)
    assert kde_log_density(draws, [1e3], bandwidth=0.1) == pytest.approx(expected, rel=1e-9)


def test_unusable_input_of_the_estimate_is_refused_by_name():
    draws = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(ValueError, match=r"point must have shape \(2,\)"):
        kde_log_density(draws, [0.0])
    with pytest.raises(ValueError, match="no spread in column 1"):
        kde_log_density(np.stack([draws[:, 0], np.ones(10)], 1), [0.0, 1.0])
    with pytest.raises(ValueError, match="bandwidth must be a number or 2 of them"):
        kde_log_density(draws, [0.0, 0.0], bandwidth=[1, 2, 3])
    with pytest.raises(ValueError, match="bandwidth must be above 0"):
        kde_log_density(draws, [0.0, 0.0], bandwidth=0)
    with pytest.raises(TypeError, match="Did you mean 'weights'"):
        kde_log_density(draws, [0.0, 0.0], weight=1)  # pyright: ignore[reportCallIssue]


def test_the_median_distance_of_gaussian_simulations():
    # |x - x_o|² in standard deviations is chi-squared; the median of n draws varies by 1 / (2 f(m) sqrt(n)).
    n, scale, x_o = 4000, np.array([1e-3, 1.0, 50.0]), np.array([5.0, -1.0, 300.0])
    x = x_o + scale * np.random.default_rng(5).normal(size=(n, 3))
    median = np.sqrt(chi2.median(3))
    density = chi2.pdf(median**2, 3) * 2 * median
    value = median_distance(x, x_o, scale=scale)
    assert value == pytest.approx(median, abs=4 / (2 * density * np.sqrt(n)))
    assert median_distance(x / scale, x_o / scale) == pytest.approx(value, rel=1e-9)
    assert median_distance(x, x_o, scale=2 * scale) == pytest.approx(value / 2, rel=1e-9)


def test_failed_simulations_are_left_out_of_the_median():
    x = np.array([[1.0, 0.0], [np.nan, 0.0], [0.0, 3.0], [np.inf, 1.0], [0.0, 2.0]])
    assert median_distance(x, [0, 0]) == 2.0
    with pytest.raises(ValueError, match="all failed"):
        median_distance(x[1:2], [0, 0])


def test_data_of_any_shape_have_a_median_distance():
    x_o = np.ones((2, 3))
    assert median_distance(x_o + np.full((5, 2, 3), 2.0), x_o, scale=np.full((2, 3), 2.0)) == pytest.approx(
        np.sqrt(6)
    )
    assert median_distance([1.0, 2.0, 4.0], 0.0) == 2.0
    with pytest.raises(ValueError, match=r"where event is the observation's shape, \(2, 3\)"):
        median_distance(np.zeros((5, 6)), x_o)
    with pytest.raises(ValueError, match="scale must be above 0"):
        median_distance(np.zeros((5, 2, 3)), x_o, scale=0.0)
