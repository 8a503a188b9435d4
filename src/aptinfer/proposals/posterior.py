"""The last round's posterior at x_o: the default."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aptinfer.keys import Key
from aptinfer.posteriors import Posterior
from aptinfer.proposals.choice import ProposalChoice
from aptinfer.protocols import Draws


@dataclass(frozen=True)
class FromPosterior:
    """Draws of a posterior, a frozen copy; `source` is the round they belong to.

    `key` is that of draws which the posterior has made already; else the round brings its own.
    """

    posterior: Posterior
    source: int
    key: Key | None = None

    def draw(self, key: Key, n: int) -> Draws:
        value, theta = self.posterior.draw(self.key or key, n)
        return Draws(value.astype(np.float32), theta, np.full(n, self.source, np.int32))

    def log_ratio(self, value: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return self.posterior.log_prob_inside(value) - self.posterior.frame.log_prior(value, theta)


@dataclass(frozen=True)
class LastPosterior(ProposalChoice):
    """Each round proposes from the posterior of the round before it, as in the paper."""

    has_density: ClassVar[bool] = True

    def after(self, posterior, number):
        return FromPosterior(posterior, number)

    def reshaped(self, mixture, prior, number):
        del prior, number
        return mixture

    def check_mixture(self, components):
        del components
