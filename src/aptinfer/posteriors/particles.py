r"""Posteriors that are weighted draws, of particles or of Markov chains. They have no density.

E[f(theta) | x_o]  ~  sum_i w_i f(theta_i),        effective size  (sum_i w_i)^2 / sum_i w_i^2
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aptinfer.checks import positive_float
from aptinfer.posteriors.base import Posterior, checked_probabilities
from aptinfer.posteriors.kernels import BELONG, Kernels, SmoothedPosterior, around
from aptinfer.protocols import Proposal
from aptinfer.samplers.draws import agreement
from aptinfer.spaces import Frame

MOST_KERNELS = 5000  # more particles are thinned before they are smoothed


@dataclass(frozen=True, eq=False, repr=False)
class ParticlePosterior(Posterior):
    """Weighted draws at x_o.

    `mean`, `std` and `quantiles` use the weights as they are. `sample` picks particles by weight, so that
    draws repeat as soon as there are more of them than particles, or some particles weigh more than others.

    Attributes:
        frame, observation, event: as in `Posterior`.
        values, theta: the particles (n, dim), in the frame's coordinates and as parameters.
        weights: (n,), with sum one.
        chains: number of Markov chains whose states the particles are, one record of all chains after the
            other; None for particles of their own.
        proposal: what the method draws from next; None for the prior.
    """

    frame: Frame
    observation: np.ndarray
    event: tuple[int, ...]
    values: np.ndarray
    theta: np.ndarray
    weights: np.ndarray
    chains: int | None = None
    proposal: Proposal | None = None

    @property
    def effective_size(self) -> float:
        """How many independent draws the particles are worth; of chains, for the worst coordinate."""
        if self.chains is not None:
            return self._agreement[1]
        return float(1 / np.sum(self.weights**2))

    @property
    def r_hat(self) -> float:
        """How well chains agree, 1 being perfect; NaN where there are none."""
        return np.nan if self.chains is None else self._agreement[0]

    def draw(self, key, n):
        rng = key.generator()
        chosen = rng.permutation(systematic(rng, self.weights, n))
        return self.values[chosen], self.theta[chosen]

    def log_prob_inside(self, values):
        raise ValueError(
            "this posterior is a set of weighted particles and has no density. posterior.smoothed() has one, "
            "a kernel density over the particles; posteriors of apt.APT() and apt.NPE() have their own."
        )

    def at(self, observation):
        if np.array_equal(observation, self.observation):
            return self
        raise ValueError(BELONG)

    def smoothed(self, bandwidth: float | None = None) -> SmoothedPosterior:
        """A Gaussian kernel around every particle: a posterior with a density, whose draws do not repeat.

        The kernels have the particles' covariance times bandwidth^2, in the frame's coordinates: in latent
        ones nothing is smoothed over the edges of the prior. Narrow or separate peaks come out too wide.

        Args:
            bandwidth: of the kernels, in units of the posterior's width; by default N^(-1/(dim + 4)) with N
                the effective number of particles.
        """
        width = None if bandwidth is None else positive_float("bandwidth", bandwidth)
        kernels = self._kernels(self.values, width)
        return SmoothedPosterior(self.frame, self.observation, self.event, kernels)

    def mean(self):
        return self.weights @ self.theta

    def std(self):
        return np.sqrt(self.weights @ (self.theta - self.mean()) ** 2)

    def quantiles(self, probabilities=(0.05, 0.5, 0.95)):
        """Marginal quantiles, (probabilities, dim): the particles where the sum of weights passes them."""
        q = checked_probabilities(probabilities)
        return np.quantile(self.theta, q, axis=0, weights=self.weights, method="inverted_cdf")

    def map(self, *, seed: int = 0) -> np.ndarray:
        """The particle of highest density, after smoothing over theta: narrow peaks are smoothed too.

        Not in latent coordinates, where a density over theta is infinitely noisy at the edges of the prior.
        """
        del seed  # for the interface: nothing is drawn
        kernels = self._kernels(self.theta, None)
        return kernels.values[np.argmax(kernels.log_density(kernels.values))]

    def __repr__(self):
        kind = "particles" if self.chains is None else f"states of {self.chains} chains"
        return f"ParticlePosterior({', '.join(self.names)}; {len(self.weights)} {kind})"

    def _kernels(self, places: np.ndarray, width: float | None) -> Kernels:
        """Kernels around the particles, wherever they are; of too many, around some."""
        weights = self.weights
        if len(places) > MOST_KERNELS:
            chosen = systematic(np.random.default_rng(0), weights, MOST_KERNELS)
            places, weights = places[chosen], equal_weights(MOST_KERNELS)
        width = width or float(np.sum(weights**2) ** (1 / (places.shape[1] + 4)))
        covariance = np.atleast_2d(np.cov(places.T, aweights=weights, ddof=0))
        return around(places, weights, width**2 * covariance)

    @cached_property
    def _agreement(self) -> tuple[float, float]:
        assert self.chains is not None
        records = self.values.reshape(-1, self.chains, self.values.shape[-1])
        return agreement(records.swapaxes(0, 1))


def equal_weights(n: int) -> np.ndarray:
    """`n` weights of 1/n, which share one number in memory."""
    return np.broadcast_to(1 / n, (n,))


def systematic(rng: np.random.Generator, weights: np.ndarray, n: int) -> np.ndarray:
    """`n` places by weight, in their order: each as often as expected, rounded down or up."""
    total = np.cumsum(weights)
    points = (np.arange(n) + rng.uniform()) / n * total[-1]
    return np.minimum(np.searchsorted(total, points, side="right"), len(weights) - 1)
