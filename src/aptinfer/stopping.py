"""Rules that end a run before its last round, for `apt.infer(..., stop=...)`."""

from dataclasses import dataclass, field

from aptinfer.checks import positive_float, positive_int, suggests_keywords
from aptinfer.posteriors.base import Posterior
from aptinfer.sequential import RoundFinished


@suggests_keywords
@dataclass
class WhenSettled:
    """Stop when new simulations no longer change the posterior.

    After each round the Kullback-Leibler divergence of the new posterior from the last one is estimated from
    draws; when it stays below `tolerance` (in nats) for `rounds` rounds in a row, the run ends. The method's
    posteriors must have densities: particles have none.
    """

    needs_density = True

    tolerance: float = 0.05
    rounds: int = 2
    draws: int = 2000
    _last: Posterior | None = field(default=None, init=False, repr=False)
    _calm: int = field(default=0, init=False, repr=False)

    def __post_init__(self):
        positive_float("WhenSettled tolerance", self.tolerance)
        positive_int("WhenSettled rounds", self.rounds)
        positive_int("WhenSettled draws", self.draws)

    def __call__(self, finished: RoundFinished) -> bool:
        now, last = finished.posterior, self._last
        self._last = now
        if last is None or finished.number == 0:
            self._calm = 0
            return False
        theta = now.sample(self.draws)
        divergence = (now.log_prob(theta) - last.log_prob(theta)).mean()
        self._calm = self._calm + 1 if divergence < self.tolerance else 0
        return self._calm >= self.rounds
