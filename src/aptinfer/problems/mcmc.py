"""Posterior draws where only a density is known: tempered particles, then many random-walk chains.

Chains live in the prior's latent coordinates, z ~ N(0, I) and theta = theta(z), where the posterior is

    π(z) ∝ N(z; 0, I) p(x_o | theta(z)).

1. Draws of the prior become draws near the posterior through targets N(z; 0, I) p(x_o | theta(z))^b, with
   powers 0 < b_1 < ... < 1 such that each reweighting leaves half of the particles effective. They are
   resampled, and walk, at every power; so every mode that the prior's draws find keeps its share.
2. At b = 1 each particle becomes a chain of random-walk Metropolis steps N(0, 2.38²/dim S), S being the
   covariance of all particles: the optimal scale for a Gaussian target.
3. Chains are recorded so rarely that what is kept is nearly independent, and only if they agree (R-hat).

The likelihood is all that is needed, no gradient; all chains are one compiled loop.

References: Del Moral, Doucet & Jasra, "Sequential Monte Carlo samplers", JRSS B 2006; Roberts, Gelman &
Gilks, "Weak convergence and optimal scaling of random walk Metropolis algorithms", AAP 1997; Vehtari et
al., "Rank-normalization, folding, and localization: an improved R-hat", Bayesian Analysis 2021.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import aptinfer
from aptinfer import caching
from aptinfer.errors import SamplingError
from aptinfer.precision import precise
from aptinfer.threefry import THREEFRY

__all__ = ["ByMCMC", "Draws"]

CHAINS = 500
RECORDS = 8  # per chain, at least: R-hat compares the halves
TEMPERED_STEPS = 5  # per dimension, at each power of the likelihood
SETTLING_STEPS = 20  # per dimension, before the first record
THINNING_STEPS = 10  # per dimension, between records
POWERS = 100  # at most
LARGEST_R_HAT = 1.02

LogLikelihood = Callable[[Array, Array], Array]


class Draws(NamedTuple):
    """Posterior draws (n, dim), and how well chains agreed: a parameter's worst R-hat and effective size."""

    theta: np.ndarray
    r_hat: float
    effective: float


@dataclass(frozen=True, eq=False)
class ByMCMC:
    """A problem's `reference` by MCMC on its known likelihood, kept in the user's cache folder.

    Args:
        name: the problem's name.
        dim: the number of parameters.
        forward: theta (n, dim) from z (n, dim), in JAX: the prior's bijection.
        log_likelihood: the problem's own.
        options: what else the posterior depends on; kept draws are told apart by it.
    """

    name: str
    dim: int
    forward: Callable[[Array], Array]
    log_likelihood: Callable[..., Array]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
        return self.draws(rng, x_o, n).theta

    def draws(self, rng: np.random.Generator, x_o: np.ndarray, n: int, *, fresh: bool = False) -> Draws:
        """Draws with their diagnostics, from the cache unless they are to be `fresh`."""
        key = (aptinfer.__version__, self.name, sorted(self.options.items()), x_o.tobytes(), n)
        settings = (CHAINS, RECORDS, TEMPERED_STEPS, SETTLING_STEPS, THINNING_STEPS)
        stream = repr(rng.bit_generator.state)  # stands for the seed

        def compute() -> dict[str, np.ndarray]:
            return {k: np.asarray(v) for k, v in self._sample(rng, x_o, n)._asdict().items()}

        kept = caching.kept(self.name, repr((*key, *settings, stream)), compute, fresh=fresh)
        return Draws(kept["theta"], float(kept["r_hat"]), float(kept["effective"]))

    def _sample(self, rng: np.random.Generator, x_o: np.ndarray, n: int) -> Draws:
        records = max(RECORDS, -(-n // CHAINS))
        z = chains(self._log_likelihood_of_z, rng, x_o, self.dim, records)
        r_hat, effective = agreement(z)
        if not r_hat < LARGEST_R_HAT:
            raise SamplingError(
                f"The chains on the posterior of {self.name!r} have not mixed: R-hat is {r_hat:.3f} and "
                f"should be below {LARGEST_R_HAT}. Check that x_o is an observation that this problem can "
                f"produce; another seed may do better."
            )
        rows = rng.permutation(z.reshape(-1, self.dim))[:n]
        return Draws(np.asarray(self.forward(jnp.asarray(rows)), np.float64), r_hat, effective)

    def _log_likelihood_of_z(self, z: Array, x: Array) -> Array:
        return self.log_likelihood(self.forward(z), x)


def chains(
    log_likelihood: LogLikelihood, rng: np.random.Generator, x_o: np.ndarray, dim: int, records: int
) -> np.ndarray:
    """Recorded states of `CHAINS` chains, shape (CHAINS, records, dim), each walked from the prior.

    Args:
        log_likelihood: `(z, x_o) -> (CHAINS,)` for z of shape (CHAINS, dim); NaN counts as impossible.
        rng: the source of all randomness.
        x_o: the observation.
        dim: the number of parameters.
        records: states kept of each chain.
    """
    x = jnp.asarray(x_o, jnp.float32)

    def walk(z: np.ndarray, factor: np.ndarray, power: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        key = jax.random.key(rng.integers(2**32, dtype=np.uint32), impl=THREEFRY)
        single = (np.asarray(value, np.float32) for value in (z, factor, power))
        z, log_l = _walk(log_likelihood, key, x, *single, steps * dim)
        return np.asarray(z, np.float64), np.asarray(log_l, np.float64)

    z, log_l = walk(rng.normal(size=(CHAINS, dim)), np.eye(dim), 0.0, 0)
    power = 0.0
    for _ in range(POWERS):
        power, weights = _next_power(power, log_l)
        z = z[_resampled(rng, weights)]
        z, log_l = walk(z, _step_factor(z), power, TEMPERED_STEPS)
        if power == 1:
            break
    else:
        raise SamplingError(
            f"After {POWERS} powers of the likelihood, the largest being {power:.2g}, the particles are "
            f"still on their way to the posterior: x_o is far from what the prior can produce."
        )
    z, _ = walk(z, _step_factor(z), 1.0, SETTLING_STEPS)
    # One and the same step from here on: a chain whose steps follow its states has another limit.
    factor = _step_factor(z)
    records_of_z = []
    for _ in range(records):
        z, _ = walk(z, factor, 1.0, THINNING_STEPS)
        records_of_z.append(z)
    return np.stack(records_of_z, axis=1)


def agreement(z: np.ndarray) -> tuple[float, float]:
    """The largest split R-hat and the smallest effective size over the parameters, of chains (m, n, dim)."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    sizes = effective_sample_size(z)
    return float(np.max(split_gelman_rubin(z))), float(min(np.min(sizes), z.shape[0] * z.shape[1]))


@functools.partial(jax.jit, static_argnums=0)
@precise
def _walk(
    log_likelihood: LogLikelihood, key: Array, x: Array, z: Array, factor: Array, power: Array, steps: Array
) -> tuple[Array, Array]:
    """All chains after `steps` Metropolis steps, and their log-likelihoods."""

    def possible(z: Array) -> Array:
        log_l = log_likelihood(z, x)
        return jnp.where(jnp.isnan(log_l), -jnp.inf, log_l)

    def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        z, log_l = state
        key_move, key_accept = jax.random.split(jax.random.fold_in(key, i))
        new = z + jax.random.normal(key_move, z.shape) @ factor.T
        new_log_l = possible(new)
        log_ratio = power * (new_log_l - log_l) - 0.5 * jnp.sum(new**2 - z**2, axis=1)
        # From one impossible state to another the ratio is NaN, and the step is not taken.
        taken = jnp.log(jax.random.uniform(key_accept, log_l.shape)) < log_ratio
        return jnp.where(taken[:, None], new, z), jnp.where(taken, new_log_l, log_l)

    return lax.fori_loop(0, steps, step, (z, possible(z)))


def _step_factor(z: np.ndarray) -> np.ndarray:
    """A square root of the proposal's covariance, 2.38²/dim times that of the particles."""
    dim = z.shape[1]
    covariance = np.atleast_2d(np.cov(z.T))
    # Particles that all sit in one place have no covariance to take a root of.
    floor = 1e-10 + 1e-6 * np.trace(covariance) / dim
    return 2.38 / np.sqrt(dim) * np.linalg.cholesky(covariance + floor * np.eye(dim))


def _next_power(power: float, log_l: np.ndarray) -> tuple[float, np.ndarray]:
    """The next power of the likelihood, and the particles' weights: half of them stay effective."""
    if not np.any(np.isfinite(log_l)):
        raise SamplingError("No draw of the prior can produce x_o: its likelihood is zero for all of them.")
    relative = log_l - np.max(log_l)

    def weights(step: float) -> np.ndarray:
        w = np.exp(step * relative)
        return w / w.sum()

    def effective(step: float) -> float:
        return float(1 / np.sum(weights(step) ** 2))

    possible = int(np.sum(np.isfinite(log_l)))
    low, high = 0.0, 1.0 - power
    if effective(high) >= possible / 2:
        return 1.0, weights(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) > possible / 2 else (low, middle)
    return power + high, weights(high)


def _resampled(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Indices drawn by weight, systematically: each particle's count is its expectation, rounded."""
    positions = (rng.uniform() + np.arange(len(weights))) / len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), positions), len(weights) - 1)
