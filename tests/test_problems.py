"""Every problem: its simulator, likelihood and reference posterior against independent ones."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import aptinfer as apt
from aptinfer import problems
from aptinfer.errors import SamplingError
from aptinfer.estimators.embeddings import Embedded, build_embedding
from aptinfer.problems.mcmc import ByMCMC
from aptinfer.problems.problem import Problem
from aptinfer.protocols import Rows, Status
from comparisons import (
    assert_same_distribution,
    assert_weighted_moments,
    likelihood,
    simulations,
)


def two_moons_in_numpy(rng, theta, n):
    angle, radius = rng.uniform(-np.pi / 2, np.pi / 2, n), rng.normal(0.1, 0.01, n)
    ring = np.stack([radius * np.cos(angle) + 0.25, radius * np.sin(angle)], axis=1)
    return ring + np.array([-abs(theta[0] + theta[1]), theta[1] - theta[0]]) / np.sqrt(2)


def slcp_in_numpy(rng, theta, n):
    s_1, s_2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
    covariance = [[s_1**2, rho * s_1 * s_2], [rho * s_1 * s_2, s_2**2]]
    return rng.multivariate_normal(theta[:2], covariance, (n, 4)).reshape(n, 8)


def gaussian_in_numpy(rng, theta, n):
    return rng.multivariate_normal(theta, 0.1 * np.eye(10), n)


def mixture_in_numpy(rng, theta, n):
    both = [rng.multivariate_normal(theta, variance * np.eye(2), n) for variance in (1.0, 0.01)]
    return np.where(rng.uniform(size=(n, 1)) < 0.5, *both)


IN_NUMPY = {
    "two_moons": two_moons_in_numpy,
    "slcp": slcp_in_numpy,
    "gaussian_linear": gaussian_in_numpy,
    "gaussian_linear_uniform": gaussian_in_numpy,
    "gaussian_mixture": mixture_in_numpy,
}
THETAS = {
    "two_moons": [(0.3, -0.7), (-0.5, -0.2)],
    "slcp": [(-0.7, -2.9, -1.0, -0.9, 0.6), (1.0, 0.5, 1.5, -0.4, -2.0)],
    "gaussian_linear": [np.linspace(-0.5, 0.5, 10)],
    "gaussian_linear_uniform": [np.linspace(-1, 1, 10)],
    "gaussian_mixture": [(-7.0, 3.0)],
}
NEAR_THE_EDGE = {
    "two_moons": (0.9, 0.95),
    "slcp": (2.9, -2.8, 1.6, 1.7, 1.0),
    "gaussian_linear": (0.3, -0.2) * 5,
    "gaussian_linear_uniform": (0.7, 0.0, -0.7, 0.5, 0.1) * 2,
    "gaussian_mixture": (9.8, -9.5),
}
EXACT = [name for name in problems.list() if problems.get(name).log_likelihood is not None]
CASES = [(name, theta) for name, thetas in THETAS.items() for theta in thetas]


@pytest.mark.parametrize(("name", "theta"), CASES)
def test_the_simulator_agrees_with_numpy(name, theta):
    n = 20_000
    ours = simulations(problems.get(name), theta, n)
    assert_same_distribution(ours, IN_NUMPY[name](np.random.default_rng(1), theta, n))


@pytest.mark.parametrize("name", problems.list())
def test_the_simulator_runs_behind_the_common_call(name):
    problem = problems.get(name)
    theta = problem.prior.sample(np.random.default_rng(0), 5)
    outcomes = problem.simulator(3, Rows(np.arange(5), theta))
    shapes = [outcome.x.shape for outcome in outcomes if outcome.x is not None]
    assert len(shapes) > 2  # of some problems, simulations may fail
    assert set(shapes) == {problem.observation.shape}
    allowed = {Status.DONE} if name in EXACT else {Status.DONE, Status.INVALID}
    assert {outcome.status for outcome in outcomes} <= allowed


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("name", problems.list())
def test_the_simulator_keeps_its_types(name, double):
    problem = problems.get(name)
    assert isinstance(problem.simulator, apt.JaxSimulator)
    theta = jax.ShapeDtypeStruct((3, problem.prior.dim), np.float32)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"), jax.enable_x64(double):
        keys = jax.random.split(jax.random.key(0), 3)
        x = jax.eval_shape(jax.vmap(problem.simulator.function), keys, theta)
    assert (x.shape, x.dtype) == ((3, *problem.observation.shape), np.float32)


@pytest.mark.parametrize("name", [name for name in problems.list() if problems.get(name).network])
def test_the_network_of_the_paper_takes_the_data(name):
    problem = problems.get(name)
    method, dim = apt.APT(**problem.network), problem.prior.dim

    def log_prob(key, x, theta):
        embedding, features = build_embedding(method.embedding, key, x.shape)
        return Embedded(embedding, method.estimator.build(key, dim, features))(x).log_prob(theta)

    x, theta = (jax.ShapeDtypeStruct(shape, np.float32) for shape in (problem.observation.shape, (dim,)))
    assert jax.eval_shape(log_prob, jax.random.key(0), x, theta).shape == ()


def test_two_moons_likelihood_integrates_to_one():
    theta = np.array([0.3, -0.7])
    origin = np.array([0.25 - 0.4 / np.sqrt(2), -1 / np.sqrt(2)])
    step = 5e-4  # a twentieth of the ring's width
    side = np.arange(-0.16 + step / 2, 0.16, step)
    grid = origin + np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    density = np.exp(np.asarray(likelihood(problems.get("two_moons"))(theta, grid), np.float64))
    assert density.sum() * step**2 == pytest.approx(1, abs=1e-3)
    assert np.all(density[grid[:, 0] < origin[0]] == 0)


def test_slcp_likelihood_is_four_gaussians():
    problem = problems.get("slcp")
    rng = np.random.default_rng(0)
    thetas = rng.uniform(-3, 3, (50, 5))
    thetas[:, 2:4] += 0.2 * np.sign(thetas[:, 2:4])  # single precision has its limits near zero
    x = problem.observation
    values = np.asarray(likelihood(problems.get("slcp"))(thetas, x))
    for theta, value in zip(thetas, values, strict=True):
        s_1, s_2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
        covariance = np.array([[s_1**2, rho * s_1 * s_2], [rho * s_1 * s_2, s_2**2]])
        normal = multivariate_normal(theta[:2], covariance)  # pyright: ignore[reportArgumentType]
        exact = normal.logpdf(x.reshape(4, 2)).sum()
        assert value == pytest.approx(exact, rel=2e-4)
    assert np.isfinite(likelihood(problems.get("slcp"))(np.zeros(5), x))


@pytest.mark.parametrize("name", EXACT)
def test_the_likelihood_takes_one_draw_or_many(name):
    problem = problems.get(name)
    log_likelihood = likelihood(problem)
    if isinstance(problem.reference, ByMCMC):  # chains take a while, and any theta has a likelihood
        theta = problem.prior.sample(np.random.default_rng(0), 3)
    else:
        theta = problem.reference_posterior(problem.observation, 3)
    x = np.tile(problem.observation, (3, 1))
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        one_by_one = np.stack([log_likelihood(t, problem.observation) for t in theta])
        np.testing.assert_allclose(log_likelihood(theta, problem.observation), one_by_one, rtol=1e-5)
        np.testing.assert_allclose(log_likelihood(theta, x), one_by_one, rtol=1e-5)
        np.testing.assert_allclose(log_likelihood(theta[0], x), one_by_one[0], rtol=1e-5)
        assert simulations(problem, theta[0], 2).shape == x[:2].shape
        with jax.enable_x64(True):
            assert log_likelihood(theta, x).dtype == np.float64
            assert log_likelihood(theta.astype(np.float32), x).dtype == np.float32
            assert simulations(problem, theta[0], 2).shape == x[:2].shape


@pytest.mark.parametrize(("name", "truth"), NEAR_THE_EDGE.items())
def test_the_reference_posterior_is_the_likelihood_in_the_box(name, truth):
    # Prior draws weighted by the likelihood against posterior draws, at an observation near
    # enough to the box's edge that the box matters.
    problem = problems.get(name)
    x_o = IN_NUMPY[name](np.random.default_rng(2), truth, 1)[0]
    theta = problem.prior.sample(np.random.default_rng(3), 400_000)
    weights = np.exp(np.asarray(likelihood(problem)(theta, x_o), np.float64))
    draws = problem.reference_posterior(x_o, 20_000)
    assert np.all(problem.prior.contains(draws))
    assert_weighted_moments(weights, theta, draws)


def test_two_moons_respects_the_fold_at_zero():
    # At x_1 > 1/4 part of the half ring has no theta: |theta_1 + theta_2| cannot be negative.
    problem = problems.get("two_moons")
    theta = problem.reference_posterior([0.3, 0.0], 2000)
    assert np.all(np.asarray(likelihood(problems.get("two_moons"))(theta, np.array([0.3, 0.0]))) > -20)


def test_slcp_against_known_moments():
    # The right-hand sides come from 1e8 weighted prior draws worth 1e4 independent ones.
    problem, n = problems.get("slcp"), 100_000
    draws = problem.reference_posterior(problem.observation, n)
    deviation = np.array([0.427, 0.459, 0.898, 0.994, 0.840])
    error = 4 * deviation * np.sqrt(1 / n + 1e-4) + 5e-4
    np.testing.assert_array_less(abs(draws.mean(0) - [-0.802, -2.629, 0, 0, -0.963]), error)
    np.testing.assert_array_less(abs(draws.std(0) - deviation), error)
    np.testing.assert_array_less(abs(abs(draws[:, 2:4]).mean(0) - [0.851, 0.940]), error[2:4])
    quantiles = np.quantile(draws[:, [0, 1, 4]], [0.05, 0.5, 0.95], axis=0)
    expected = [[-1.53, -2.98, -2.31], [-0.76, -2.77, -1.00], [-0.27, -1.81, 0.48]]
    np.testing.assert_allclose(quantiles, expected, atol=0.06)
    quadrants = (2 * (draws[:, 2] > 0) + (draws[:, 3] > 0)).astype(int)
    share = np.bincount(quadrants, minlength=4) / n
    np.testing.assert_allclose(share, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / n))


def test_the_reference_posterior_is_fixed_by_its_seed():
    problem = problems.get("two_moons")
    first, again = (problem.reference_posterior(problem.observation, 10) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != problem.reference_posterior(problem.observation, 10, seed=1))


def test_an_impossible_observation_is_given_up_in_bounded_time():
    with pytest.raises(SamplingError, match="next to no posterior mass"):
        problems.get("two_moons").reference_posterior([5.0, 5.0], 10)
    with pytest.raises(ValueError, match="four points that do not lie on one line"):
        problems.get("slcp").reference_posterior(np.ones(8), 10)


def test_unusable_observations_are_refused_by_name():
    problem = problems.get("slcp")
    with pytest.raises(ValueError, match=r"x_o must be one observation of 'slcp', shape \(8,\)"):
        problem.reference_posterior(np.zeros((1, 8)), 10)
    with pytest.raises(ValueError, match="x_o must be finite"):
        problem.reference_posterior(np.full(8, np.nan), 10)
    with pytest.raises(ValueError, match="n must be a whole number"):
        problem.reference_posterior(problem.observation, 0)


def test_a_problem_is_checked_when_built_and_says_what_it_lacks():
    known = problems.get("two_moons")
    bare = Problem("bare", known.prior, known.simulator, np.zeros(2))
    assert bare.names == ("theta_1", "theta_2")
    with pytest.raises(NotImplementedError, match="'bare' has no exact posterior"):
        bare.reference_posterior(np.zeros(2), 10)
    with pytest.raises(ValueError, match="truth must have one value per parameter"):
        Problem("bare", known.prior, known.simulator, np.zeros(2), truth=np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        bare.observation[0] = 1.0


def test_names():
    assert problems.list()[:2] == ("two_moons", "slcp")
    for name in problems.list():
        problem = problems.get(name)
        assert problem.name == name
        assert len(problem.names) == problem.prior.dim
    with pytest.raises(ValueError, match="Did you mean 'slcp'"):
        problems.get("slpc")
    with pytest.raises(ValueError, match="Known names: two_moons, slcp"):
        problems.get("?")


def test_the_table_lists_every_problem():
    from aptinfer.problems.__main__ import table

    lines = table().splitlines()
    assert [line.split()[0] for line in lines] == ["name", *problems.list()]


def test_importing_the_package_loads_no_problem():
    code = "import sys, aptinfer.problems; print([m for m in sys.modules if 'slcp' in m])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
