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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from aptinfer.train import History


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


@dataclass(frozen=True)
class RoundResult:
    """What a finished round leaves behind besides its simulations.

    Attributes:
        weights: the trained arrays of the estimator, members of an ensemble stacked.
        history: losses, epochs, stop reason and timings of the training; None where nothing is trained.
        notes: named numbers about the round, such as the share of posterior mass at |z| > 4.
    """

    weights: Any
    history: "History | None"
    notes: dict[str, float]


@runtime_checkable
class Store(Protocol):
    """Append-only memory of a run: rows are planned before their first simulation, outcomes recorded
    as they arrive, and a round closed when its estimator is trained."""

    def plan(self, draws: Draws, /) -> Rows: ...

    def record(self, outcomes: Sequence[Outcome], /) -> None: ...

    def close_round(self, result: RoundResult, /) -> None: ...

    def simulations(self, first: int = 0, /) -> "Simulations": ...


class Simulations(NamedTuple):
    """Every row of the run, in the order of their index. `x` of a failed row is zero and not `done`."""

    value: np.ndarray
    theta: np.ndarray
    source: np.ndarray
    round: np.ndarray
    x: np.ndarray
    done: np.ndarray


def batched(outcomes: Iterable[Outcome], size: int) -> Iterator[list[Outcome]]:
    """Group outcomes as they arrive, so that a store can record several at once."""
    group: list[Outcome] = []
    for outcome in outcomes:
        group.append(outcome)
        if len(group) >= size:
            yield group
            group = []
    if group:
        yield group
