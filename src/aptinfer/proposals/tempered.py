r"""Proposals between prior and posterior, or beyond it: p~(v) proportional to q(v)^b p(v)^(1 - b).

b < 1 emphasises the tails, b > 1 the peaks. In latent space p is N(0, I); a single Gaussian q stays one, with
precision I + b (P - I). For any other q draws come from tempered particles (`samplers`), as for a posterior
with the likelihood (q / p)^b.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from aptinfer.checks import of_round, one_or_one_each, positive_float, suggests_keywords
from aptinfer.estimators.mog import LOG_2PI, HostMixture, clipped
from aptinfer.keys import Key
from aptinfer.posteriors import DirectPosterior
from aptinfer.posteriors.direct import mean_log_prob
from aptinfer.proposals.choice import ProposalChoice
from aptinfer.protocols import Draws
from aptinfer.samplers import Target, TemperedSMC


@dataclass(frozen=True)
class Tilted(Target):
    """N(0, I) times (q / p)^b; `params` are the estimator, the condition and b."""

    dim: int

    def log_likelihood(self, params: Any, z):
        estimator, condition, power = params
        log_prior = -0.5 * jnp.sum(z**2) - np.float32(0.5 * LOG_2PI * self.dim)
        return power * (mean_log_prob(estimator, condition, z) - log_prior)


@dataclass(frozen=True)
class FromTilted:
    """Particles of a tempered posterior."""

    posterior: DirectPosterior
    power: float
    source: int

    def draw(self, key: Key, n: int) -> Draws:
        q = self.posterior
        params = (q.estimator, q.condition, np.float32(self.power))
        target = Tilted(q.frame.prior.dim)
        particles = max(1000, n + n % 2)
        value = TemperedSMC(particles).starts(key, target, params, n).values.astype(np.float32)
        return Draws(value, q.frame.to_theta(value), np.full(n, self.source, np.int32))


@suggests_keywords
@dataclass(frozen=True)
class Tempered(ProposalChoice):
    """The last posterior to the power `power`, times the prior to the rest.

    Args:
        power: below one for the tails, above one for the peaks. Or one for each round after the first, of
            which the last one stays: `(0.01, 0.1, 0.5)` does not trust what the first rounds found.
    """

    power: float | tuple[float, ...] = 0.5

    def __post_init__(self):
        object.__setattr__(self, "power", one_or_one_each("Tempered power", self.power, positive_float))

    def power_of(self, number: int) -> float:
        """The power of round `number`, where 0 is the round that draws from the prior."""
        return of_round(self.power, max(number - 1, 0))

    def check(self, frame, members):
        del members
        if not frame.always_inside:
            raise ValueError(self._elsewhere())

    def after(self, posterior, number):
        self.check(posterior.frame, 1)
        if not isinstance(posterior, DirectPosterior):
            raise ValueError(self._elsewhere())
        return FromTilted(posterior, self.power_of(number), number)

    def _elsewhere(self) -> str:
        return (
            f"{self!r} needs a posterior with a density in latent space, where the prior is N(0, I): use "
            f"space=apt.Latent() with apt.APT(), or proposal=apt.Defensive()."
        )

    def check_mixture(self, components):
        if components != 1:
            raise ValueError(
                f"{self!r} of a mixture of {components} Gaussians is no mixture of Gaussians, which closed "
                f"forms need. Use estimator=apt.MDN(1), loss=apt.GaussianProposal() or loss=apt.Atomic()."
            )

    def reshaped(self, mixture, prior, number):
        power, precision = self.power_of(number), np.linalg.inv(mixture.covariances[0])
        covariance = np.linalg.inv(prior.precision + power * (precision - prior.precision))
        shift = power * precision @ mixture.means[0] + (1 - power) * prior.precision @ prior.mean
        return clipped(HostMixture(np.ones(1), (covariance @ shift)[None], covariance[None]), prior)
