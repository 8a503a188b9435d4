"""The vocabulary: the few shapes that everything else is said in. Read this first.

    prior ─► proposal ─sample─► theta ─executor(simulator)─► x ─► store
                 ▲                                                 │ rows
                 │ propose(posterior)                              ▼
             posterior ◄──────────── estimator ◄──── train(estimator, loss, rows)

A prior, a proposal and a posterior can be sampled and evaluated. An estimator is a function from a
condition to such a thing. A method says with what loss to learn and what to propose next. One round
is one pure step from state to state.

This module is imported by worker processes, so it must not import JAX.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

GROUP_SECONDS = 0.1  # outcomes are recorded so often


class Status(Enum):
    """How a simulation ended. A failure is a status, never a NaN among the data."""

    DONE = "done"
    INVALID = "invalid"  # returned NaN or infinity
    RAISED = "raised"  # raised an exception; the reason holds its traceback
    TIMEOUT = "timeout"  # took longer than allowed and was ended
    MEMORY = "memory"  # asked for more memory than there was
    CRASHED = "crashed"  # took its process down with it, in every attempt


class Outcome(NamedTuple):
    """One simulation: which row it belongs to and what became of it."""

    index: int
    x: np.ndarray | None
    status: Status
    reason: str
    seconds: float


class Rows(NamedTuple):
    """Parameters still to be simulated: row numbers within the run, and theta of each."""

    index: np.ndarray
    theta: np.ndarray


UNKNOWN_SOURCE = -1  # of rows that were made elsewhere, with parameters chosen in whatever way


class Draws(NamedTuple):
    """Parameters drawn from a proposal.

    `value` is what networks see (z in latent space), `theta` what the simulator gets; `source` says
    which entry of the table of proposal densities a row came from (0: the prior).
    """

    value: np.ndarray
    theta: np.ndarray
    source: np.ndarray


@runtime_checkable
class Simulator(Protocol):
    """Simulates some rows; `seed` and the row's index alone decide its random numbers.

    Rows belong to chunks whose boundaries follow the index. A call simulates them all; `one_by_one` yields
    the outcomes of chunk after chunk, in the order of their index, each simulated when it is asked for.
    """

    chunk: int

    def __call__(self, seed: int, rows: Rows, /) -> list[Outcome]: ...

    def one_by_one(self, seed: int, rows: Rows, /) -> Iterator[list[Outcome]]: ...

    def prepare(self, rows: Rows, /) -> None: ...


@runtime_checkable
class Executor(Protocol):
    """Where simulations run. Outcomes come in any order, as they arrive; how they were split never
    changes them."""

    def __call__(self, simulator: Simulator, seed: int, rows: Rows, /) -> Iterator[Outcome]: ...


@runtime_checkable
class Proposal(Protocol):
    """What a round's parameters are drawn from. It need not have a density."""

    def draw(self, key: Any, n: int, /) -> Draws: ...


@dataclass
class Tally:
    """How a round's simulations have ended so far: how often in which way, how long they took."""

    endings: Counter[Status] = field(default_factory=Counter)
    seconds: float = 0.0
    failed: int = 0
    first_failure: Outcome | None = None

    @property
    def done(self) -> int:
        return self.endings[Status.DONE]

    def add(self, outcome: Outcome) -> None:
        self.endings[outcome.status] += 1
        self.seconds += outcome.seconds
        if outcome.status is not Status.DONE:
            self.failed += 1
            self.first_failure = self.first_failure or outcome


@runtime_checkable
class StoreReader(Protocol):
    """What can be read of a run at any time."""

    def sizes(self) -> tuple[int, ...]:
        """Simulations of every round that has been begun."""
        ...

    def finished(self) -> tuple[list[Any], Any]:
        """What every closed round left, and what the method remembers after the last."""
        ...

    def simulations(self, first: int = 0, /) -> "Simulations":
        """Every row from round `first` on."""
        ...

    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without data, in the order of their row."""
        ...


@runtime_checkable
class Store(StoreReader, Protocol):
    """Append-only memory of a run, in this process or in a file that outlives it.

    A round's parameters are planned before their first simulation, outcomes recorded as they arrive, and the
    round closed when the method has learned from them. A round that was begun before goes on where it stood:
    `plan` then draws nothing, and returns the rows that have no outcome yet; `tally` counts the others.
    """

    def plan(self, number: int, draw: Callable[[], Draws], /) -> Rows: ...

    def tally(self, number: int, /) -> Tally: ...

    def record(self, outcomes: Sequence[Outcome], /) -> None: ...

    def close_round(self, finished: Any, memory: Any, /) -> None: ...


class Simulations(NamedTuple):
    """Every row of the run, in the order of their index. `x` of a failed row is zero and not `done`."""

    value: np.ndarray
    theta: np.ndarray
    source: np.ndarray
    round: np.ndarray
    x: np.ndarray
    done: np.ndarray


def batched(outcomes: Iterable[Outcome]) -> Iterator[list[Outcome]]:
    """Group outcomes as they arrive, so that a store can record several at once.

    A group is what arrives in a tenth of a second; an outcome that took a thousand times longer than
    recording does is not kept waiting for others.
    """
    group: list[Outcome] = []
    last, cost, arriving = time.perf_counter(), 0.0, iter(outcomes)
    while True:
        try:
            outcome = next(arriving)
        except BaseException as error:  # nothing that has arrived is lost, whatever ends it
            if group:
                yield group
            if isinstance(error, StopIteration):
                return
            raise
        group.append(outcome)
        now = time.perf_counter()
        if now - last >= GROUP_SECONDS or outcome.seconds > max(1000 * cost, GROUP_SECONDS):
            yield group
            last = time.perf_counter()
            group, cost = [], last - now
