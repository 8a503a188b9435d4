"""The sequential loop, pure: one round is one step from state to state (paper, algorithms 1 and 2).

    parameters from the proposal ─► simulations ─► training on all rounds ─► posterior ─► next proposal

Nothing is printed here. Whoever wants to know what happens listens to the events.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aptinfer.errors import SimulationError
from aptinfer.keys import Key
from aptinfer.methods.learning import Task
from aptinfer.posteriors.base import Posterior, check_observation
from aptinfer.proposals import FromPrior
from aptinfer.protocols import Executor, Outcome, RoundResult, Rows, Status, Store, batched
from aptinfer.simulators import BaseSimulator
from aptinfer.spaces import Frame
from aptinfer.train import History, Progress

HOPELESS_AFTER = 50  # a simulator whose first so many runs all fail will not recover
FEWEST_ROWS = 20  # successful simulations without which no network can be trained

_THETA, _X, _WEIGHTS, _TRAINING = range(4)  # branches of a run's key


class Problem(NamedTuple):
    """What the user brings, in the coordinates of the method.

    `missing` says that entries of x may be NaN; `any_length` that x_o may be longer than the simulator's x.
    """

    frame: Frame
    simulator: BaseSimulator
    observation: np.ndarray
    missing: bool = False
    any_length: bool = False


class Plan(NamedTuple):
    """The size of a run."""

    rounds: int
    simulations: int
    seed: int
    may_stop: bool = False  # a rule may end the run after any round

    def is_last(self, number: int) -> bool:
        """Whether round `number` may be the one whose posterior the user gets."""
        return self.may_stop or number + 1 == self.rounds


@dataclass(frozen=True)
class RoundStarted:
    """Round `number`, counted from zero, begins to draw its parameters."""

    number: int


@dataclass(frozen=True)
class Simulated:
    """More simulations of a round have ended: so many succeeded, so many failed."""

    number: int
    done: int
    failed: int


@dataclass(frozen=True)
class Trained:
    """Training of a round has come this far."""

    number: int
    progress: Progress


@dataclass(frozen=True)
class RoundFinished:
    """A round's posterior and how it came about.

    `history` is None for methods that train nothing; `complete` says that further rounds would add nothing.
    """

    number: int
    posterior: Posterior
    history: History | None
    failed: int
    notes: dict[str, float]
    seconds_simulating: float
    complete: bool = False


Event = RoundStarted | Simulated | Trained | RoundFinished
Listener = Callable[[Event], None]


class State(NamedTuple):
    """What a round needs from the rounds before it; `memory` is the method's own."""

    number: int
    posterior: Any
    memory: Any


def initial_state() -> State:
    return State(0, None, None)


def step(
    problem: Problem,
    method: Any,
    plan: Plan,
    executor: Executor,
    store: Store,
    listen: Listener,
    state: State,
) -> tuple[State, RoundFinished]:
    """One round. `method` is settled (see `methods.learning`); `store` remembers the rows."""
    number = state.number
    listen(RoundStarted(number))
    root = Key((plan.seed,))
    if state.posterior is None:
        proposal = FromPrior(problem.frame)
    else:
        proposal = method.propose(state.posterior, number)
    rows = store.plan(proposal.draw(root.child(_THETA, number), plan.simulations))
    failed, seconds = _simulate(problem, plan, executor, store, listen, number, rows)
    task = Task(
        frame=problem.frame,
        observation=problem.observation,
        number=number,
        rounds=plan.rounds,
        capacity=plan.rounds * plan.simulations,
        last=plan.is_last(number),
        proposal=proposal,
        rows_since=store.simulations,
        for_weights=root.child(_WEIGHTS),
        for_training=root.child(_TRAINING, number),
        listen=lambda progress: listen(Trained(number, progress)),
        missing=problem.missing,
    )
    learned = method.learn(task, state.memory)
    notes = {"share_failed": failed / plan.simulations, **learned.notes}
    store.close_round(RoundResult(learned.weights, learned.history, notes))
    finished = RoundFinished(
        number, learned.posterior, learned.history, failed, notes, seconds, learned.complete
    )
    listen(finished)
    return State(number + 1, learned.posterior, learned.memory), finished


def _simulate(problem, plan, executor, store, listen, number, rows: Rows) -> tuple[int, float]:
    """Run a round's simulations; returns how many failed and their seconds in all."""
    done, failed, seconds, first_failure = 0, 0, 0.0, None
    outcomes = executor(problem.simulator, Key((plan.seed, _X)).integer(), rows)
    for group in batched(_compared(outcomes, problem), size=max(problem.simulator.chunk, 10)):
        for outcome in group:
            seconds += outcome.seconds
            if outcome.status is Status.DONE:
                done += 1
            else:
                failed += 1
                first_failure = first_failure or outcome
        store.record(group)
        listen(Simulated(number, done, failed))
        if done == 0 and failed >= HOPELESS_AFTER:
            break
    if done + failed < len(rows.index) and done:
        raise SimulationError(
            f"the executor lost {len(rows.index) - done - failed} of {len(rows.index)} simulations of round "
            f"{number + 1}: it must yield one outcome for every row."
        )
    if done == 0 and first_failure is not None:
        raise SimulationError(
            f"all of the first {failed} simulations of round {number + 1} failed. The first one "
            f"({first_failure.status.value}):\n{first_failure.reason}"
        )
    if number == 0 and done < FEWEST_ROWS:
        raise SimulationError(
            f"only {done} of {done + failed} simulations of the first round succeeded; at least "
            f"{FEWEST_ROWS} are needed to train. Raise simulations=, or repair the simulator."
            + (f" The first failure: {first_failure.reason}" if first_failure else "")
        )
    return failed, seconds


def _compared(outcomes: Iterable[Outcome], problem: Problem) -> Iterator[Outcome]:
    """The outcomes; x_o is compared with the first that has data, before any other is waited for."""
    compared = False
    for outcome in outcomes:
        if outcome.x is not None and not compared:
            check_observation(
                "x_o",
                problem.observation,
                outcome.x.shape,
                missing=problem.missing,
                any_length=problem.any_length,
            )
            compared = True
        yield outcome
