"""The Bernoulli generalised linear model of a neuron, which three problems share.

A stimulus I_t of one number per time bin drives spikes y_t ∈ {0, 1} through a bias b_0 and a filter h_1
... h_9 over the present and the eight bins before it,

    ψ_t = b_0 + Σ_j h_j I_{t-j+1},    P(y_t = 1) = 1 / (1 + exp(-ψ_t)),

or ψ = V theta with the design matrix V. The likelihood depends on the spikes through x = V^T y alone, the
spike count and nine spike-triggered sums:

    log p(y | theta) = theta · x - Σ_t log(1 + exp(ψ_t)).

Two spike trains with the same x would have to agree in nine sums of continuous numbers; as none do, this
is also log p(x | theta). The prior is Gaussian, with precision 1/2 for the bias and F^T F for the filter,
where F = D D + diag(sqrt(i / 9), i = 0 ... 8) and D takes differences of neighbours: the filter is
smooth, and shrinks with its lag.

References: Lueckmann, Goncalves et al., "Flexible statistical inference for mechanistic models of neural
dynamics", NeurIPS 2017; Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation", ICML 2019.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from aptinfer.priors import gaussian
from aptinfer.priors.gaussian import GaussianPrior
from aptinfer.problems.mcmc import ByMCMC
from aptinfer.problems.problem import one_pair

__all__ = ["Neuron", "design_matrix", "prior_covariance", "prior"]

BINS = 100
TAPS = 9
DIM = 1 + TAPS
NAMES = ("b_0", *(f"h_{j}" for j in range(1, DIM)))
EXACT = jax.lax.Precision.HIGHEST  # graphics cards round the factors of products otherwise


def design_matrix(stimulus: np.ndarray) -> np.ndarray:
    """V, one row per bin: a one, then the stimulus 0, 1, ... 8 bins ago, zero before it began."""
    delayed = [np.concatenate([np.zeros(lag), stimulus[: len(stimulus) - lag]]) for lag in range(TAPS)]
    return np.column_stack([np.ones(len(stimulus)), *delayed])


def prior_covariance() -> np.ndarray:
    """The inverse of blockdiag(1/2, F^T F)."""
    difference = np.eye(TAPS) - np.eye(TAPS, k=-1)
    factor = difference @ difference + np.diag(np.sqrt(np.arange(TAPS) / TAPS))
    precision = np.zeros((DIM, DIM))
    precision[0, 0] = 0.5
    precision[1:, 1:] = factor.T @ factor
    return np.linalg.inv(precision)


def prior() -> GaussianPrior:
    """N(0, `prior_covariance`), with the parameters' names."""
    return gaussian(np.zeros(DIM), prior_covariance(), names=NAMES)


class Neuron:
    """The model for one stimulus.

    Args:
        stimulus: one number per time bin, the same for every simulation.
    """

    def __init__(self, stimulus: np.ndarray):
        self.design = design_matrix(stimulus)

    def spikes(self, key: Array, theta: Array) -> Array:
        """One spike train y, zeros and ones, given theta of shape (10,)."""
        psi = jnp.matmul(jnp.asarray(self.design, theta.dtype), theta, precision=EXACT)
        return jax.random.bernoulli(key, jax.nn.sigmoid(psi)).astype(theta.dtype)

    def simulate(self, key: Array, theta: Array) -> Array:
        """One draw of the sufficient statistics x = V^T y, shape (10,)."""
        y = self.spikes(key, theta)
        return jnp.matmul(y, jnp.asarray(self.design, theta.dtype), precision=EXACT)

    def log_likelihood(self, theta: ArrayLike, x: ArrayLike) -> Array:
        """log p(x | theta) of sufficient statistics, exactly."""
        return one_pair(self._log_likelihood)(theta, x)

    def log_likelihood_of_spikes(self, theta: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | theta) of spike trains, exactly."""
        return one_pair(self._log_likelihood_of_spikes)(theta, y)

    def reference(
        self, name: str, log_likelihood: Callable[..., Array], options: Mapping[str, Any] | None = None
    ) -> ByMCMC:
        """Posterior draws for the problem called `name`, from one of the likelihoods above."""
        root = np.linalg.cholesky(prior_covariance()).astype(np.float32)

        def forward(z: Array) -> Array:
            return jnp.matmul(z, root.T, precision=EXACT)

        return ByMCMC(name, DIM, forward, log_likelihood, options or {})

    def _log_likelihood(self, theta: Array, x: Array) -> Array:
        psi = jnp.matmul(jnp.asarray(self.design, theta.dtype), theta, precision=EXACT)
        return jnp.sum(theta * x) - jnp.sum(jax.nn.softplus(psi))

    def _log_likelihood_of_spikes(self, theta: Array, y: Array) -> Array:
        x = jnp.matmul(y, jnp.asarray(self.design, theta.dtype), precision=EXACT)
        return self._log_likelihood(theta, x)
