"""Problems whose posterior is known exactly: the measuring stick for every loss and estimator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

import aptinfer as apt


@dataclass(frozen=True)
class Exact:
    """A problem and its posterior's moments, in coordinates `of(theta)`.

    Attributes:
        marginal: compare each coordinate by itself, where the posterior is no Gaussian in any direction.
        misfit: how far the best mixture of few Gaussians may be from its spread, where it cannot be met.
    """

    name: str
    prior: Any
    simulator: Any
    x_o: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    of: Callable[[np.ndarray], np.ndarray] = lambda theta: theta
    marginal: bool = False
    misfit: float = 0.0


def linear_gaussian(name, prior_mean, prior_covariance, design, noise, x_o, *, log=False) -> Exact:
    """x = design . theta + N(0, noise^2 I), or of log theta under a log-normal prior."""
    import jax
    import jax.numpy as jnp

    design = np.atleast_2d(np.asarray(design, float))
    precision = np.linalg.inv(prior_covariance) + design.T @ design / noise**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ (np.linalg.solve(prior_covariance, prior_mean) + design.T @ x_o / noise**2)
    fixed = np.asarray(design, np.float32)

    def simulate(key, theta):
        parameters = jnp.log(theta) if log else theta
        return fixed @ parameters + np.float32(noise) * jax.random.normal(key, (len(design),), jnp.float32)

    if log:
        import numpyro.distributions as dist

        scales = np.sqrt(np.diag(prior_covariance))
        parts = zip(prior_mean, scales, strict=True)
        prior = apt.Prior(**{f"theta_{j}": dist.LogNormal(m, s) for j, (m, s) in enumerate(parts, 1)})
    else:
        prior = apt.gaussian(prior_mean, prior_covariance)
    of = np.log if log else (lambda theta: theta)
    return Exact(name, prior, apt.JaxSimulator(simulate), np.asarray(x_o, float), mean, covariance, of)


def correlated() -> Exact:
    """Prior correlation 0.95, where dropping the off-diagonal terms of the prior moves the mean by 0.7."""
    prior = np.array([[1.0, 0.95], [0.95, 1.0]])
    return linear_gaussian("correlated", np.zeros(2), prior, np.eye(2), 0.7, np.array([1.2, -0.8]))


def log_normal() -> Exact:
    prior = np.diag([0.5, 0.8]) ** 2
    x_o = np.array([0.3, 0.9])
    return linear_gaussian(
        "log-normal", np.array([0.2, -0.4]), prior, [[1.0, 0.5], [0.3, 1.0]], 0.3, x_o, log=True
    )


def one_dimension() -> Exact:
    return linear_gaussian("1-d", np.zeros(1), np.eye(1), np.eye(1), 0.4, np.array([1.1]))


def ten_dimensions() -> Exact:
    x_o = np.linspace(-1.2, 1.2, 10)
    return linear_gaussian("10-d", np.zeros(10), np.eye(10), np.eye(10), 0.7, x_o)


def cut_box() -> Exact:
    """A box whose two edges cut the posterior: two independent truncated normals."""
    import jax
    import jax.numpy as jnp

    x_o, noise = np.array([0.9, -0.95]), 0.3

    def simulate(key, theta):
        return theta + np.float32(noise) * jax.random.normal(key, (2,), jnp.float32)

    marginals = [stats.truncnorm((-1 - x) / noise, (1 - x) / noise, x, noise) for x in x_o]
    mean = np.array([m.mean() for m in marginals])
    covariance = np.diag([m.var() for m in marginals])
    prior = apt.box([-1, -1], [1, 1])
    return Exact("box", prior, apt.JaxSimulator(simulate), x_o, mean, covariance)


def sum_in_box() -> Exact:
    """Only theta_1 + theta_2 is seen: a ridge along the box, wider in latent space than the prior itself.

    Compared in latent space, by quadrature. The ridge bends there, so a Gaussian cannot follow it, and which
    one is best depends on the proposal. The exact marginal sd is 0.93, with variance 1.7
    along the ridge: an estimator capped at the prior's width would be 23 % too narrow, beyond the bound.
    """
    import jax
    import jax.numpy as jnp

    noise, x_o = 0.1, np.array([0.0])

    def simulate(key, theta):
        total = theta[0] + theta[1]
        return total[None] + np.float32(noise) * jax.random.normal(key, (1,), jnp.float32)

    prior = apt.box([-1, -1], [1, 1])
    z = np.linspace(-5, 5, 801)
    first, second = np.meshgrid(z, z, indexing="ij")
    points = np.stack([first.ravel(), second.ravel()], axis=1)
    theta = prior.forward(points)
    log_weight = -0.5 * ((theta.sum(axis=1) - x_o[0]) / noise) ** 2 - 0.5 * (points**2).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ points
    covariance = (points - mean).T @ ((points - mean) * weight[:, None])
    simulator = apt.JaxSimulator(simulate)
    return Exact("sum", prior, simulator, x_o, mean, covariance, of=prior.inverse, marginal=True, misfit=0.06)


def distance(exact: Exact, theta: np.ndarray) -> tuple[float, float]:
    """How far samples are from the exact posterior, in its own units.

    The error of the mean in posterior standard deviations, and the largest relative error of a standard
    deviation along any direction (or of any coordinate).
    """
    values = exact.of(theta)
    covariance = np.diag(np.diag(exact.covariance)) if exact.marginal else exact.covariance
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    whitened = (values - exact.mean) @ root.T
    mean = float(np.linalg.norm(whitened.mean(axis=0)))
    found = np.atleast_2d(np.cov(whitened.T))
    spread = np.sqrt(np.diag(found) if exact.marginal else np.linalg.eigvalsh(found))
    return mean, float(np.abs(spread - 1).max())
