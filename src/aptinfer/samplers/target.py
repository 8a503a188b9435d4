"""What is sampled: a prior times a likelihood, each known at one point z at a time.

log π(z) = log p(z) + log L(params, z) + constant
"""

from abc import ABC, abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aptinfer.errors import SamplingError
from aptinfer.keys import Key
from aptinfer.precision import precise

Scalar = Float[Array, ""]
Vector = Float[Array, " dim"]

BLOCK = 1000  # prior draws evaluated at a time
BLOCKS = 100  # give up after so many without a single possible one


class Target(ABC):
    """An unnormalised posterior over z of `dim` numbers.

    The prior is N(0, I) unless a subclass has its own; then it brings `log_prior` and `draw_prior` together.
    Every function is compiled once per target: a target that is a frozen dataclass shares compiled programs
    with its equals, any other one with itself alone.

    Example:
        >>> class Learned(Target):
        ...     dim = 2
        ...     def log_likelihood(self, params, z):
        ...         estimator, x_o = params
        ...         return estimator(z).log_prob(x_o)
    """

    dim: int
    prior_on_host: bool = False  # whether `log_prior` cannot be compiled: see `HostPrior`

    @abstractmethod
    def log_likelihood(self, params: Any, z: Vector) -> Scalar:
        """log L(z), up to a constant. What is not finite counts as impossible.

        Args:
            params: arrays that may differ from call to call: trained weights, an observation.
            z: one point.
        """

    def log_prior(self, z: Vector) -> Scalar:
        """log p(z), up to a constant; -inf outside the support."""
        return -0.5 * jnp.sum(z**2)

    def draw_prior(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """`n` draws of the prior, (n, dim), on the host."""
        return rng.standard_normal((n, self.dim))

    def log_prior_rows(self, z: np.ndarray) -> np.ndarray:
        """log p of each row of z (n, dim), on the host; for targets with `prior_on_host` only."""
        raise NotImplementedError

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if (cls.log_prior is Target.log_prior) != (cls.draw_prior is Target.draw_prior):
            raise TypeError(
                f"{cls.__name__} must define both log_prior and draw_prior, or neither for N(0, I): samplers "
                f"start from draws of the prior."
            )


class HostPrior(Target):
    """A target whose prior is a function of the user's that only the host can call.

    A subclass brings `log_prior_rows` and `draw_prior`. Compiled programs see a flat prior, and samplers that
    move particles (`Automatic`, `TemperedSMC`) or weigh them (`Resampled`) ask the host between two moves. A
    callback out of a compiled program would be simpler, and would hang on a machine with a single core as
    soon as the user's function calls JAX itself.
    """

    prior_on_host = True

    def log_prior(self, z):
        return jnp.zeros((), z.dtype)

    @abstractmethod
    def log_prior_rows(self, z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def draw_prior(self, rng: np.random.Generator, n: int) -> np.ndarray: ...


def refuse_prior_on_host(target: Target, sampler: str) -> None:
    """For samplers whose every evaluation is compiled."""
    if target.prior_on_host:
        raise TypeError(
            f"{sampler} evaluates the prior inside compiled programs, and this prior is a function that "
            f"only the host can call. Let samplers.Automatic() sample, or give the prior as apt.Prior, "
            f"apt.box or apt.gaussian and stay in latent space."
        )


def log_terms(target: Target, params: Any, z: Vector) -> tuple[Scalar, Scalar]:
    """log p(z) and log L(z) in the precision of z, both -inf where either is not finite."""
    log_p = jnp.asarray(target.log_prior(z)).astype(z.dtype)
    log_l = jnp.asarray(target.log_likelihood(params, z)).astype(z.dtype)
    # +inf is an overflow: a chain that accepted it would never leave.
    possible = jnp.isfinite(log_p) & jnp.isfinite(log_l)
    return jnp.where(possible, log_p, -jnp.inf), jnp.where(possible, log_l, -jnp.inf)


def log_density(target: Target, params: Any, z: Vector) -> Scalar:
    """log π(z) up to a constant; -inf where it is impossible."""
    log_p, log_l = log_terms(target, params, z)
    return log_p + log_l


def log_likelihoods(target: Target, params: Any, z: np.ndarray) -> np.ndarray:
    """log L of each row of z (n, dim); -inf where the posterior is impossible."""
    return log_terms_rows(target, params, z)[1]


def log_densities(target: Target, params: Any, z: np.ndarray) -> np.ndarray:
    """log π of each row of z (n, dim), up to a constant; in blocks, so that any number compiles once."""
    out = []
    for start in range(0, len(z), BLOCK):
        part = np.asarray(z[start : start + BLOCK], np.float32)
        padded = np.concatenate([part, np.repeat(part[:1], BLOCK - len(part), axis=0)])
        out.append(np.sum(log_terms_rows(target, params, padded), axis=0)[: len(part)])
    return np.concatenate(out)


def log_terms_rows(target: Target, params: Any, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p and log L of each row of z (n, dim) in float64, both -inf where either is not finite."""
    log_p, log_l = (np.asarray(term, np.float64) for term in _log_terms(target, params, z))
    if target.prior_on_host:
        log_p = target.log_prior_rows(np.asarray(z))
        possible = np.isfinite(log_p) & np.isfinite(log_l)
        log_p, log_l = np.where(possible, log_p, -np.inf), np.where(possible, log_l, -np.inf)
    return log_p, log_l


@eqx.filter_jit
@precise
def _log_terms(target: Target, params: Any, z: Any) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    return jax.vmap(lambda z: log_terms(target, params, z))(z)


def possible_prior_draws(
    key: Key, target: Target, params: Any, n: int, *, blocks: int = BLOCKS
) -> tuple[np.ndarray, np.ndarray]:
    """Prior draws where the posterior has density, and their log-likelihoods: `n`, or as many as are found.

    Raises:
        SamplingError: there is none among all the draws that are tried.
    """
    rng = key.generator()
    draws, heights, found = [], [], 0
    for _ in range(max(blocks, -(-n // BLOCK))):
        z = np.asarray(target.draw_prior(rng, BLOCK), np.float32)
        if z.shape != (BLOCK, target.dim):
            raise ValueError(
                f"{type(target).__name__}.draw_prior(rng, {BLOCK}) must return shape "
                f"({BLOCK}, {target.dim}); got {z.shape}."
            )
        log_l = log_likelihoods(target, params, z)
        possible = np.isfinite(log_l)
        draws.append(z[possible])
        heights.append(log_l[possible])
        found += int(possible.sum())
        if found >= n:
            break
    if not found:
        raise SamplingError(
            f"none of {len(draws) * BLOCK} draws from the prior has a finite posterior density. The "
            f"observation may be impossible under this model, or the networks may return NaN: check x_o, and "
            f"that training went well."
        )
    return np.concatenate(draws)[:n], np.concatenate(heights)[:n]
