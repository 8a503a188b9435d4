"""The three Gaussian tasks against SciPy; tests/test_problems.py compares their simulators with NumPy."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, truncnorm

from aptinfer import problems
from comparisons import assert_same_distribution, likelihood


@pytest.mark.parametrize("name", ["gaussian_linear", "gaussian_linear_uniform"])
def test_the_likelihood_is_one_gaussian(name):
    problem = problems.get(name)
    theta = problem.prior.sample(np.random.default_rng(0), 20)
    x = problem.observation
    exact = [multivariate_normal(t, 0.1 * np.eye(10)).logpdf(x) for t in theta]  # pyright: ignore
    np.testing.assert_allclose(likelihood(problem)(theta, x), exact, rtol=1e-5)


def test_the_mixture_s_likelihood_is_two_gaussians_and_normalised():
    problem = problems.get("gaussian_mixture")
    theta = np.array([1.0, -2.0])
    # Midpoints: a step of half the narrow component's width integrates a Gaussian to 1e-8.
    step = 0.05
    side = np.arange(-6 + step / 2, 6, step)
    grid = theta + np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    density = np.exp(np.asarray(likelihood(problem)(theta, grid), np.float64))
    assert density.sum() * step**2 == pytest.approx(1, abs=1e-5)
    parts = [multivariate_normal(theta, v * np.eye(2)).pdf(grid) for v in (1, 0.01)]  # pyright: ignore
    np.testing.assert_allclose(density, np.mean(parts, axis=0), rtol=1e-4)


def test_the_linear_posterior_is_its_closed_form():
    problem, n = problems.get("gaussian_linear"), 50_000
    x_o = problem.observation
    draws = problem.reference_posterior(x_o, n)
    assert_same_distribution(draws, np.random.default_rng(9).multivariate_normal(x_o / 2, np.eye(10) / 20, n))


def test_the_box_cuts_the_uniform_posterior():
    problem, n = problems.get("gaussian_linear_uniform"), 50_000
    # The last entries lie beyond the box, the very last so far that almost nothing is left.
    x_o = np.array([0.0, 0.5, -0.5, 0.9, -0.9, 1.0, 1.2, -1.5, 3.0, 8.0])
    draws = problem.reference_posterior(x_o, n)
    scale = np.sqrt(0.1)
    law = truncnorm((-1 - x_o) / scale, (1 - x_o) / scale, loc=x_o, scale=scale)
    assert np.all(problem.prior.contains(draws))
    np.testing.assert_array_less(abs(draws.mean(0) - law.mean()), 5 * law.std() / np.sqrt(n))
    below = np.mean(draws < law.ppf(0.3), axis=0)
    np.testing.assert_allclose(below, 0.3, atol=5 * np.sqrt(0.3 * 0.7 / n))
