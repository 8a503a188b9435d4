"""A user's own proposal: anything that draws theta. Its density is never asked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aptinfer.checks import finite_array
from aptinfer.keys import Key
from aptinfer.proposals.choice import ProposalChoice
from aptinfer.protocols import Draws
from aptinfer.spaces import Frame


@dataclass(frozen=True)
class FromUser:
    """Draws of an object with `sample(rng, n)`, checked."""

    sampler: Any
    frame: Frame
    source: int

    def draw(self, key: Key, n: int) -> Draws:
        theta = finite_array("theta of the proposal", self.sampler.sample(key.generator(), n))
        dim = self.frame.prior.dim
        if theta.shape != (n, dim):
            raise ValueError(
                f"proposal.sample(rng, {n}) must return theta of shape ({n}, {dim}) for parameters "
                f"{self.frame.prior.names}; got {theta.shape}."
            )
        outside = ~self.frame.prior.contains(theta)
        if outside.any():
            raise ValueError(
                f"proposal.sample(rng, {n}) returned {outside.sum()} parameters outside the prior's support, "
                f"the first {theta[outside][0]}. The posterior is zero there: draw inside the support."
            )
        value = self.frame.from_theta(theta).astype(np.float32)
        return Draws(value, theta, np.full(n, self.source, np.int32))


@dataclass(frozen=True)
class UserProposal(ProposalChoice):
    """An object with `sample(rng, n)`, or a function that makes one from each round's posterior."""

    given: Any

    def after(self, posterior, number):
        sampler = self.given if hasattr(self.given, "sample") else self.given(posterior)
        if not hasattr(sampler, "sample"):
            raise TypeError(
                f"the function given as proposal must return an object with sample(rng, n); it returned "
                f"{sampler!r}."
            )
        return FromUser(sampler, posterior.frame, number)
