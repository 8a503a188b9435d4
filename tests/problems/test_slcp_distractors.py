"""SLCP, and SLCP hidden among distractors: check values of the paper, and the benchmark's mixture."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import aptinfer as apt
from aptinfer import problems
from aptinfer.problems import slcp
from aptinfer.problems.slcp_distractors import Hidden, benchmark_noise, paper_noise
from aptinfer.protocols import Rows, Status
from comparisons import assert_equal_quantiles, assert_same_distribution, likelihood, published, simulations

THETA = (-0.7, -2.9, -1.0, -0.9, 0.6)


def model_of(problem) -> Hidden:
    return problem.simulator.function.__self__


def distractors_in_numpy(rng, noise, n):
    """Student-t draws by their definition, not yet in the data's order."""
    k = rng.integers(20, size=n)
    m = noise.locations.shape[1]
    normal = np.einsum("nij,nj->ni", noise.factors[k], rng.normal(size=(n, m)))
    return noise.locations[k] + normal * np.sqrt(2 / rng.chisquare(2, (n, 1)))


def test_slcp_s_observation_comes_from_its_seed():
    # Standard normals of the legacy generator, one array of shape (1, 4, 2).
    u = np.random.RandomState(41).randn(1, 4, 2)[0]
    m_1, m_2, t_3, t_4, t_5 = THETA
    rho = np.tanh(t_5)
    x_1 = m_1 + t_3**2 * u[:, 0]
    x_2 = m_2 + t_4**2 * (rho * u[:, 0] + np.sqrt(1 - rho**2) * u[:, 1])
    np.testing.assert_allclose(np.stack([x_1, x_2], 1).reshape(8), slcp.problem.observation, rtol=1e-13)
    np.testing.assert_array_equal(slcp.problem.truth, THETA)


def test_slcp_s_evidence():
    # log p(x_o) = -13.39 ± 0.02 is known from 1e8 prior draws. Here: importance sampling in one of four
    # equal quadrants, from a Gaussian about its posterior draws.
    problem, n = slcp.problem, 400_000
    draws = problem.reference_posterior(problem.observation, 20_000)
    draws[:, 2:4] = abs(draws[:, 2:4])
    law = multivariate_normal(draws.mean(0), 1.5 * np.cov(draws.T), seed=0)  # pyright: ignore
    theta = law.rvs(n)
    inside = problem.prior.contains(theta) & np.all(theta[:, 2:4] > 0, axis=1)
    log_weights = np.asarray(likelihood(problem)(theta, problem.observation), np.float64)
    weights = np.where(inside, 4 * 6.0**-5 * np.exp(log_weights - law.logpdf(theta)), 0)
    error = weights.std() / weights.mean() / np.sqrt(n)
    assert error < 0.015
    assert np.log(weights.mean()) == pytest.approx(-13.39, abs=0.02 + 4 * error)


@pytest.mark.parametrize(("m", "ridge"), [(12, 1), (32, 3), (52, 3), (92, 7), (5, 1), (72, 5), (200, 7)])
def test_the_paper_s_mixture(m, ridge):
    problem = problems.get("slcp_distractors", distractors=m, seed=3)
    assert problem.observation.shape == (8 + m,)
    noise = model_of(problem).noise
    np.testing.assert_array_equal(np.sort(noise.order), np.arange(8 + m))
    factors = noise.factors / np.sqrt(3 / m)
    assert np.all(np.triu(factors, 1) == 0)
    below = factors[:, *np.tril_indices(m, -1)]
    assert abs(below.mean()) < 5 / np.sqrt(below.size)
    assert below.var() == pytest.approx(1, abs=5 * np.sqrt(2 / below.size))
    # On the diagonal: a normal, a log-normal of mean e^(1/2) and variance e² - e, and the ridge.
    diagonal = np.diagonal(factors, axis1=1, axis2=2)
    deviation = np.sqrt((1 + np.e**2 - np.e) / diagonal.size)
    assert diagonal.mean() == pytest.approx(ridge + np.exp(0.5), abs=5 * deviation)
    assert noise.locations.std() == pytest.approx(15, rel=5 / np.sqrt(2 * noise.locations.size))
    np.testing.assert_array_equal(problem.observation[model_of(problem).places], slcp.problem.observation)


def test_the_plain_problem_is_the_paper_s_with_92():
    problem = problems.get("slcp_distractors")
    same = problems.get("slcp_distractors", distractors=92, mixture="paper", seed=52)
    np.testing.assert_array_equal(problem.observation, same.observation)
    other = problems.get("slcp_distractors", seed=53)
    assert np.any(problem.observation != other.observation)


@pytest.mark.parametrize("options", [{"distractors": 12}, {"mixture": "sbibm"}])
def test_the_simulator_agrees_with_numpy(options):
    n, theta = 4000, np.array(THETA)
    problem = problems.get("slcp_distractors", **options)
    noise = model_of(problem).noise
    ours = np.empty((n, len(noise.order)))
    ours[:, noise.order] = simulations(problem, theta, n)
    rng = np.random.default_rng(1)
    s_1, s_2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
    covariance = [[s_1**2, rho * s_1 * s_2], [rho * s_1 * s_2, s_2**2]]
    points = rng.multivariate_normal(theta[:2], covariance, (n, 4))
    assert_same_distribution(ours[:, :8], points.reshape(n, 8))
    theirs = distractors_in_numpy(rng, noise, n)
    # No variances to compare: quantiles of each entry, of neighbours' differences, and of the largest.
    for f in (lambda y: y, lambda y: np.diff(y, axis=1), lambda y: abs(y).max(1, keepdims=True)):
        assert_equal_quantiles(f(ours[:, 8:]), f(theirs))


def test_no_draw_fails():
    problem = problems.get("slcp_distractors", distractors=12)
    theta = problem.prior.sample(np.random.default_rng(0), 5000)
    outcomes = problem.simulator(0, Rows(np.arange(5000), theta))
    assert {outcome.status for outcome in outcomes} == {Status.DONE}


def test_likelihood_and_posterior_are_slcp_s():
    problem = problems.get("slcp_distractors", distractors=12)
    theta = slcp.problem.reference_posterior(slcp.problem.observation, 100, seed=7)
    np.testing.assert_array_equal(problem.reference_posterior(problem.observation, 100, seed=7), theta)
    expected = likelihood(slcp.problem)(theta, slcp.problem.observation)
    np.testing.assert_allclose(likelihood(problem)(theta, problem.observation), expected, rtol=1e-6)


def test_the_benchmark_s_mixture_is_the_published_one():
    known, noise = published("slcp_distractors"), benchmark_noise()
    np.testing.assert_allclose(noise.locations, known["distractor_loc"], rtol=1e-6)
    np.testing.assert_allclose(noise.factors, known["distractor_scale_tril"], rtol=1e-6)
    np.testing.assert_array_equal(noise.order, known["permutation"])


def test_the_benchmark_s_observations_hide_slcp_s():
    problem = problems.get("slcp_distractors", mixture="sbibm")
    assert problem.observations is not None
    hidden = problem.observations[:, model_of(problem).places]
    np.testing.assert_array_equal(hidden, slcp.problem.observations)
    np.testing.assert_array_equal(problem.truths, slcp.problem.truths)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"distractors": 0}, ValueError, "distractors must be a whole number of at least 1, got 0"),
        ({"mixture": "sbi"}, ValueError, 'mixture must be "paper" or "sbibm", got \'sbi\''),
        ({"mixture": "sbibm", "distractors": 12}, ValueError, "distractors must be 92 with mixture"),
        ({"mixture": "sbibm", "seed": 1}, ValueError, "seed must be left out with mixture"),
        ({"seed": 1.5}, ValueError, "seed must be a whole number"),
        ({"distractor": 12}, TypeError, "Did you mean 'distractors'"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        problems.get("slcp_distractors", **options)


def test_the_paper_s_network_is_one_that_apt_builds():
    method = apt.APT(**problems.get("slcp_distractors").network)
    assert (method.loss, method.estimator) == (apt.Atomic(100), apt.MAF(layers=5, hidden=(50, 50)))


def test_one_seed_gives_one_mixture():
    first, again = (paper_noise(np.random.RandomState(1), 4) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    other = paper_noise(np.random.RandomState(2), 4)
    assert any(np.any(a != b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True))
