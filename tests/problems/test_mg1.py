"""The M/G/1 queue: against one written in NumPy, its dependent prior, and its whitening."""

import jax
import numpy as np
import pytest

from aptinfer import problems
from aptinfer.problems import mg1

THETAS = [(1.0, 5.0, 0.2), (4.0, 9.0, 0.02), (0.5, 10.0, 0.3), (3.0, 3.5, 0.33)]


def in_numpy(rng, theta, n):
    """Customer by customer, with the times of arrival and departure themselves."""
    theta = np.broadcast_to(theta, (n, 3))
    service = rng.uniform(theta[:, 0], theta[:, 1], (50, n))
    arrival = np.cumsum(rng.exponential(1 / theta[:, 2], (50, n)), axis=0)
    left, between = np.zeros(n), []
    for served, arrived in zip(service, arrival, strict=True):
        between.append(served + np.maximum(0, arrived - left))
        left = left + between[-1]
    return np.percentile(between, [0, 25, 50, 75, 100], axis=0).T


@pytest.fixture(scope="module")
def simulated():
    """4,000 draws at each of THETAS."""
    n = 4000
    theta = np.repeat(np.array(THETAS, np.float32), n, axis=0)
    keys = jax.random.split(jax.random.key(0), len(theta))
    x = np.asarray(jax.jit(jax.vmap(mg1.simulate))(keys, theta), np.float64)
    return dict(zip(THETAS, x.reshape(len(THETAS), n, 5), strict=True))


@pytest.mark.parametrize("theta", THETAS)
def test_the_simulator_agrees_with_numpy(simulated, theta, same_mean, same_law):
    ours = simulated[theta]
    theirs = in_numpy(np.random.default_rng(1), theta, len(ours))
    assert np.all(np.diff(ours, axis=1) >= 0)
    same_mean(ours, theirs)
    centre = theirs.mean(0)
    pairs = np.triu_indices(5)
    same_mean(*((x - centre)[:, pairs[0]] * (x - centre)[:, pairs[1]] for x in (ours, theirs)))
    same_law(ours, theirs)


def test_the_prior_is_uniform_on_a_parallelepiped():
    prior = problems.get("mg1").prior
    draws = prior.sample(np.random.default_rng(0), 4000)
    unit = np.stack([draws[:, 0] / 10, (draws[:, 1] - draws[:, 0]) / 10, draws[:, 2] * 3], axis=1)
    assert np.all((unit > 0) & (unit < 1))
    assert np.all(np.abs(unit.mean(0) - 0.5) < 5 * np.sqrt(1 / 12 / 4000))
    assert np.all(np.abs(np.corrcoef(unit.T) - np.eye(3)) < 5 / np.sqrt(4000))
    np.testing.assert_allclose(prior.log_prob(draws), np.log(0.03), rtol=1e-6)
    outside = [(5.0, 4.9, 0.2), (1.0, 11.1, 0.2), (-0.1, 5.0, 0.2), (10.1, 12.0, 0.2), (1.0, 5.0, 0.34)]
    assert not prior.contains(outside).any()
    assert np.all(prior.log_prob(outside) == -np.inf)
    np.testing.assert_allclose(prior.forward(prior.inverse(draws)), draws, rtol=1e-9)


def test_the_observation_is_the_published_one(paper_observations):
    problem = problems.get("mg1")
    np.testing.assert_array_equal(problem.truth, paper_observations["mg1_true_parameters"])
    np.testing.assert_allclose(problem.observation, paper_observations["mg1_observed_quantiles"], rtol=1e-10)
    np.testing.assert_array_equal(mg1.WHITEN_MEAN, paper_observations["mg1_whiten_mean"])
    np.testing.assert_array_equal(mg1.WHITEN_AXES, paper_observations["mg1_whiten_U"])
    np.testing.assert_array_equal(mg1.WHITEN_SCALE, paper_observations["mg1_whiten_istd"])


def test_whitening():
    expected = [-0.017766465645959184, 0.01378771262320085, -0.31679026862458826]
    expected += [-0.032905872280447446, 0.008509221101873415]
    x_o = problems.get("mg1").observation
    np.testing.assert_allclose(mg1.whiten(x_o), expected, rtol=1e-8)
    np.testing.assert_allclose(mg1.whiten([x_o, x_o])[1], expected, rtol=1e-8)
    np.testing.assert_allclose(mg1.WHITEN_AXES.T @ mg1.WHITEN_AXES, np.eye(5), atol=1e-12)
    with pytest.raises(ValueError, match=r"x must have 5 quantiles on its last axis; .* shape \(4,\)"):
        mg1.whiten(np.zeros(4))


def test_the_whitening_comes_from_this_simulator():
    # The quantiles' means over the prior are infinite: from one set of 100,000 draws to the next the means
    # of the last four differ by a factor of 2, and the deviations along the first axis by 10.
    prior = problems.get("mg1").prior
    sets = [
        in_numpy(rng, prior.sample(rng, 100_000), 100_000) for rng in map(np.random.default_rng, range(3))
    ]
    means = np.median([x.mean(0) for x in sets], axis=0)
    assert means[0] == pytest.approx(mg1.WHITEN_MEAN[0], rel=0.1)
    np.testing.assert_array_less(np.abs(np.log(means / mg1.WHITEN_MEAN)), np.log(3))
    spectra = [np.linalg.eigh(np.cov(x.T)) for x in sets]
    spread = np.median([np.sqrt(values[::-1]) for values, _ in spectra], axis=0)
    published = np.sort(1 / mg1.WHITEN_SCALE)[::-1]
    np.testing.assert_array_less(np.abs(np.log(spread / published)), np.log(10))
    # The longest axis and the shortest one are nearly the same in every set.
    for _, axes in spectra:
        assert abs(axes[:, -1] @ mg1.WHITEN_AXES[:, 0]) > 0.98
        assert abs(axes[:, 0] @ mg1.WHITEN_AXES[:, 2]) > 0.9
