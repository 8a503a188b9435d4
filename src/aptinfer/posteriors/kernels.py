r"""A Gaussian around every particle, all of one covariance: a density made of draws.

    q(v) = sum_j w_j N(v; v_j, L L')

`SMCABC` proposes from it, and `ParticlePosterior.smoothed` is one, restricted to the prior's support.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from aptinfer.errors import SamplingError
from aptinfer.estimators.mog import LOG_2PI
from aptinfer.keys import Key
from aptinfer.posteriors.base import Posterior
from aptinfer.posteriors.direct import ACCEPTANCE_DRAWS
from aptinfer.spaces import Frame

PAIRS = 2**21  # of values and particles, evaluated at once
FLOOR = 1e-12  # variance of kernels where particles have none: float32 sees no less in the frame's units


class Kernels(NamedTuple):
    """The particles' values and weights, and the lower triangular root of the kernels' covariance."""

    values: np.ndarray
    weights: np.ndarray
    root: np.ndarray

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        centres = self.values[rng.choice(len(self.values), n, p=self.weights)]
        moved = centres + rng.standard_normal(centres.shape) @ self.root.T
        return moved.astype(np.float32)  # the precision in which a run keeps values

    def sample_inside(self, frame: Frame, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """`n` values and their theta; those outside the prior's support are drawn again, centre and all."""
        found, tried = np.empty((0, self.values.shape[1]), np.float32), 0
        while len(found) < n:
            if tried * frame.least_accepted >= n:
                raise SamplingError(
                    f"only {len(found)} of {tried} steps from the particles stay inside the prior's support. "
                    f"Use space=apt.Latent(), where none is lost."
                )
            more = self.sample(rng, n)
            if not frame.always_inside:
                more = more[frame.prior.contains(frame.to_theta(more))]
            found, tried = np.concatenate([found, more]), tried + n
        return found[:n], frame.to_theta(found[:n])

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """log q at every value."""
        centre, kept = self.values.mean(axis=0), self.weights > 0
        ours = np.linalg.solve(self.root, (self.values[kept] - centre).T)
        theirs = np.linalg.solve(self.root, (values - centre).T).T
        terms = np.log(self.weights[kept]) - 0.5 * np.sum(ours**2, axis=0)
        blocks = np.array_split(theirs, max(1, len(theirs) * len(terms) // PAIRS))
        logs = [_log_sums(b @ ours + terms) - 0.5 * np.sum(b**2, axis=1) for b in blocks]
        return np.concatenate(logs) - np.sum(np.log(np.diag(self.root))) - 0.5 * LOG_2PI * len(centre)


def _log_sums(logs: np.ndarray) -> np.ndarray:
    """log of the sum of every row's exponentials."""
    top = logs.max(axis=1)
    return top + np.log(np.exp(logs - top[:, None]).sum(axis=1))


def around(values: np.ndarray, weights: np.ndarray, covariance: np.ndarray) -> Kernels:
    """Kernels of a covariance, which may be zero in directions where particles do not differ."""
    scales = np.sqrt(np.maximum(np.diag(covariance), FLOOR))
    correlation = covariance / np.outer(scales, scales) + FLOOR * np.eye(len(scales))
    return Kernels(values, weights, scales[:, None] * np.linalg.cholesky(correlation))


@dataclass(frozen=True, eq=False, repr=False)
class SmoothedPosterior(Posterior):
    """A kernel density over particles: it has a density, and its draws do not repeat.

    Attributes:
        frame, observation, event: as in `Posterior`.
        kernels: around the particles, in the frame's coordinates.
    """

    frame: Frame
    observation: np.ndarray
    event: tuple[int, ...]
    kernels: Kernels

    def draw(self, key, n):
        return self.kernels.sample_inside(self.frame, key.generator(), n)

    def log_prob_inside(self, values):
        return self.kernels.log_density(np.asarray(values, np.float64)) - np.log(self._share_inside)

    def at(self, observation):
        if np.array_equal(observation, self.observation):
            return replace(self)
        raise ValueError(BELONG)

    @cached_property
    def _share_inside(self) -> float:
        if self.frame.always_inside:
            return 1.0
        value = self.kernels.sample(Key((0,)).generator(), ACCEPTANCE_DRAWS)
        return float(self.frame.prior.contains(self.frame.to_theta(value)).mean())


BELONG = (
    "particles belong to the observation that they were accepted for, and say nothing of another. Run again "
    "with that one as x_o, or learn with apt.NPE(), whose posterior is good at any observation, or with "
    "apt.APT(), near its own."
)
