"""Metropolis moves that know a population of particles: many chains at once, no gradient, nothing to tune.

The population is summarised by a mixture of Student t distributions, r(z) = 1/K Σ_k t_ν(z; c_k, S_k): its
centres c_k are particles, and S_k is the covariance of the particles nearest to c_k. With responsibilities
r(k | z), two moves alternate:

    independent    z' ~ r,                                accept with  π(z') r(z) / (π(z) r(z')),
    local          k ~ r(k | z), z' ~ N(z, γ² S_k / dim), accept with  π(z') r(k | z') / (π(z) r(k | z)).

The first crosses between modes, the second follows thin and curved ridges, whose width it knows at each
place. k and z' are proposed together in the second, and the way back has the same k: N cancels. While the
mixture stands still, π is invariant, however bad the mixture. Each half of the particles moves by the mixture
of the other half: a particle that were a centre itself would leave its place too readily.

Against random walks along differences of particles, an independent draw costs as many evaluations on a
correlated Gaussian in ten dimensions, and a sixth to a twentieth on the posteriors of SLCP and of two moons
and on a banana. Slices along such differences cost more than the walks.

References: Roberts & Rosenthal, "Examples of adaptive MCMC", JCGS 2009 (a walk whose scale depends on the
place); Cappé et al., "Population Monte Carlo", JCGS 2004 (mixtures centred on particles).
"""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array

from aptinfer.keys import Key
from aptinfer.precision import precise
from aptinfer.samplers.target import Target, log_terms

COMPONENTS = 200  # fewer in more than five dimensions, where a component has more neighbours
NEIGHBOURS = 5  # per dimension, and component
FREEDOM = 4  # ν; even, so that χ² draws are logarithms of uniform ones
BLOCK = 10  # components are chosen in two steps, first a block of so many
MOVES = 10  # at most, in one call of the compiled program
WALK = 2.4  # γ: the optimal scale for a Gaussian target


class LocalMixture(NamedTuple):
    """r, ready for the device. `whitening` holds all S_k^(-1/2) as rows of one matrix.

    Arrays get a first axis of length two where each half of the particles has its own (`crossed`).
    """

    centres: Any  # (components, dim)
    factors: Any  # (components, dim, dim), lower triangular roots of S_k
    whitening: Any  # (components * dim, dim)
    whitened_centres: Any  # (components * dim,)
    log_scales: Any  # (components,): -log det S_k / 2

    @classmethod
    def fit(cls, rng: np.random.Generator, particles: np.ndarray, around: np.ndarray) -> "LocalMixture":
        """Centres among `particles` (n, dim), neighbours among `around`; duplicates only among the first."""
        x = np.asarray(around, np.float64)
        dim = x.shape[1]
        covariance = np.atleast_2d(np.cov(x.T))
        # Particles that all sit in one place have no covariance to take a root of.
        floor = np.diag(1e-12 + 1e-6 * np.diag(covariance) + 1e-9 * np.trace(covariance) / dim)
        root = np.linalg.inv(np.linalg.cholesky(covariance + floor))
        components = int(np.clip(5 * COMPONENTS / dim, 50, COMPONENTS)) // BLOCK * BLOCK
        chosen = rng.choice(len(particles), components, replace=len(particles) < components)
        centres = np.asarray(particles[chosen], np.float64)
        white, white_centres = x @ root.T, centres @ root.T
        distance = np.sum(white**2, axis=1) - 2 * white_centres @ white.T  # up to a constant per centre
        count = min(NEIGHBOURS * dim, len(x) - 1)
        nearest = np.argpartition(distance, count, axis=1)[:, : count + 1]
        apart = x[nearest] - centres[:, None]
        scatter = np.einsum("kni,knj->kij", apart, apart) / (count + 1)
        factors = np.linalg.cholesky(scatter + floor)
        inverses = np.linalg.inv(factors)
        arrays = (
            centres,
            factors,
            inverses.reshape(-1, dim),
            np.einsum("kij,kj->ki", inverses, centres).reshape(-1),
            -np.sum(np.log(np.diagonal(factors, axis1=1, axis2=2)), axis=1),
        )
        return cls(*(np.asarray(a, np.float32) for a in arrays))

    @classmethod
    def crossed(cls, rng: np.random.Generator, particles: np.ndarray, around: np.ndarray) -> "LocalMixture":
        """For the first half of the particles the mixture of the second half, and the other way round."""
        halves = zip(np.split(particles, 2), np.split(around, 2), strict=True)
        first, second = (cls.fit(rng, *half) for half in halves)
        return cls(*(np.stack(pair) for pair in zip(second, first, strict=True)))


class Walkers(NamedTuple):
    """Where chains are, one per row."""

    z: np.ndarray  # (chains, dim)
    log_l: np.ndarray  # (chains,)
    accepted: float  # moves that were, on average


def walk(
    key: Key, target: Target, params: Any, z: np.ndarray, mixture: LocalMixture, power: float, moves: int
) -> Walkers:
    """All chains after `moves` moves that leave p(z) L(z)^power invariant; each half has its own mixture.

    Every chain must start where the density is above zero.
    """
    (n, dim), components = z.shape, mixture.log_scales.shape[1]
    zeros = np.zeros((2, n // 2), np.float32)
    log_r = np.zeros((2, n // 2, components), np.float32)
    # The first turn moves nowhere and evaluates the start: so the density is compiled once, not twice.
    chains: Any = _Chain(z.reshape(2, n // 2, dim), zeros, zeros, log_r, np.full(zeros.shape, -1, np.int32))
    for done in range(0, moves, MOVES):
        # Random numbers from the host: generators on the device would triple the time that compiling takes.
        u = key.child(done).generator().random((MOVES, 2, n // 2, 4 + dim), np.float32)
        first, last = -1 if done == 0 else 0, min(MOVES, moves - done)
        run = _turns_with_host if target.prior_on_host else _turns
        chains = run(target, params, u, chains, mixture, np.float32(power), np.int32(first), np.int32(last))
    log_l, accepted = np.asarray(chains.log_l, np.float64), float(np.mean(np.asarray(chains.accepted)))
    return Walkers(np.asarray(chains.z).reshape(n, dim), log_l.ravel(), accepted)


class _Chain(NamedTuple):
    """One chain, or all of them along first axes."""

    z: Any  # (dim,)
    log_p: Any
    log_l: Any
    log_r: Any  # (components,): of each component at z, up to one constant
    accepted: Any


@eqx.filter_jit
@precise
def _turns(target: Target, params: Any, uniforms, chains: _Chain, mixture: LocalMixture, power, first, last):
    def turn(i: Array, chains: _Chain) -> _Chain:
        u = jnp.maximum(uniforms[i], 1e-7)  # -1 is the last row: the first turn uses none
        one = functools.partial(_moved, target, params, power, i)
        return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)))(mixture, u, chains)

    return lax.fori_loop(first, last, turn, chains)


def _turns_with_host(target: Target, params: Any, uniforms, chains: _Chain, mixture, power, first, last):
    """The same, asking the host for the prior's density once per turn."""
    for i in range(first, last):
        u = np.maximum(uniforms[i], np.float32(1e-7))
        z, k = _proposals(np.int32(i), mixture, u, chains)
        log_p = target.log_prior_rows(np.asarray(z).reshape(-1, z.shape[-1]))
        log_p = log_p.reshape(z.shape[:-1]).astype(np.float32)
        chains = _decisions(target, params, power, np.int32(i), mixture, u, chains, z, k, log_p)
    return chains


def _moved(
    target: Target, params: Any, power: Any, i: Array, mixture: LocalMixture, u: Array, chain: _Chain
) -> _Chain:
    """One chain after one move, by 4 + dim uniform numbers `u`."""
    z, k = _proposed(i, mixture, u, chain)
    log_p, log_l = log_terms(target, params, z)
    return _decided(power, i, mixture, u, chain, z, k, log_p, log_l)


def _proposed(i: Array, mixture: LocalMixture, u: Array, chain: _Chain) -> tuple[Array, Array]:
    """Where a chain might go, and by which component. Moves alternate; -1 stays and evaluates the start."""
    dim = chain.z.shape[0]
    independent = i % 2 == 0
    shares = jnp.where(independent, jnp.ones_like(chain.log_r), jax.nn.softmax(chain.log_r))
    k = _chosen(shares, u[0])
    chi_squared = -2 * jnp.log(u[1] * u[2])  # with four degrees of freedom
    scale = jnp.where(independent, jnp.sqrt(FREEDOM / chi_squared), WALK / math.sqrt(dim))
    step = scale * (mixture.factors[k] @ ndtri(u[4:]))
    z = jnp.where(i < 0, chain.z, jnp.where(independent, mixture.centres[k], chain.z) + step)
    return z, k


def _decided(power, i, mixture: LocalMixture, u, chain: _Chain, z, k, log_p, log_l) -> _Chain:
    """The chain at `z`, or where it was."""
    first, independent = i < 0, i % 2 == 0
    log_r = _log_components(mixture, z)
    total, new_total = jax.nn.logsumexp(chain.log_r), jax.nn.logsumexp(log_r)
    correction = jnp.where(independent, total - new_total, (log_r - new_total - chain.log_r + total)[k])
    log_ratio = log_p - chain.log_p + power * (log_l - chain.log_l) + correction
    # An impossible z has ratio -inf, or NaN where the power is zero: neither is taken.
    taken = first | ((jnp.log(u[3]) < log_ratio) & jnp.isfinite(log_l))
    new = _Chain(z, log_p, log_l, log_r, chain.accepted + 1)
    return jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, chain)


@eqx.filter_jit
@precise
def _proposals(i, mixture: LocalMixture, u, chains: _Chain):
    return jax.vmap(jax.vmap(functools.partial(_proposed, i), in_axes=(None, 0, 0)))(mixture, u, chains)


@eqx.filter_jit
@precise
def _decisions(target: Target, params: Any, power, i, mixture: LocalMixture, u, chains: _Chain, z, k, log_p):
    def one(mixture, u, chain, z, k, log_p):
        _, log_l = log_terms(target, params, z)
        log_l = jnp.where(jnp.isfinite(log_p), log_l, -jnp.inf)
        return _decided(power, i, mixture, u, chain, z, k, log_p, log_l)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0, 0, 0, 0)))(mixture, u, chains, z, k, log_p)


def _chosen(shares: Array, u: Array) -> Array:
    """The component at which shares add up to the part `u` of them all."""
    blocks = shares.reshape(-1, BLOCK)
    sums = jnp.sum(blocks, axis=1)
    # Triangular matrices, because XLA's cumulative sum would take a third of a move's time.
    reached = np.tri(len(sums), dtype=np.float32) @ sums
    level = u * reached[-1]
    block = jnp.sum(reached[:-1] < level, dtype=jnp.int32)
    within = np.tri(BLOCK, dtype=np.float32) @ blocks[block]
    return block * BLOCK + jnp.sum(within[:-1] < level - reached[block] + sums[block], dtype=jnp.int32)


def _log_components(mixture: LocalMixture, z: Array) -> Array:
    """log t_ν(z; c_k, S_k) of each component, up to one constant."""
    dim = z.shape[0]
    white = (mixture.whitening @ z - mixture.whitened_centres).reshape(-1, dim)
    return mixture.log_scales - 0.5 * (FREEDOM + dim) * jnp.log1p(jnp.sum(white**2, axis=1) / FREEDOM)
