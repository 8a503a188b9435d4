"""The density of the true parameters under draws, by a kernel density estimate.

Draws of any method, particles too, become a density

    p(theta) = Σ_i w_i Π_j N(theta_j; theta_ij, b_j²),    b_j = N^(-1/(dim + 4)) · std_j,

where std_j is the draws' own standard deviation and N their number. One estimate for all methods keeps
them comparable; published curves mixed two bandwidths, this one and N^(-1/(dim + 4)) in the parameters' own
units. Where a method has a density of its own, such as `posterior.log_prob`, report that too: the estimate
smooths narrow posteriors, and cannot see far tails.

References: Papamakarios et al., "Sequential neural likelihood", AISTATS 2019; Scott, "Multivariate
density estimation", 1992, for the bandwidth's rate.
"""

import numpy as np

from aptinfer import checks
from aptinfer.diagnostics import arrays

__all__ = ["kde_log_density"]


@checks.suggests_keywords
def kde_log_density(
    samples: object, point: object, *, weights: object = None, bandwidth: object = None
) -> float:
    """Log-density of `point` under a Gaussian kernel density estimate from `samples`.

    The paper's figures show its negative, -log p(theta*), from 5000 draws. With weights, N is the effective
    number of draws, 1 / Σ w_i², and standard deviations are weighted.

    Args:
        samples: `(n, dim)` array of draws, at least two rows.
        point: `(dim,)` array, such as the parameters that generated the observation.
        weights: `(n,)` array of importance weights, in any unit; None for equal ones.
        bandwidth: standard deviation of the kernels in the parameters' units, a number or a `(dim,)` array;
            None for the rule above.

    Returns:
        log p(point); very negative where no draw is near.

    Example:
        >>> draws = np.random.default_rng(0).normal(size=(5000, 2))
        >>> exact = -np.log(2 * np.pi)  # of N(0, I) at its mean
        >>> bool(abs(kde_log_density(draws, [0, 0]) - exact) < 0.2)
        True
    """
    draws = arrays.rows("samples", samples, minimum=2, reason="to have a spread")
    n, dim = draws.shape
    place = checks.finite_array("point", point)
    if place.shape != (dim,):
        raise ValueError(
            f"point must have shape ({dim},), a number per column of samples; got shape {place.shape}."
        )
    weight = arrays.weights(weights, n)
    widths = _rule(draws, weight) if bandwidth is None else arrays.positive("bandwidth", bandwidth, dim)
    draws, weight = draws[weight > 0], weight[weight > 0]
    distances = (place - draws) / widths
    logs = -0.5 * np.sum(distances**2, axis=1) - np.sum(np.log(widths)) - 0.5 * dim * np.log(2 * np.pi)
    return float(np.logaddexp.reduce(logs + np.log(weight)))


def _rule(draws: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """N^(-1/(dim + 4)) standard deviations."""
    spread = np.sqrt(weight @ (draws - weight @ draws) ** 2)
    if not np.all(spread > 0):
        raise ValueError(
            f"samples have no spread in column {int(np.argmin(spread))}, so that the bandwidth would be 0. "
            f"Give bandwidth=, or leave that column out."
        )
    return spread * np.sum(weight**2) ** (1 / (draws.shape[1] + 4))
