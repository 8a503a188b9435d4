r"""The integral of an unnormalised posterior, from draws of it.

    Z = ∫ p(z) L(z) dz = E_r[ p(z) L(z) / r(z) ],   r = 1/5 t_4(z; mean, 4 cov) + 4/5 Σ_k t_4(z; c_k, S_k) / K

r is fitted to the draws (`local_mixture.py`); its first part is wider than all of them and bounds the weights
where the others have overlooked something. Its tails are heavier than a Gaussian prior's.
"""

from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from aptinfer.keys import Key
from aptinfer.samplers.local_mixture import FREEDOM, LocalMixture
from aptinfer.samplers.target import Target, log_densities

WIDE = 0.2  # share of the part that covers everything
POINTS = 20_000
BLOCK = 1000  # points whose density under r is computed at a time


def log_evidence(
    key: Key, target: Target, params: Any, draws: np.ndarray, n: int = POINTS
) -> tuple[float, float]:
    """log Z and its standard error.

    Args:
        key: of the random numbers.
        target, params: what was sampled.
        draws: (m, dim), of the posterior.
        n: points of the importance sampler.
    """
    rng = key.generator()
    draws = np.asarray(draws, np.float64)
    dim = draws.shape[1]
    local = LocalMixture.fit(rng, draws, draws)
    spread = np.atleast_2d(np.cov(draws.T))
    wide = np.linalg.cholesky(4 * spread + 1e-12 * np.eye(dim))
    centres = np.concatenate([draws.mean(axis=0)[None], local.centres]).astype(np.float64)
    factors = np.concatenate([wide[None], local.factors]).astype(np.float64)
    shares = np.concatenate([[WIDE], np.full(len(local.centres), (1 - WIDE) / len(local.centres))])
    k = rng.choice(len(shares), n, p=shares)
    heavy = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, n))[:, None]
    z = centres[k] + heavy * np.einsum("nij,nj->ni", factors[k], rng.standard_normal((n, dim)))
    z = z.astype(np.float32)
    log_r = np.concatenate(
        [_log_r(part, shares, centres, factors) for part in np.split(z, range(BLOCK, n, BLOCK))]
    )
    log_w = log_densities(target, params, z) - log_r
    log_z = float(logsumexp(log_w) - np.log(n))
    weights = np.exp(log_w - log_z)
    return log_z, float(weights.std() / np.sqrt(n))


def _log_r(z: np.ndarray, shares: np.ndarray, centres: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """log density of the mixture of Student t distributions at each row of z."""
    dim = z.shape[1]
    inverses = np.linalg.inv(factors)
    white = np.einsum("kij,nj->nki", inverses, z) - np.einsum("kij,kj->ki", inverses, centres)
    log_scales = np.sum(np.log(np.diagonal(inverses, axis1=1, axis2=2)), axis=1)
    constant = gammaln((FREEDOM + dim) / 2) - gammaln(FREEDOM / 2) - dim / 2 * np.log(FREEDOM * np.pi)
    log_t = log_scales - 0.5 * (FREEDOM + dim) * np.log1p(np.sum(white**2, axis=2) / FREEDOM)
    return constant + logsumexp(log_t, axis=1, b=shares)
