"""A proposal mixed with the prior: no weight of a row can explode, and no region is ever left alone."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aptinfer.checks import positive_float, suggests_keywords
from aptinfer.estimators.mog import HostMixture
from aptinfer.keys import Key
from aptinfer.proposals.choice import ProposalChoice, as_choice
from aptinfer.proposals.posterior import LastPosterior
from aptinfer.proposals.prior import FromPrior
from aptinfer.protocols import Draws, Proposal
from aptinfer.spaces import Frame


@dataclass(frozen=True)
class WithPrior:
    """Another proposal's draws, each replaced by one of the prior with probability `share`."""

    other: Any
    frame: Frame
    share: float

    def draw(self, key: Key, n: int) -> Draws:
        drawn, prior = self.other.draw(key.child(0), n), FromPrior(self.frame).draw(key.child(1), n)
        swap = (key.child(2).generator().uniform(size=n) < self.share)[:, None]
        value = np.where(swap, prior.value, drawn.value)
        return Draws(value, np.where(swap, prior.theta, drawn.theta), drawn.source)

    def log_ratio(self, value: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return np.logaddexp(np.log(self.share), np.log1p(-self.share) + self.other.log_ratio(value, theta))


@suggests_keywords
@dataclass(frozen=True)
class Defensive(ProposalChoice):
    """Another proposal, with a share of draws from the prior in between.

    Args:
        share: of the draws that come from the prior.
        proposal: where the others come from.
    """

    share: float = 0.1
    proposal: Any = field(default_factory=LastPosterior)

    def __post_init__(self):
        if not positive_float("Defensive share", self.share) < 1:
            raise ValueError(f"Defensive share must be a share between 0 and 1, got {self.share}.")
        object.__setattr__(self, "proposal", as_choice(self.proposal))

    @property
    def has_density(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.proposal.has_density

    def after(self, posterior, number) -> Proposal:
        return WithPrior(self.proposal.after(posterior, number), posterior.frame, self.share)

    def check(self, frame, members):
        self.proposal.check(frame, members)

    def check_mixture(self, components):
        self.proposal.check_mixture(components)

    def reshaped(self, mixture, prior, number):
        """The prior is one more component."""
        if not prior.precision.any():
            raise ValueError(
                f"{self!r} has no closed form under a flat prior, which is no Gaussian component. Learn in "
                f"latent space (space=apt.Latent()), or use loss=apt.Atomic()."
            )
        mixture = self.proposal.reshaped(mixture, prior, number)
        return HostMixture(
            np.append((1 - self.share) * mixture.weights, self.share),
            np.concatenate([mixture.means, prior.mean[None]]),
            np.concatenate([mixture.covariances, np.linalg.inv(prior.precision)[None]]),
        )
