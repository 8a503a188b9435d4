"""What a run remembers: the in-memory store."""

import threading
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from aptinfer.errors import SimulationError
from aptinfer.protocols import Draws, Outcome, Rows, Simulations, Status, Tally

WAITING = 255  # the code of a row without an outcome
_STATUSES = tuple(Status)
_CODE = {status: code for code, status in enumerate(_STATUSES)}


class MemoryStore:
    """Rows, outcomes and results of a run, kept for as long as the process lives.

    Outcomes are columns, a few bytes for each row; only failures, which have reasons, are kept as objects.
    All x are one array: what reads them needs no copy. It has room for `capacity` rows from the start, which
    takes no memory until they are written, and grows when more are planned. One thread may write while
    another reads.
    """

    def __init__(self, capacity: int = 0):
        self.rounds: list[Draws] = []
        self._capacity = capacity
        self._status, self._seconds = np.empty(0, np.uint8), np.empty(0)
        self._failures: dict[int, Outcome] = {}
        self._x: np.ndarray | None = None
        self._lock = threading.Lock()

    def plan(self, number: int, draw: Callable[[], Draws]) -> Rows:
        """Write down a round's parameters before the first of them is simulated."""
        if number == len(self.rounds):
            self.rounds.append(draw())
            new = len(self.rounds[-1].theta)
            self._status = np.append(self._status, np.full(new, WAITING, np.uint8))
            self._seconds = np.append(self._seconds, np.zeros(new))
        part = self._rows_of(number)
        waiting = np.flatnonzero(self._status[part] == WAITING)
        return Rows(part.start + waiting, self.rounds[number].theta[waiting])

    def sizes(self) -> tuple[int, ...]:
        return tuple(len(draws.theta) for draws in self.rounds)

    def finished(self) -> tuple[list, None]:
        return [], None

    def tally(self, number: int) -> Tally:
        part = self._rows_of(number)
        ended = self._status[part][self._status[part] != WAITING]
        counts = np.bincount(ended, minlength=len(_STATUSES))
        tally = Tally(seconds=float(self._seconds[part].sum()))
        tally.endings.update({s: int(n) for s, n in zip(_STATUSES, counts, strict=True) if n})
        tally.failed = len(ended) - tally.done
        inside = (i for i in sorted(self._failures) if part.start <= i < part.stop)
        tally.first_failure = self._failures.get(next(inside, -1))
        return tally

    def record(self, outcomes: Sequence[Outcome]) -> None:
        for kind, group in groupby(outcomes, key=_kind):
            same = list(group)
            index = np.fromiter(map(attrgetter("index"), same), np.int64, len(same))
            with self._lock:
                if kind is None:
                    self._failures.update((outcome.index, outcome) for outcome in same)
                else:
                    self._room_for(same[0], int(index.max()) + 1)[index] = [outcome.x for outcome in same]
                self._seconds[index] = [outcome.seconds for outcome in same]
                self._status[index] = [_CODE[outcome.status] for outcome in same]

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
        with self._lock:
            done = self._status[skipped:planned] == _CODE[Status.DONE]
            x = np.zeros((planned, 0)) if self._x is None else self._grown(planned)[:planned]
        x = x[skipped:].view()
        x.flags.writeable = False
        return Simulations(value, theta, source, number, x, done)

    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without data, in the order of their row."""
        with self._lock:
            return tuple(self._failures[row] for row in sorted(self._failures))

    def _rows_of(self, number: int) -> slice:
        sizes = self.sizes()
        return slice(sum(sizes[:number]), sum(sizes[: number + 1]))

    def _room_for(self, outcome: Outcome, rows: int) -> np.ndarray:
        """The array of all x, of a type that holds this one too, with room for so many rows."""
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
        return self._grown(rows)

    def _grown(self, rows: int) -> np.ndarray:
        """The array of all x, with room for so many rows."""
        assert self._x is not None
        if len(self._x) < rows:
            more = np.zeros((max(sum(self.sizes()), rows) - len(self._x), *self._x.shape[1:]), self._x.dtype)
            self._x = np.concatenate([self._x, more])
        return self._x


def _kind(outcome: Outcome) -> tuple | None:
    """What outcomes have in common that are written down together: shape and type of x; None: no data."""
    return None if outcome.x is None else (outcome.x.shape, outcome.x.dtype)


def changed_shape(event: tuple[int, ...], outcome: Outcome) -> SimulationError:
    """What to tell the user of a simulator whose x differ in shape."""
    assert outcome.x is not None
    return SimulationError(
        f"the simulator changed the shape of its output: x has shape {event} for the first rows and "
        f"{outcome.x.shape} for row {outcome.index}. Return arrays of one shape; series or sets of unequal "
        f"length are padded with NaN to the longest, by np.pad(x, ((0, longest - len(x)), (0, 0)), "
        f"constant_values=np.nan), and declared by apt.infer(..., missing=True)."
    )
