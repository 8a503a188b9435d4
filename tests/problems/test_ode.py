"""SIR and the Lotka-Volterra ODE: the solver against SciPy's, simulators and likelihoods against NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import binom, lognorm, multivariate_t

from aptinfer import problems
from aptinfer.problems import lotka_volterra_ode, sir
from aptinfer.problems.two_species import log_populations
from aptinfer.protocols import Rows, Status
from comparisons import assert_same_distribution, assert_weighted_moments, likelihood, simulations

PRIOR_DRAWS = 30


def lotka_volterra_in_scipy(theta):
    """X and Y at the ten times, in the published coordinates."""
    alpha, beta, gamma, delta = theta

    def slope(_, state):
        x, y = state
        return [alpha * x - beta * x * y, -gamma * y + delta * x * y]

    times = np.arange(10) * 2.1
    return solve_ivp(slope, (0, times[-1]), [30, 1], "DOP853", times, rtol=1e-10, atol=1e-14).y.reshape(20)


def sir_in_scipy(theta):
    """I / N at the ten times, from all three equations in numbers of people."""
    beta, gamma = theta

    def slope(_, state):
        s, i, _ = state
        infections = beta * s * i / 1e6
        return [-infections, infections - gamma * i, gamma * i]

    times = np.arange(10) * 17.0
    start = [1e6 - 1, 1, 0]
    return solve_ivp(slope, (0, times[-1]), start, "DOP853", times, rtol=1e-10, atol=1e-8).y[1] / 1e6


@pytest.mark.parametrize("x64", [False, True])
def test_lotka_volterra_is_solved_as_scipy_does(x64):
    theta = problems.get("lotka_volterra_ode").prior.sample(np.random.default_rng(0), PRIOR_DRAWS)
    exact = np.log(np.clip([lotka_volterra_in_scipy(t) for t in theta], 1e-10, 1e4))
    with jax.enable_x64(x64):
        ours = jax.jit(jax.vmap(lotka_volterra_ode.log_means))(theta.astype(float if x64 else np.float32))
    # The noise has a scale of 0.1: an error of 1e-3 is a hundredth of it.
    np.testing.assert_allclose(ours, exact, atol=2e-5 if x64 else 1e-3)


@pytest.mark.parametrize("x64", [False, True])
def test_sir_is_solved_as_scipy_does(x64):
    theta = problems.get("sir").prior.sample(np.random.default_rng(0), PRIOR_DRAWS)
    exact = np.array([sir_in_scipy(t) for t in theta])
    with jax.enable_x64(x64):
        ours = jax.jit(jax.vmap(sir.log_infected))(theta.astype(float if x64 else np.float32))
    np.testing.assert_allclose(np.exp(ours), exact, atol=1e-7 if x64 else 3e-6)
    assert np.asarray(ours).max() < 0


def test_steps_that_are_too_coarse_fail():
    rates, start = jnp.array([1.0, 0.1, 1.0, 0.1]), jnp.log(jnp.array([30.0, 1.0]))
    fine, coarse = (log_populations(rates, start, 2.0, 4, steps) for steps in (100, 3))
    assert np.all(np.isfinite(fine))
    assert np.all(np.isnan(coarse))


@pytest.mark.parametrize(
    ("name", "extreme"),
    [("lotka_volterra_ode", (50.0, 0.3, 50.0, 0.3)), ("sir", (200.0, 0.1)), ("sir", (np.inf, 0.1))],
)
def test_extreme_draws_are_failed_simulations(name, extreme):
    problem = problems.get(name)
    theta = np.stack([np.asarray(extreme), problem.truths[0]])  # pyright: ignore
    failed, done = problem.simulator(0, Rows(np.arange(2), theta))
    assert (failed.status, done.status) == (Status.INVALID, Status.DONE)
    values = np.asarray(likelihood(problem)(theta, problem.observation))
    assert values[0] == -np.inf
    assert np.isfinite(values[1])


def test_impossible_data_have_no_likelihood():
    for name, wrong in (("lotka_volterra_ode", 0.0), ("sir", 2.5), ("sir", 1001.0), ("sir", -1.0)):
        problem = problems.get(name)
        x = np.array(problem.observation)
        x[3] = wrong
        assert likelihood(problem)(problem.truth, x) == -np.inf


def test_the_lotka_volterra_simulator_agrees_with_numpy():
    n, theta = 20_000, np.array([0.7, 0.1, 0.9, 0.12])
    means = np.log(np.clip(lotka_volterra_in_scipy(theta), 1e-10, 1e4))
    x = np.random.default_rng(1).lognormal(means, 0.1, (n, 20))
    ours = simulations(problems.get("lotka_volterra_ode"), theta, n)
    assert_same_distribution(np.log(ours), np.log(x))


def test_the_sir_simulator_agrees_with_numpy():
    n, theta = 20_000, np.array([0.5, 0.15])
    x = np.random.default_rng(1).binomial(1000, sir_in_scipy(theta), (n, 10)).astype(float)
    ours = simulations(problems.get("sir"), theta, n)
    assert np.all(ours == np.round(ours))
    # At the first and last times almost all counts are zero, and second moments rest on a few rows.
    common = x.mean(0) > 0.1
    assert_same_distribution(ours[:, common], x[:, common])
    rare = sir_in_scipy(theta)[~common] * 1000
    counts = ours[:, ~common].sum(0)
    assert np.all(np.abs(counts - n * rare) < 5 * np.sqrt(n * rare) + 5)


def test_all_shares_of_infected_can_be_drawn():
    # From no infections to all, the numbers of each count are those of SciPy's binomial distribution.
    log_share = jnp.log(jnp.array([1e-6, 1e-3, 0.5, 0.999], jnp.float32))
    counts = jnp.arange(1001, dtype=jnp.float32)
    ours = np.asarray(jax.vmap(sir.log_binomial, (None, 0))(log_share, counts), np.float64)
    share = np.exp(np.asarray(log_share, np.float64))
    exact = binom.logpmf(np.arange(1001)[:, None], 1000, share[None, :])
    likely = exact > -30
    np.testing.assert_allclose(ours[likely], exact[likely], atol=2e-3)
    np.testing.assert_allclose(np.exp(ours).sum(0), 1, atol=1e-3)


def test_the_likelihoods_agree_with_scipy():
    problem = problems.get("lotka_volterra_ode")
    theta = np.array([0.7, 0.1, 0.9, 0.12]) * np.exp(0.1 * np.random.default_rng(0).normal(size=(10, 4)))
    means = [np.clip(lotka_volterra_in_scipy(t), 1e-10, 1e4) for t in theta]
    exact = lognorm.logpdf(problem.observation, 0.1, scale=np.array(means)).sum(1)
    # Each of 20 terms has the slope residual / noise, up to a few tens here, in an error of about 1e-5.
    np.testing.assert_allclose(likelihood(problem)(theta, problem.observation), exact, rtol=1e-4, atol=1e-2)

    problem = problems.get("sir")
    theta = np.array([0.6, 0.17]) * np.exp(0.1 * np.random.default_rng(0).normal(size=(10, 2)))
    share = np.array([sir_in_scipy(t) for t in theta])
    exact = binom.logpmf(problem.observation, 1000, share).sum(1)
    np.testing.assert_allclose(likelihood(problem)(theta, problem.observation), exact, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("name", ["sir", "lotka_volterra_ode"])
def test_the_posterior_is_prior_times_likelihood(name):
    # Draws of a Student-t distribution in the logarithms, weighted, against the chains.
    problem = problems.get(name)
    draws = np.log(problem.reference_posterior(problem.observation, 4000))
    law = multivariate_t(draws.mean(0), 1.2 * np.cov(draws.T), df=5, seed=4)  # pyright: ignore
    log_theta = law.rvs(8000)
    theta = np.exp(log_theta)
    log_weights = np.asarray(likelihood(problem)(theta, problem.observation), np.float64)
    # The prior's density is one of theta, the proposal's one of log theta.
    log_weights = log_weights + problem.prior.log_prob(theta) + log_theta.sum(1) - law.logpdf(log_theta)
    assert_weighted_moments(np.exp(log_weights - log_weights.max()), log_theta, draws)
