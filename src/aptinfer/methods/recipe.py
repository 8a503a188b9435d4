"""What to do with a number of simulations when nobody wants to choose: the recipe behind `budget=`.

Where a density of x is within reach, likelihoods of several kinds are stacked (`SNL`): they learn from every
row of every round alike, and simple data get simple models. Where it is not, as for images, long series, data
with missing entries or numbers that repeat, the posterior is learned itself (`APT`). The shape of x decides
between the two, and then the first round's data: they tell a set of measurements from a series, too.
`docs/recipe.md` has what was measured.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.columns import MOST, NoDensityError
from aptinfer.estimators.stack import Stack
from aptinfer.methods.apt import APT
from aptinfer.methods.choices import with_embedding
from aptinfer.methods.learning import Learned, Task
from aptinfer.methods.snl import SNL
from aptinfer.posteriors import SampledPosterior
from aptinfer.protocols import Proposal
from aptinfer.spaces import Frame, Space
from aptinfer.train import Trainer

MOST_ROUNDS = 10
LEAST_PER_ROUND = 100  # simulations, unless there are hardly more in all


class Memory(NamedTuple):
    """Whether the likelihood is learned, and what the method that learns remembers."""

    of_likelihood: bool
    inner: Any


@suggests_keywords
@dataclass(frozen=True)
class Recipe:
    """The method of `apt.infer(..., budget=N)`: stacked likelihoods where x has a density, APT elsewhere.

    Args:
        likelihood: for vectors and sets of up to 256 numbers that have a density.
        posterior: for everything else, in the same space.
    """

    likelihood: SNL = field(
        default_factory=lambda: SNL(estimator=Stack(), screen=True, local=5.0, repeats=True)
    )
    posterior: APT = field(default_factory=APT)

    one_round = False
    embeds_x = True

    def __post_init__(self):
        for name, kind in (("likelihood", SNL), ("posterior", APT)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(
                    f"Recipe {name} must be an apt.{kind.__name__}(...), got {getattr(self, name)!r}."
                )

        if self.likelihood.space != self.posterior.space:
            raise ValueError(
                f"Recipe likelihood and posterior must have the same space, got {self.likelihood.space!r} "
                f"and {self.posterior.space!r}."
            )

    @property
    def space(self) -> Space:
        return self.likelihood.space

    @property
    def takes_any_theta(self) -> bool:
        """Whether rows of unknown origin may be learned from, whichever method it will be."""
        return self.posterior.takes_any_theta

    @property
    def trainer(self) -> Trainer:
        return self.likelihood.trainer

    @property
    def embedding(self) -> Any:
        """Of x, should the posterior be learned."""
        return self.posterior.embedding

    def settled(self, frame: Frame) -> "Recipe":
        return replace(
            self, likelihood=self.likelihood.settled(frame), posterior=self.posterior.settled(frame)
        )

    def embedded(self, shape: tuple[int, ...], *, missing: bool) -> "Recipe":
        """With the embedding that x of this shape gets, should the posterior be learned."""
        return replace(self, posterior=with_embedding(self.posterior, shape, missing=missing))

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        if memory is None:
            try:
                return self._learned(task, Memory(self._has_density(task), None))
            except NoDensityError:
                memory = Memory(False, None)
        return self._learned(task, memory)

    def _has_density(self, task: Task) -> bool:
        """Whether x is a vector, or a set: rows that may change places, as those of a series may not."""
        if task.missing or np.prod(task.event) > MOST:
            return False
        is_vector, may_be_set = (len(task.event) == axes for axes in (1, 2))
        return is_vector or (may_be_set and self.likelihood.measurements_in(task) % task.event[0] == 0)

    def _learned(self, task: Task, memory: Memory) -> Learned:
        method = self.likelihood if memory.of_likelihood else self.posterior
        learned = method.learn(task, memory.inner)
        return learned._replace(memory=memory._replace(inner=learned.memory))

    def propose(self, posterior: Any, number: int) -> Proposal:
        if isinstance(posterior, SampledPosterior):
            return self.likelihood.propose(posterior, number)
        return self.posterior.propose(posterior, number)


def rounds_of(budget: Any, *, one_round: bool, least: int) -> tuple[int, int]:
    """Rounds, and simulations in each, that spend a budget, or all of it but a few.

    Ten rounds where each has a hundred simulations, fewer where there are fewer, for the first must find the
    posterior at all.
    """
    budget = positive_int("budget", budget, minimum=least)
    rounds = 1 if one_round else min(max(budget // LEAST_PER_ROUND, 1), MOST_ROUNDS)
    return rounds, budget // rounds
