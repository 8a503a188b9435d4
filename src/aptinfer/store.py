"""What a run remembers: the in-memory store."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aptinfer.errors import SimulationError
from aptinfer.protocols import Draws, Outcome, Rows, Simulations, Status, Tally


class MemoryStore:
    """Rows, outcomes and results of a run, kept for as long as the process lives."""

    def __init__(self):
        self.rounds: list[Draws] = []
        self.outcomes: dict[int, Outcome] = {}
        self.event: tuple[int, ...] | None = None
        self._dtype = np.dtype(np.float64)

    def plan(self, number: int, draw: Callable[[], Draws]) -> Rows:
        """Write down a round's parameters before the first of them is simulated."""
        if number == len(self.rounds):
            self.rounds.append(draw())
        first, theta = sum(self.sizes()[:number]), self.rounds[number].theta
        missing = [i for i in range(len(theta)) if first + i not in self.outcomes]
        return Rows(first + np.array(missing, int), theta[missing])

    def sizes(self) -> tuple[int, ...]:
        return tuple(len(draws.theta) for draws in self.rounds)

    def finished(self) -> tuple[list, None]:
        return [], None

    def tally(self, number: int) -> Tally:
        tally, first = Tally(), sum(self.sizes()[:number])
        for index in range(first, first + self.sizes()[number]):
            if index in self.outcomes:
                tally.add(self.outcomes[index])
        return tally

    def record(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.x is not None:
                self._check_shape(outcome)
            self.outcomes[outcome.index] = outcome

    def close_round(self, finished: Any, memory: Any) -> None:
        """Nothing to do: the run itself holds what its rounds left."""

    def simulations(self, first: int = 0) -> Simulations:
        """Every row from round `first` on; those without data have x = 0 and are not `done`."""
        sizes = self.sizes()
        columns = [np.concatenate(column) for column in zip(*self.rounds[first:], strict=True)]
        number = np.repeat(np.arange(first, len(self.rounds)), sizes[first:])
        done = np.zeros(len(number), bool)
        x = np.zeros((len(number), *(self.event or ())), self._dtype)
        skipped = sum(sizes[:first])
        for place in range(len(number)):
            outcome = self.outcomes.get(skipped + place)
            if outcome is not None and outcome.status is Status.DONE:
                done[place], x[place] = True, outcome.x
        value, theta, source = columns
        return Simulations(value, theta, source, number, x, done)

    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without data, in the order of their row."""
        failed = (outcome for outcome in self.outcomes.values() if outcome.status is not Status.DONE)
        return tuple(sorted(failed, key=lambda outcome: outcome.index))

    def _check_shape(self, outcome: Outcome) -> None:
        assert outcome.x is not None
        if self.event is None:
            self.event, self._dtype = outcome.x.shape, outcome.x.dtype
        elif outcome.x.shape != self.event:
            raise SimulationError(
                f"the simulator changed the shape of its output: x has shape {self.event} for the first "
                f"rows and {outcome.x.shape} for row {outcome.index}. Return arrays of one shape."
            )
        # One type for the whole run, whichever row arrives first.
        self._dtype = np.result_type(self._dtype, outcome.x.dtype)
