"""Gaussian linear, uniform prior: ten means in a box, whose walls cut the posterior off.

    theta ~ U[-1, 1]^10,    x ~ N(theta, 0.1 I),    theta | x ~ N(x, 0.1 I) within the box.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.2.
"""

import math

import numpy as np
from scipy.stats import truncnorm

from aptinfer.priors import box
from aptinfer.problems import benchmark
from aptinfer.problems.gaussian_linear import DIM, VARIANCE, log_likelihood, simulate
from aptinfer.problems.problem import Problem
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "log_likelihood"]

BOUND = 1.0


def reference(rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
    """Exact, independent posterior draws: each parameter has its own truncated Gaussian."""
    scale = math.sqrt(VARIANCE)
    low, high = (-BOUND - x_o) / scale, (BOUND - x_o) / scale
    return np.asarray(truncnorm.rvs(low, high, loc=x_o, scale=scale, size=(n, DIM), random_state=rng))


_observations, _truths = benchmark.observations("gaussian_linear_uniform")

problem = Problem(
    name="gaussian_linear_uniform",
    prior=box([-BOUND] * DIM, [BOUND] * DIM),
    simulator=JaxSimulator(simulate),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=log_likelihood,
    reference=reference,
    observations=_observations,
    truths=_truths,
)
