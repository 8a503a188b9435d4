r"""Posteriors that are weighted draws, of particles or of Markov chains. They have no density.

E[f(theta) | x_o]  ~  sum_i w_i f(theta_i),        effective size  (sum_i w_i)^2 / sum_i w_i^2
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aptinfer.posteriors.base import Posterior, checked_probabilities
from aptinfer.protocols import Proposal
from aptinfer.samplers.draws import agreement
from aptinfer.spaces import Frame

CLIMBED_FROM = 2000  # particles among which the mode's climb starts
CLIMBING = 100  # steps of it at most


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
            "this posterior is a set of weighted particles and has no density. For a smoothed one at a point "
            "use apt.diagnostics.kde_log_density(posterior.theta, point, weights=posterior.weights); for a "
            "density of its own, learn with apt.APT() or apt.NPE()."
        )

    def at(self, observation):
        if np.array_equal(observation, self.observation):
            return self
        raise ValueError(
            "these particles belong to the observation that they were accepted for, and say nothing of "
            "another. Run again with that one as x_o, or learn with apt.NPE(), whose posterior is good at "
            "any observation, or with apt.APT(), near its own."
        )

    def mean(self):
        return self.weights @ self.theta

    def std(self):
        return np.sqrt(self.weights @ (self.theta - self.mean()) ** 2)

    def quantiles(self, probabilities=(0.05, 0.5, 0.95)):
        """Marginal quantiles, (probabilities, dim): the particles where the sum of weights passes them."""
        q = checked_probabilities(probabilities)
        return np.quantile(self.theta, q, axis=0, weights=self.weights, method="inverted_cdf")

    def map(self, *, seed: int = 0) -> np.ndarray:
        """The mode of a Gaussian kernel density over the particles, which smooths narrow peaks.

        The climb starts at the highest of the particles (of 2000 of them, chosen with `seed`, if there are
        more) and moves to the mean of the particles, weighted by their kernels, until it stands still.
        """
        theta = self.sample(CLIMBED_FROM, seed=seed) if len(self.theta) > CLIMBED_FROM else self.theta
        weights = self.weights if theta is self.theta else np.full(len(theta), 1 / len(theta))
        width = np.maximum(self.std() * np.sum(weights**2) ** (1 / (theta.shape[1] + 4)), 1e-300)
        scaled = theta / width

        def pulls(points):
            squares = np.sum((points[:, None] - scaled) ** 2, axis=-1)
            return weights * np.exp(-0.5 * squares)

        heights = np.concatenate(
            [pulls(part).sum(axis=1) for part in np.array_split(scaled, 20) if len(part)]
        )
        point = scaled[[np.argmax(heights)]]
        for _ in range(CLIMBING):
            pull = pulls(point)
            last, point = point, pull @ scaled / pull.sum()
            if np.abs(point - last).max() < 1e-6:
                break
        top = point * width
        # A mean of particles can leave a support that is not convex; the highest particle cannot.
        return top[0] if self.frame.prior.contains(top)[0] else theta[np.argmax(heights)]

    def __repr__(self):
        kind = "particles" if self.chains is None else f"states of {self.chains} chains"
        return f"ParticlePosterior({', '.join(self.names)}; {len(self.weights)} {kind})"

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
