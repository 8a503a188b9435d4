"""Mixtures of Gaussians and their algebra, written once.

A component is N(value; m, P^-1) with precision P = U'U and U upper triangular with a positive diagonal,
as in the paper's mixture density networks: densities need no solve, and log|P| = 2 sum log U_jj.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.estimators.density import Density

LOG_2PI = float(np.log(2 * np.pi))


class Mixture(Density):
    """sum_k w_k N(value; m_k, (U_k'U_k)^-1)."""

    log_weights: Float[Array, " components"]
    means: Float[Array, "components dim"]
    factors: Float[Array, "components dim dim"]

    def log_prob(self, value: Float[Array, " dim"]) -> Float[Array, ""]:
        # U v - U m rather than U (v - m): over many values v this is one matrix product, and what it loses
        # in float32 is no more than the rounding of v itself costs, |v| / width * 6e-8.
        scaled = jnp.einsum("kij,j->ki", self.factors, value) - jnp.einsum(
            "kij,kj->ki", self.factors, self.means
        )
        log_norm = half_log_det(self.factors) - np.float32(0.5 * LOG_2PI * value.shape[0])
        return logsumexp(self.log_weights + log_norm - 0.5 * jnp.sum(scaled**2, axis=-1))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        which, noise = jax.random.split(key)
        k = jax.random.categorical(which, self.log_weights)
        eps = jax.random.normal(noise, self.means.shape[1:], self.means.dtype)
        return self.means[k] + solve_triangular(self.factors[k], eps)


def half_log_det(factors: Float[Array, "*batch dim dim"]) -> Float[Array, "*batch"]:
    """log|U| = (log|P|) / 2 of triangular factors."""
    return jnp.sum(jnp.log(jnp.diagonal(factors, axis1=-2, axis2=-1)), axis=-1)


class GaussianTerms(NamedTuple):
    """The prior's part in the closed form: N(mean, precision^-1); flat when the precision is zero."""

    mean: np.ndarray
    precision: np.ndarray


class Ratio(eqx.Module):
    """p~(value) / p(value) for a mixture p~ and a Gaussian (or flat) prior p, ready for `log_normaliser`.

    S_k'S_k = P~_k - P_0 is positive semi-definite by construction (`clipped_ratio`).
    """

    log_weights: Float[Array, " components"]  # log b_k + (log|P~_k| - log|P_0|) / 2
    means: Float[Array, "components dim"]
    roots: Float[Array, "components dim dim"]  # S_k
    slopes: Float[Array, "components dim"]  # g_k = P_0 (m~_k - m_0)
    offsets: Float[Array, " components"]  # (m~_k - m_0)' P_0 (m~_k - m_0)


def log_normaliser(q: Mixture, ratio: Ratio) -> Float[Array, ""]:
    r"""log Z = log of the integral of q(v) p~(v) / p(v), for every pair of components in closed form.

    With u = v - m~_k and d = m_i - m~_k the exponent of a pair (i, k) is

        -1/2 [ |U_i (u - d)|^2 + |S_k u|^2 - 2 g_k'u - c_k ],    g_k = P_0 (m~_k - m_0),
                                                                c_k = (m~_k - m_0)'P_0(m~_k - m_0),

    a least-squares problem. It is solved by orthogonalising the stacked factors [U_i; S_k] rather than
    by adding the precisions: with eigenvalues from 1e-3 to 1e6 a sum of precisions is not positive
    definite any more in float32, and far from the origin its terms cancel. With R'R = P_i + P~_k - P_0,
    u* the minimiser of the two squares and rho^2 their minimum,

        log Z_ik = log a_i + log b_k + (log|P_i| + log|P~_k| - log|P_0|) / 2 - log|R|
                   - 1/2 [ rho^2 - 2 g_k'u* - |R^-T g_k|^2 - c_k ].

    Equations 8-12 of the paper's appendix give the same product; only the order of operations differs.
    """
    d = q.means[:, None, :] - ratio.means[None, :, :]
    target = jnp.einsum("iab,ikb->ika", q.factors, d)
    stacked = jnp.concatenate(
        [
            jnp.broadcast_to(q.factors[:, None], (*d.shape[:2], *q.factors.shape[1:])),
            jnp.broadcast_to(ratio.roots[None], (*d.shape[:2], *q.factors.shape[1:])),
        ],
        axis=-2,
    )
    goal = jnp.concatenate([target, jnp.zeros_like(target)], axis=-1)
    r_inverse, half_log_det_r, u, residual = _least_squares(stacked, goal)
    slope = jnp.einsum("ikab,ka->ikb", r_inverse, ratio.slopes)  # R^-T g
    exponent = (
        residual
        - 2 * jnp.einsum("ikb,kb->ik", u, ratio.slopes)
        - jnp.sum(slope**2, axis=-1)
        - ratio.offsets[None, :]
    )
    log_weights = q.log_weights + half_log_det(q.factors)
    return logsumexp(log_weights[:, None] + ratio.log_weights[None, :] - half_log_det_r - 0.5 * exponent)


def divided(q: Mixture, ratio: Ratio) -> Mixture:
    r"""q(v) p(v) / p~(v), normalised, for a proposal of one Gaussian: the inverse of multiplying by p~/p.

    With S'S = P~ - P_0, d = m_i - m~ and g = P_0 (m~ - m_0) each component becomes one with

        P' = P_i - S'S,    h = S'S d - g,    m' = m_i + P'^-1 h,
        log a'_i = log a_i + (log|P_i| - log|P'| + h'P'^-1 h + |S d|^2) / 2 - d'g    up to a constant.

    P' = U'(I - T'T)U with T = S U^-1 is taken apart where U has whitened it, so that float32 is enough. Where
    I - T'T is not positive definite the quotient is no density, and every number of that component is NaN.
    """
    identity = jnp.eye(q.means.shape[1], dtype=q.means.dtype)

    def one(log_weight, mean, factor):
        inverse = solve_triangular(factor, identity)  # U^-1
        whitened = ratio.roots[0] @ inverse
        lower = jnp.linalg.cholesky(identity - whitened.T @ whitened)
        d = mean - ratio.means[0]
        along = ratio.roots[0] @ d
        h = ratio.roots[0].T @ along - ratio.slopes[0]
        half = solve_triangular(lower, inverse.T @ h, lower=True)  # |half|^2 = h'P'^-1 h
        shift = inverse @ solve_triangular(lower.T, half)
        change = jnp.sum(half**2) + jnp.sum(along**2) - 2 * jnp.sum(d * ratio.slopes[0])
        log_weight = log_weight - jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * change
        return log_weight, mean + shift, lower.T @ factor

    log_weights, means, factors = jax.vmap(one)(q.log_weights, q.means, q.factors)
    return Mixture(jax.nn.log_softmax(log_weights), means, factors)


def _least_squares(a, b):
    """Solve min |a u - b|^2 for stacks of tall matrices by modified Gram-Schmidt.

    Returns R^-1, log|R|, u and the squared residual. Plain array operations over the whole stack are
    much faster here than one LAPACK call per small matrix, and differentiate well; unlike classical
    Gram-Schmidt, the modified one is as accurate as Householder's for R and for the residual of b.
    """
    n = a.shape[-1]
    # Orthogonalise [a, b] and, in the same sweep, apply the same operations to the identity: R^-1.
    inverse = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), (*a.shape[:-2], n, n))
    log_det = jnp.zeros(a.shape[:-2], a.dtype)
    u = jnp.zeros((*a.shape[:-2], n), a.dtype)
    for j in range(n):
        norm = jnp.sqrt(jnp.sum(a[..., :, j] ** 2, axis=-1))
        log_det = log_det + jnp.log(norm)
        direction = a[..., :, j] / norm[..., None]
        column = inverse[..., :, j] / norm[..., None]
        along_b = jnp.sum(direction * b, axis=-1)
        b = b - direction * along_b[..., None]
        u = u + column * along_b[..., None]
        along = jnp.einsum("...m,...mc->...c", direction, a[..., :, j + 1 :])
        a = a.at[..., :, j + 1 :].add(-direction[..., :, None] * along[..., None, :])
        inverse = inverse.at[..., :, j].set(column)
        inverse = inverse.at[..., :, j + 1 :].add(-column[..., :, None] * along[..., None, :])
    return inverse, log_det, u, jnp.sum(b**2, axis=-1)


class HostMixture(NamedTuple):
    """A mixture by its covariances, on the host in float64."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def projected(self) -> "HostMixture":
        """The single Gaussian with the same mean and covariance."""
        mean = self.weights @ self.means
        away = self.means - mean
        spread = np.einsum("k,ki,kj->ij", self.weights, away, away)
        covariance = np.einsum("k,kij->ij", self.weights, self.covariances) + spread
        return HostMixture(np.ones(1), mean[None], covariance[None])

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        which = rng.choice(len(self.weights), size=n, p=self.weights)
        noise = rng.standard_normal((n, self.means.shape[1]))
        roots = np.linalg.cholesky(self.covariances)
        return self.means[which] + np.einsum("nij,nj->ni", roots[which], noise)


def on_host(mixture: Mixture) -> HostMixture:
    """The mixture in float64, by its covariances."""
    weights = np.exp(np.asarray(mixture.log_weights, np.float64))
    inverse = np.linalg.inv(np.asarray(mixture.factors, np.float64))
    return HostMixture(
        weights / weights.sum(),
        np.asarray(mixture.means, np.float64),
        inverse @ np.swapaxes(inverse, -1, -2),
    )


def clipped(mixture: HostMixture, prior: GaussianTerms) -> HostMixture:
    """Each component's covariance clipped at the prior's, in the prior's own metric.

    Then P~_k - P_0 is positive semi-definite, so P_i + P~_k - P_0 >= P_i for every estimator: the
    closed form exists for each pair of components, whatever the network says. Drawing from this very
    density keeps the loss exact. Under a flat prior nothing needs clipping.
    """
    if not prior.precision.any():
        return mixture
    root = np.linalg.cholesky(prior.precision)  # value -> root' value has prior covariance I
    back = np.linalg.inv(root).T
    eigenvalues, vectors = np.linalg.eigh(root.T @ mixture.covariances @ root)
    vectors = back @ vectors
    shrunk = np.clip(eigenvalues, 1e-12, 1.0)
    covariances = np.einsum("kij,kj,klj->kil", vectors, shrunk, vectors)
    return mixture._replace(covariances=covariances)


def density_ratio(mixture: HostMixture, prior: GaussianTerms) -> Ratio:
    """p~/p of a clipped mixture, computed in float64, as the float32 (NumPy) arrays of `log_normaliser`."""
    dim = mixture.means.shape[1]
    log_det_tilde = -np.linalg.slogdet(mixture.covariances)[1]
    if prior.precision.any():
        root = np.linalg.cholesky(prior.precision)
        eigenvalues, vectors = np.linalg.eigh(root.T @ mixture.covariances @ root)
        excess = np.sqrt(np.maximum(1 / eigenvalues - 1, 0.0))
        roots = excess[..., :, None] * (np.swapaxes(vectors, -1, -2) @ root.T)
        log_det_prior = np.linalg.slogdet(prior.precision)[1]
    else:
        roots = np.linalg.inv(np.linalg.cholesky(mixture.covariances))
        log_det_prior = dim * LOG_2PI  # a flat prior's density is one, without a Gaussian's constant
    away = mixture.means - prior.mean
    slopes = away @ prior.precision
    arrays = (
        np.log(np.maximum(mixture.weights, 1e-38)) + 0.5 * (log_det_tilde - log_det_prior),
        mixture.means,
        roots.reshape(-1, dim, dim),
        slopes,
        np.sum(slopes * away, axis=-1),
    )
    return Ratio(*(np.asarray(array, np.float32) for array in arrays))  # pyright: ignore
