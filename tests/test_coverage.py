"""Expected coverage: posteriors that are right stay in the band, others leave it to the side they should."""

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.diagnostics.coverage import LEVELS, band

CASES, DRAWS = 1000, 200


def gaussian_posteriors(*, width=1.0, shift=0.0, seed=0):
    """theta ~ N(0, I), x = theta + noise: draws, their log densities, truths and theirs, scaled or moved."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(CASES, 2))
    mean = (truth + rng.normal(size=truth.shape)) / 2 + shift
    spread = width * np.sqrt(0.5)
    draws = mean[:, None] + spread * rng.normal(size=(CASES, DRAWS, 2))
    of_draws = -0.5 * np.sum(((draws - mean[:, None]) / spread) ** 2, axis=2)
    of_truth = -0.5 * np.sum(((truth - mean) / spread) ** 2, axis=1)
    return draws, truth, (of_draws, of_truth)


def test_right_posteriors_stay_in_the_band():
    draws, truth, log_density = gaussian_posteriors()
    assert apt.diagnostics.expected_coverage(draws, truth).within_band
    assert apt.diagnostics.expected_coverage(draws, truth, log_density=log_density).within_band


def test_highest_density_regions_that_are_too_small_or_too_large():
    draws, truth, log_density = gaussian_posteriors(width=0.8)
    found = apt.diagnostics.expected_coverage(draws, truth, log_density=log_density)
    assert not found.within_band
    # A two-dimensional ball: the truth's squared distance is exponential, of mean 1 / 0.64 of the draws'.
    exact = 1 - (1 - LEVELS) ** 0.64
    np.testing.assert_allclose(found.observed, exact, atol=4 * np.sqrt(0.25 / CASES) + 1 / DRAWS)
    assert found.largest_deviation < -0.1
    draws, truth, log_density = gaussian_posteriors(width=1.3)
    assert apt.diagnostics.expected_coverage(draws, truth, log_density=log_density).largest_deviation > 0.1


def test_balls_see_a_bias_that_densities_of_the_right_width_hide_in_part():
    draws, truth, _ = gaussian_posteriors(shift=0.3)
    assert not apt.diagnostics.expected_coverage(draws, truth).within_band


@pytest.mark.parametrize("cases", [50, 1000])
def test_the_band_holds_whole_curves_of_right_posteriors_as_often_as_it_says(cases):
    low, high = band(cases, 0.9)
    uniform = np.random.default_rng(7).random((2000, cases))
    curves = np.stack([(uniform <= level).mean(axis=1) for level in LEVELS], axis=1)
    held = ((low <= curves) & (curves <= high)).all(axis=1).mean()
    # Counts are whole numbers, so the band holds a little more than it must.
    assert 0.9 - 4 * np.sqrt(0.09 / 2000) - 4 * np.sqrt(0.09 / 4000) < held < 0.95


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"draws": np.zeros((30, 40, 3))}, r"draws must have shape \(cases, draws, dim\)"),
        ({"draws": np.zeros((30, 5, 2))}, "at least 20 draws"),
        ({"truth": np.ones((30, 2))}, "truth must vary in every parameter"),
        ({"truth": np.zeros((5, 2))}, "truth must have at least 20 rows"),
        ({"log_density": (np.zeros((30, 40)), np.zeros(29))}, "log_density must be two arrays of shapes"),
        ({"log_density": (np.zeros((30, 40)), np.full(30, np.nan))}, "log_density must not hold NaN"),
        ({"probability": 1.5}, "probability must lie between 0 and 1"),
    ],
)
def test_bad_input_is_refused(change, says):
    rng = np.random.default_rng(0)
    usual = {"draws": rng.normal(size=(30, 40, 2)), "truth": rng.normal(size=(30, 2))}
    with pytest.raises(ValueError, match=says):
        apt.diagnostics.expected_coverage(**usual | change)
