"""Active learning: simulate where the members of an ensemble disagree about the posterior."""

from dataclasses import dataclass

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.ensemble import count_members
from aptinfer.keys import Key
from aptinfer.posteriors import DirectPosterior
from aptinfer.proposals.choice import ProposalChoice
from aptinfer.protocols import Draws


@dataclass(frozen=True)
class WhereMembersDisagree:
    """Posterior draws, chosen with probabilities in proportion to the spread of members' log densities."""

    posterior: DirectPosterior
    candidates: int
    source: int

    def draw(self, key: Key, n: int) -> Draws:
        value, theta = self.posterior.draw(key.child(0), n * self.candidates)
        spread = self.posterior.members_log_prob(value).std(axis=0)
        # Exponential races: the first n to arrive are draws without replacement.
        arrival = key.child(1).generator().exponential(size=len(spread)) / np.maximum(spread, 1e-12)
        chosen = np.argsort(arrival)[:n]
        return Draws(value[chosen].astype(np.float32), theta[chosen], np.full(n, self.source, np.int32))


@suggests_keywords
@dataclass(frozen=True)
class Active(ProposalChoice):
    """Propose where an `Ensemble` is least sure: among draws of the last posterior, those that members rate
    most differently.

    Args:
        candidates: posterior draws to choose from, for each that is simulated.
    """

    candidates: int = 5

    def __post_init__(self):
        positive_int("Active candidates", self.candidates, minimum=2)

    def check(self, frame, members):
        del frame
        if members < 2:
            raise ValueError(
                "apt.Active() compares what members of an ensemble say of the posterior, and there is one: "
                "use apt.APT(estimator=apt.Ensemble(...), proposal=apt.Active())."
            )

    def after(self, posterior, number):
        direct = isinstance(posterior, DirectPosterior)
        self.check(posterior.frame, count_members(posterior.estimator) if direct else 1)
        assert direct
        return WhereMembersDisagree(posterior, self.candidates, number)
