"""Gaussian mixture: one mean seen through broad or through narrow noise, a posterior of two scales.

    theta ~ U[-10, 10]²,    x ~ 1/2 N(theta, I) + 1/2 N(theta, 0.01 I),

the component being drawn anew for every simulation. The posterior is the same mixture about x,
within the box.

References: Sisson, Fan & Tanaka, "Sequential Monte Carlo without likelihoods", PNAS 2007;
Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.7.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from aptinfer.priors import box
from aptinfer.problems import benchmark
from aptinfer.problems.problem import Problem, accepted, one_pair
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "log_likelihood"]

DIM = 2
BOUND = 10.0
SCALES = (1.0, 0.1)


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (2,) given theta of shape (2,)."""
    key_component, key_noise = jax.random.split(key)
    scale = jnp.asarray(SCALES, theta.dtype)[jax.random.randint(key_component, (), 0, len(SCALES))]
    return theta + scale * jax.random.normal(key_noise, theta.shape, theta.dtype)


@one_pair
def log_likelihood(theta: Array, x: Array) -> Array:
    """log p(x | theta), exactly."""
    distance = jnp.sum((x - theta) ** 2)
    broad, narrow = (-0.5 * distance / s**2 - math.log(2 * math.pi * s**2) for s in SCALES)
    return jnp.logaddexp(broad, narrow) - math.log(2)


def reference(rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
    """Exact, independent posterior draws: the mixture about x_o, without those outside the box."""

    def propose(count: int) -> np.ndarray:
        scale = rng.choice(SCALES, (count, 1))
        theta = x_o + scale * rng.normal(size=(count, DIM))
        return theta[np.all(np.abs(theta) <= BOUND, axis=1)]

    return accepted(propose, n)


_observations, _truths = benchmark.observations("gaussian_mixture")

problem = Problem(
    name="gaussian_mixture",
    prior=box([-BOUND] * DIM, [BOUND] * DIM),
    simulator=JaxSimulator(simulate),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=log_likelihood,
    reference=reference,
    observations=_observations,
    truths=_truths,
)
