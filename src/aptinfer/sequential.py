"""The sequential loop, pure: one round is one step from state to state (paper, algorithms 1 and 2).

    parameters from the proposal ─► simulations ─► training on all rounds ─► posterior ─► next proposal

Nothing is printed here. Whoever wants to know what happens listens to the events.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
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
    """What the user brings, in the coordinates of the method."""

    frame: Frame
    simulator: BaseSimulator
    observation: np.ndarray


class Plan(NamedTuple):
    """The size of a run."""

    rounds: int
    simulations: int
    seed: int
    may_stop: bool = False  # a rule may end the run after any round
    max_failed: float = 1.0  # share of a round's simulations that may fail

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
    endings, seconds = _simulate(problem, plan, executor, store, listen, number, rows)
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
    )
    learned = method.learn(task, state.memory)
    _, failed = _counts(endings)
    kinds = {status: n for status, n in endings.items() if status is not Status.DONE}
    shares = {f"share_{status.value}": n / plan.simulations for status, n in kinds.items()}
    notes = {"share_failed": failed / plan.simulations, **shares, **learned.notes}
    store.close_round(RoundResult(learned.weights, learned.history, notes))
    finished = RoundFinished(
        number, learned.posterior, learned.history, failed, notes, seconds, learned.complete
    )
    listen(finished)
    return State(number + 1, learned.posterior, learned.memory), finished


def _simulate(problem, plan, executor, store, listen, number, rows: Rows) -> tuple[Counter[Status], float]:
    """Run a round's simulations; returns how they ended and their seconds in all."""
    endings, seconds, first_failure = Counter(), 0.0, None
    allowed = plan.max_failed * len(rows.index)
    outcomes = executor(problem.simulator, Key((plan.seed, _X)).integer(), rows)
    # Closed at once, not when Python gets round to it: what still runs elsewhere must end before we go on.
    with closing(_compared(outcomes, problem.observation)) as compared:
        for group in batched(compared, size=max(problem.simulator.chunk, 10)):
            for outcome in group:
                seconds += outcome.seconds
                endings[outcome.status] += 1
                if outcome.status is not Status.DONE:
                    first_failure = first_failure or outcome
            store.record(group)
            done, failed = _counts(endings)
            listen(Simulated(number, done, failed))
            if failed > allowed or (done == 0 and failed >= HOPELESS_AFTER):
                break
    _check_endings(plan, number, len(rows.index), endings, first_failure)
    return endings, seconds


def _counts(endings: Counter[Status]) -> tuple[int, int]:
    """How many simulations succeeded, and how many failed."""
    return endings[Status.DONE], endings.total() - endings[Status.DONE]


def _check_endings(
    plan: Plan, number: int, planned: int, endings: Counter[Status], first_failure: Outcome | None
) -> None:
    """Raise if a round's simulations cannot be learned from, and say why."""
    done, failed = _counts(endings)
    first = (
        f" The first failure ({first_failure.status.value}): {first_failure.reason}" if first_failure else ""
    )
    if done == 0 and failed:
        raise SimulationError(f"all of the first {failed} simulations of round {number + 1} failed.{first}")
    if failed > plan.max_failed * planned:
        kinds = ", ".join(f"{n} {s.value}" for s, n in endings.most_common() if s is not Status.DONE)
        raise SimulationError(
            f"{failed} of the {planned} simulations of round {number + 1} have failed ({kinds}), more than "
            f"max_failed={plan.max_failed:g} allows. Repair the simulator, or raise max_failed.{first}"
        )
    if done + failed < planned:
        raise SimulationError(
            f"the executor lost {planned - done - failed} of {planned} simulations of round {number + 1}: it "
            f"must yield one outcome for every row."
        )
    if number == 0 and done < FEWEST_ROWS:
        raise SimulationError(
            f"only {done} of {planned} simulations of the first round succeeded; at least {FEWEST_ROWS} are "
            f"needed to train. Raise simulations=, or repair the simulator.{first}"
        )


def _compared(outcomes: Iterable[Outcome], observation: np.ndarray) -> Generator[Outcome, None, None]:
    """The outcomes; x_o is compared with the first that has data, before any other is waited for."""
    compared = False
    try:
        for outcome in outcomes:
            if outcome.x is not None and not compared:
                check_observation("x_o", observation, outcome.x.shape)
                compared = True
            yield outcome
    finally:
        getattr(outcomes, "close", lambda: None)()
