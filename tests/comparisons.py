"""Helpers of the tests of problems: simulations, published posteriors, and tolerances from sample sizes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.problems.problem import Problem
from aptinfer.simulators import JaxSimulator

PUBLISHED = Path(__file__).parents[2] / "shared" / "reference"


def published(name: str) -> dict[str, np.ndarray]:
    """The published reference posteriors, where this checkout has them beside it."""
    path = PUBLISHED / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    with path.open("rb") as file, np.load(file) as archive:
        return dict(archive)


def simulations(problem: Problem, theta, n: int) -> np.ndarray:
    """n draws of x at one theta, from the problem's own JAX function."""
    assert isinstance(problem.simulator, JaxSimulator)
    keys = jax.random.split(jax.random.key(0), n)
    simulate = jax.jit(jax.vmap(problem.simulator.function, in_axes=(0, None)))
    return np.asarray(simulate(keys, jnp.asarray(theta, jnp.float32)), np.float64)


def likelihood(problem: Problem):
    """The problem's log-likelihood, compiled."""
    assert problem.log_likelihood is not None
    return jax.jit(problem.log_likelihood)


def assert_equal_means(first: np.ndarray, second: np.ndarray) -> None:
    """Column means agree within five standard errors of their difference."""
    error = np.sqrt(first.var(0) / len(first) + second.var(0) / len(second))
    np.testing.assert_array_less(np.abs(first.mean(0) - second.mean(0)), 5 * error + 1e-6)


def assert_equal_quantiles(first: np.ndarray, second: np.ndarray) -> None:
    """Each column's shares below common thresholds agree within five standard errors."""
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        # A little above: whole numbers, whatever their rounding, then fall on the same side in both.
        threshold = np.quantile(second, share, axis=0, method="inverted_cdf") + 1e-4
        below = [np.mean(x <= threshold, axis=0) for x in (first, second)]
        error = np.sqrt(below[1] * (1 - below[1]) * (1 / len(first) + 1 / len(second)))
        np.testing.assert_array_less(np.abs(below[0] - below[1]), 5 * error + 1e-12)


def products(x: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """All products of two centred columns: their means are the covariances."""
    centred = x - centre
    return (centred[:, :, None] * centred[:, None, :]).reshape(len(x), -1)


def assert_same_distribution(first: np.ndarray, second: np.ndarray) -> None:
    """Means, covariances and quantiles agree."""
    assert_equal_means(first, second)
    centre = second.mean(0)
    assert_equal_means(products(first, centre), products(second, centre))
    assert_equal_quantiles(first, second)


def assert_weighted_moments(weights: np.ndarray, theta: np.ndarray, draws: np.ndarray) -> None:
    """Means and second moments of weighted theta are those of posterior draws within five errors."""
    weights = weights / weights.sum()
    size = 1 / np.sum(weights**2)
    assert size > 100
    kept = weights > 1e-12
    weights, theta, centre = weights[kept], theta[kept], draws.mean(0)
    for f in (lambda t: t, lambda t: products(t, centre)):
        a, b = f(theta), f(draws)
        error = np.sqrt(b.var(0) * (1 / size + 1 / len(b)))
        np.testing.assert_array_less(np.abs(weights @ a - b.mean(0)), 5 * error)
