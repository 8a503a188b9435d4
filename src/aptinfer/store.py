"""What a run remembers: the in-memory store."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aptinfer.errors import SimulationError
from aptinfer.protocols import Draws, Outcome, Rows, Simulations, Status, Tally


class MemoryStore:
    """Rows, outcomes and results of a run, kept for as long as the process lives.

    All x are one array: what reads them needs no copy. It has room for `capacity` rows from the start, which
    takes no memory until they are written, and grows when more are planned.
    """

    def __init__(self, capacity: int = 0):
        self.rounds: list[Draws] = []
        self.outcomes: dict[int, Outcome] = {}  # without their data, which are rows of one array
        self._capacity = capacity
        self._x: np.ndarray | None = None

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
                self._room_for(outcome)[outcome.index] = outcome.x
            self.outcomes[outcome.index] = outcome._replace(x=None)

    def close_round(self, finished: Any, memory: Any) -> None:
        """Nothing to do: the run itself holds what its rounds left."""

    def simulations(self, first: int = 0) -> Simulations:
        """Every row from round `first` on; those without data have x = 0 and are not `done`.

        x is not to be written to: it is the store's own memory.
        """
        sizes = self.sizes()
        value, theta, source = (np.concatenate(column) for column in zip(*self.rounds[first:], strict=True))
        number = np.repeat(np.arange(first, len(self.rounds)), sizes[first:])
        skipped, planned = sum(sizes[:first]), sum(sizes)
        ended = (self.outcomes.get(row) for row in range(skipped, planned))
        done = np.array([outcome is not None and outcome.status is Status.DONE for outcome in ended], bool)
        x = np.zeros((planned, 0)) if self._x is None else self._grown(planned)[:planned]
        x = x[skipped:].view()
        x.flags.writeable = False
        return Simulations(value, theta, source, number, x, done)

    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without data, in the order of their row."""
        failed = (outcome for outcome in self.outcomes.values() if outcome.status is not Status.DONE)
        return tuple(sorted(failed, key=lambda outcome: outcome.index))

    def _room_for(self, outcome: Outcome) -> np.ndarray:
        """The array of all x, of a type that holds this one too."""
        x = outcome.x
        assert x is not None
        if self._x is None:
            self._x = np.zeros((max(self._capacity, sum(self.sizes())), *x.shape), x.dtype)
        elif x.shape != self._x.shape[1:]:
            raise changed_shape(self._x.shape[1:], outcome)
        # One type for the whole run, whichever row arrives first.
        kind = np.result_type(self._x.dtype, x.dtype)
        if kind != self._x.dtype:
            self._x = self._x.astype(kind)
        return self._grown(outcome.index + 1)

    def _grown(self, rows: int) -> np.ndarray:
        """The array of all x, with room for so many rows."""
        assert self._x is not None
        if len(self._x) < rows:
            more = np.zeros((max(sum(self.sizes()), rows) - len(self._x), *self._x.shape[1:]), self._x.dtype)
            self._x = np.concatenate([self._x, more])
        return self._x


def changed_shape(event: tuple[int, ...], outcome: Outcome) -> SimulationError:
    """What to tell the user of a simulator whose x differ in shape."""
    assert outcome.x is not None
    return SimulationError(
        f"the simulator changed the shape of its output: x has shape {event} for the first rows and "
        f"{outcome.x.shape} for row {outcome.index}. Return arrays of one shape; series or sets of unequal "
        f"length are padded with NaN to the longest, by np.pad(x, ((0, longest - len(x)), (0, 0)), "
        f"constant_values=np.nan), and declared by apt.infer(..., missing=True)."
    )
