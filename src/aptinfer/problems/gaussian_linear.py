"""Gaussian linear: ten means with a Gaussian prior, where everything is known in closed form.

    theta ~ N(0, 0.1 I),    x ~ N(theta, 0.1 I),    theta | x ~ N(x / 2, 0.05 I),    all in ten dimensions.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.1.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from aptinfer.priors import gaussian
from aptinfer.problems import benchmark
from aptinfer.problems.problem import Problem, one_pair
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "log_likelihood"]

DIM = 10
VARIANCE = 0.1  # of the prior, and of the noise


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (10,) given theta of shape (10,)."""
    return theta + math.sqrt(VARIANCE) * jax.random.normal(key, theta.shape, theta.dtype)


@one_pair
def log_likelihood(theta: Array, x: Array) -> Array:
    """log p(x | theta), exactly."""
    return -0.5 * jnp.sum((x - theta) ** 2) / VARIANCE - 0.5 * DIM * math.log(2 * math.pi * VARIANCE)


def reference(rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
    """Exact, independent posterior draws: prior and likelihood are equally wide."""
    return rng.normal(x_o / 2, math.sqrt(VARIANCE / 2), (n, DIM))


_observations, _truths = benchmark.observations("gaussian_linear")

problem = Problem(
    name="gaussian_linear",
    prior=gaussian(np.zeros(DIM), VARIANCE * np.eye(DIM)),
    simulator=JaxSimulator(simulate),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=log_likelihood,
    reference=reference,
    observations=_observations,
    truths=_truths,
)
