"""What a run remembers: the in-memory store."""

from collections.abc import Sequence

import numpy as np

from aptinfer.errors import SimulationError
from aptinfer.protocols import Draws, Outcome, RoundResult, Rows, Simulations, Status


class MemoryStore:
    """Rows, outcomes and results of a run, kept for as long as the process lives.

    All x are one array: what reads them needs no copy. It has room for `capacity` rows from the start, which
    takes no memory until they are written, and grows when more are planned.
    """

    def __init__(self, capacity: int = 0):
        self.rounds: list[Draws] = []
        self.outcomes: dict[int, Outcome] = {}  # without their data, which are rows of one array
        self.results: list[RoundResult] = []
        self._capacity = capacity
        self._x: np.ndarray | None = None

    def plan(self, draws: Draws) -> Rows:
        """Write down a round's parameters before the first of them is simulated."""
        first = self._planned()
        self.rounds.append(draws)
        return Rows(np.arange(first, first + len(draws.theta)), draws.theta)

    def record(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.x is not None:
                self._room_for(outcome.index, outcome.x)[outcome.index] = outcome.x
            self.outcomes[outcome.index] = outcome._replace(x=None)

    def close_round(self, result: RoundResult) -> None:
        self.results.append(result)

    def simulations(self, first: int = 0) -> Simulations:
        """Every row from round `first` on; those without data have x = 0 and are not `done`.

        x is not to be written to: it is the store's own memory.
        """
        sizes = [len(draws.theta) for draws in self.rounds]
        value, theta, source = (np.concatenate(column) for column in zip(*self.rounds[first:], strict=True))
        number = np.repeat(np.arange(first, len(self.rounds)), sizes[first:])
        skipped, planned = sum(sizes[:first]), sum(sizes)
        ended = (self.outcomes.get(row) for row in range(skipped, planned))
        done = np.array([outcome is not None and outcome.status is Status.DONE for outcome in ended], bool)
        x = np.zeros((planned, 0)) if self._x is None else self._grown(planned)[:planned]
        x = x[skipped:].view()
        x.flags.writeable = False
        return Simulations(value, theta, source, number, x, done)

    def _planned(self) -> int:
        return sum(len(draws.theta) for draws in self.rounds)

    def _room_for(self, index: int, x: np.ndarray) -> np.ndarray:
        """The array of all x, of a type that holds this one too."""
        if self._x is None:
            self._x = np.zeros((max(self._capacity, self._planned()), *x.shape), x.dtype)
        elif x.shape != self._x.shape[1:]:
            raise SimulationError(
                f"the simulator changed the shape of its output: x has shape {self._x.shape[1:]} for the "
                f"first rows and {x.shape} for row {index}. Return arrays of one shape; series or sets of "
                f"unequal length are padded with NaN to the longest, by np.pad(x, ((0, longest - len(x)), "
                f"(0, 0)), constant_values=np.nan), and declared by apt.infer(..., missing=True)."
            )
        # One type for the whole run, whichever row arrives first.
        kind = np.result_type(self._x.dtype, x.dtype)
        if kind != self._x.dtype:
            self._x = self._x.astype(kind)
        return self._grown(index + 1)

    def _grown(self, rows: int) -> np.ndarray:
        """The array of all x, with room for so many rows."""
        assert self._x is not None
        if len(self._x) < rows:
            more = np.zeros((max(self._planned(), rows) - len(self._x), *self._x.shape[1:]), self._x.dtype)
            self._x = np.concatenate([self._x, more])
        return self._x
