"""SIR: the rates of an epidemic from ten tests of a thousand people.

    dS/dt = -beta S I / N,    dI/dt = beta S I / N - gamma I,    dR/dt = gamma I,

from (S, I, R) = (N - 1, 1, 0) with N = 10⁶, seen at t = 0, 17, ..., 153 through tests of a thousand
people: x_k ~ Binomial(1000, I_k / N). The prior is log-normal, log beta ~ N(log 0.4, 0.5²) and log gamma
~ N(log 0.125, 0.2²). As shares of N, susceptible and infected are prey and predators of the equations in
`two_species.py`; R follows from them.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.9.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import LogNormal
from scipy.special import gammaln

from aptinfer.priors import Prior
from aptinfer.problems import benchmark
from aptinfer.problems.mcmc import ByMCMC
from aptinfer.problems.problem import Problem, each, floats
from aptinfer.problems.two_species import log_populations
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "log_likelihood"]

PEOPLE = 1e6
TESTS = 1000
LOG_MEAN, LOG_SCALE = (math.log(0.4), math.log(0.125)), (0.5, 0.2)
INTERVAL, TIMES, STEPS = 17.0, 10, 125
# log of the number of ways to choose k of 1000, k = 0 ... 1000
WAYS = gammaln(TESTS + 1) - gammaln(np.arange(TESTS + 1) + 1) - gammaln(TESTS - np.arange(TESTS + 1) + 1)


def log_infected(theta: Array) -> Array:
    """log (I / N) at the ten times, given theta of shape (2,)."""
    beta, gamma = theta
    rates = jnp.stack([jnp.zeros_like(beta), beta, gamma, beta])
    start = jnp.asarray([math.log1p(-1 / PEOPLE), -math.log(PEOPLE)], theta.dtype)
    # Rounding may carry the share of infected an epsilon beyond one, where it has no logarithm of the rest.
    below_one = -float(jnp.finfo(theta.dtype).eps)
    return jnp.minimum(log_populations(rates, start, INTERVAL, TIMES, STEPS)[:, 1], below_one)


def log_binomial(log_share: Array, counts: Array) -> Array:
    """log P(counts) of Binomial(1000, exp(log_share)); -inf where counts are no whole numbers up to 1000."""
    possible = (counts >= 0) & (counts <= TESTS) & (counts == jnp.round(counts))
    k = jnp.where(possible, counts, jnp.zeros_like(counts))
    ways = jnp.asarray(WAYS, log_share.dtype)[k.astype(jnp.int32)]
    return jnp.where(possible, ways + k * log_share + (TESTS - k) * jnp.log1p(-jnp.exp(log_share)), -jnp.inf)


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (10,), whole numbers up to 1000, given theta of shape (2,)."""
    log_share = log_infected(theta)
    counts = jnp.arange(TESTS + 1).astype(theta.dtype)
    log_prob = jax.vmap(log_binomial, (None, 0))(log_share, counts)  # of every count, at every time
    # The inverse of the distribution function: jax.random.binomial takes ten times as long to compile.
    uniform = jax.random.uniform(key, (1, TIMES), theta.dtype)
    count = jnp.sum(jnp.cumsum(jnp.exp(log_prob[:-1]), axis=0) < uniform, axis=0).astype(theta.dtype)
    return jnp.where(jnp.isfinite(log_share), count, jnp.nan)


def log_likelihood(theta: ArrayLike, x: ArrayLike) -> Array:
    """log p(x | theta), exactly; -inf where x is impossible or the equations cannot be solved."""
    theta, x = floats(theta, x)
    log_share = each(log_infected, theta)  # once per theta, however many x

    def given_share(log_share: Array, x: Array) -> Array:
        total = jnp.sum(log_binomial(log_share, x))
        return jnp.where(jnp.isnan(total), -jnp.inf, total)

    return each(given_share, log_share, x)


def forward(z: Array) -> Array:
    """theta from z ~ N(0, I)."""
    return jnp.exp(jnp.asarray([LOG_MEAN], z.dtype) + jnp.asarray([LOG_SCALE], z.dtype) * z)


_observations, _truths = benchmark.observations("sir")

problem = Problem(
    name="sir",
    prior=Prior(
        beta=LogNormal(LOG_MEAN[0], LOG_SCALE[0]),
        gamma=LogNormal(LOG_MEAN[1], LOG_SCALE[1]),
    ),
    simulator=JaxSimulator(simulate),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=log_likelihood,
    reference=ByMCMC("sir", 2, forward, log_likelihood),
    observations=_observations,
    truths=_truths,
)
