"""The correlated Gaussian prior, whitened by its Cholesky factor.

theta = mean + L z,    L L' = covariance,    log p(theta) = log N(z; 0, I) - log det L.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from aptinfer.checks import finite_array
from aptinfer.priors.joint import JointPrior, checked_names
from aptinfer.priors.marginal_maps import LOG_ROOT_TWO_PI, round_inside


class GaussianPrior(JointPrior):
    """N(mean, covariance) over named parameters; see `gaussian` for the arguments."""

    def __init__(self, mean: Any, covariance: Any, names: Sequence[str] | None = None):
        mean, covariance = finite_array("mean", mean), finite_array("covariance", covariance)
        if mean.ndim != 1 or len(mean) == 0:
            raise ValueError(f"mean must have shape (dim,), got shape {mean.shape}.")
        dim = len(mean)
        if covariance.shape != (dim, dim):
            raise ValueError(
                f"covariance must have shape ({dim}, {dim}) like the mean, got "
                f"{covariance.shape}. For independent parameters use numpy.diag(variances)."
            )
        gap = np.abs(covariance - covariance.T).max()
        if gap > 1e-8 * np.abs(covariance).max():
            raise ValueError(
                f"covariance must be symmetric, but differs from its transpose by up to {gap:g}. "
                "Use (covariance + covariance.T) / 2 if that is rounding."
            )
        covariance = (covariance + covariance.T) / 2
        eigenvalues = np.linalg.eigvalsh(covariance)
        if eigenvalues[0] <= dim * np.finfo(np.float64).eps * abs(eigenvalues[-1]):
            raise ValueError(
                f"covariance must be positive definite; its smallest eigenvalue is "
                f"{eigenvalues[0]:g} (largest {eigenvalues[-1]:g}). Drop or loosen a direction."
            )
        self.names = checked_names(names, dim)
        self._mean, self._covariance = mean, covariance
        self._factor = np.linalg.cholesky(covariance)

    @property
    def gaussian_moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._mean.copy(), self._covariance.copy()

    def to_dict(self) -> dict[str, Any]:
        """Mean and covariance as lists."""
        return {
            "kind": "gaussian",
            "names": list(self.names),
            "mean": self._mean.tolist(),
            "covariance": self._covariance.tolist(),
        }

    def __repr__(self) -> str:
        return f"gaussian({', '.join(self.names)})"

    def _forward(self, z, dtype):
        low, high = self.support
        return round_inside(self._mean + z @ self._factor.T, low, high, dtype)

    def _inverse(self, theta):
        z = solve_triangular(self._factor, (theta - self._mean).T, lower=True, check_finite=False).T
        z[~self._contains(theta)] = np.nan
        return z

    def _log_prob(self, theta):
        square = (self._inverse(theta) ** 2).sum(axis=1)
        constant = np.log(np.diag(self._factor)).sum() + self.dim * LOG_ROOT_TWO_PI
        return np.where(self._contains(theta), -0.5 * square - constant, -np.inf)

    def _contains(self, theta):
        return np.isfinite(theta).all(axis=1)

    def _sample(self, rng, n):
        return self._forward(rng.standard_normal((n, self.dim)), np.float64)
