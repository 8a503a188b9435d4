"""Lotka-Volterra ODE: rates of predators and prey from ten noisy counts of each.

    dX/dt = alpha X - beta X Y,    dY/dt = delta X Y - gamma Y,    (X, Y) = (30, 1) at t = 0,

seen at t = 0, 2.1, ..., 18.9 through multiplicative noise: log x ~ N(log u, 0.1²) for every population u,
which is clipped to [1e-10, 1e4]. x holds the ten values of X, then those of Y. The prior is log-normal,

    log (alpha, beta, gamma, delta) ~ N((-0.125, -3, -0.125, -3), 0.5² I).

A solution that cannot be trusted is NaN, a failed simulation (`two_species.py`), which happens to less
than one in 10 000 draws of the prior. The paper's Lotka-Volterra problem is another one, a Markov jump
process.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.10.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import LogNormal

from aptinfer.priors import Prior
from aptinfer.problems import benchmark
from aptinfer.problems.mcmc import ByMCMC
from aptinfer.problems.problem import Problem, each, floats
from aptinfer.problems.two_species import log_populations
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "log_likelihood"]

NAMES = ("alpha", "beta", "gamma", "delta")
LOG_MEAN, LOG_SCALE = (-0.125, -3.0, -0.125, -3.0), 0.5
START = (30.0, 1.0)
INTERVAL, TIMES, STEPS = 2.1, 10, 150
SMALLEST, LARGEST = 1e-10, 1e4
NOISE = 0.1


def log_means(theta: Array) -> Array:
    """log u of all ten X, then all ten Y, shape (20,), given theta of shape (4,)."""
    start = jnp.log(jnp.asarray(START, theta.dtype))
    path = log_populations(theta, start, INTERVAL, TIMES, STEPS)
    return jnp.clip(path, math.log(SMALLEST), math.log(LARGEST)).T.reshape(2 * TIMES)


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (20,) given theta of shape (4,)."""
    return jnp.exp(log_means(theta) + NOISE * jax.random.normal(key, (2 * TIMES,), theta.dtype))


def log_likelihood(theta: ArrayLike, x: ArrayLike) -> Array:
    """log p(x | theta), exactly; -inf where x is not positive or the equations cannot be solved."""
    theta, x = floats(theta, x)
    means = each(log_means, theta)  # once per theta, however many x

    def given_means(means: Array, x: Array) -> Array:
        possible = jnp.all(x > 0) & jnp.all(jnp.isfinite(means))
        log_x = jnp.log(jnp.where(x > 0, x, jnp.ones_like(x)))
        density = -0.5 * ((log_x - means) / NOISE) ** 2 - log_x - math.log(NOISE * math.sqrt(2 * math.pi))
        return jnp.where(possible, jnp.sum(density), -jnp.inf)

    return each(given_means, means, x)


def forward(z: Array) -> Array:
    """theta from z ~ N(0, I)."""
    return jnp.exp(jnp.asarray([LOG_MEAN], z.dtype) + LOG_SCALE * z)


_observations, _truths = benchmark.observations("lotka_volterra_ode")

problem = Problem(
    name="lotka_volterra_ode",
    prior=Prior(**{name: LogNormal(mean, LOG_SCALE) for name, mean in zip(NAMES, LOG_MEAN, strict=True)}),
    simulator=JaxSimulator(simulate),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=log_likelihood,
    reference=ByMCMC("lotka_volterra_ode", len(NAMES), forward, log_likelihood),
    observations=_observations,
    truths=_truths,
)
