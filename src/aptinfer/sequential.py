"""The sequential loop, pure: one round is one step from state to state (paper, algorithms 1 and 2).

    parameters from the proposal ─► simulations ─► training on all rounds ─► posterior ─► next proposal

Nothing is printed here. Whoever wants to know what happens listens to the events.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from aptinfer.errors import SimulationError
from aptinfer.estimators.missing import is_masked
from aptinfer.keys import Key
from aptinfer.methods.learning import Task
from aptinfer.overlap import WarmedUp, WarmUp
from aptinfer.posteriors.base import Posterior, check_observation
from aptinfer.proposals import FromPrior
from aptinfer.protocols import Draws, Executor, Outcome, Rows, Status, Store, Tally, batched
from aptinfer.simulators import BaseSimulator
from aptinfer.spaces import Frame
from aptinfer.train import History, Progress

HOPELESS_AFTER = 50  # a simulator whose first so many runs all fail will not recover
FEWEST_ROWS = 20  # successful simulations without which no network can be trained

_THETA, _X, _WEIGHTS, _TRAINING = range(4)  # branches of a run's key


class Problem(NamedTuple):
    """What the user brings, in the coordinates of the method. A run that is only read has no simulator.

    `missing` says that entries of x may be NaN; `any_length` that x_o may be longer than the simulator's x.
    """

    frame: Frame
    simulator: BaseSimulator | None
    observation: np.ndarray
    missing: bool = False
    any_length: bool = False


def as_seen_by(
    method: Any, frame: Frame, simulator: BaseSimulator | None, observation: np.ndarray, *, missing: bool
) -> Problem:
    """The problem of a settled method, whose embedding decides whether x_o may be longer."""
    any_length = missing and is_masked(method.embedding)
    return Problem(frame, simulator, observation, missing, any_length)


class Plan(NamedTuple):
    """The size of a run."""

    rounds: int
    simulations: int
    seed: int
    may_stop: bool = False  # a rule may end the run after any round
    max_failed: float = 1.0  # share of a round's simulations that may fail
    begun: tuple[int, ...] = ()  # simulations of the rounds begun before, which may have had another number
    overlap: bool = False  # training may begin while simulations still arrive

    def size(self, number: int) -> int:
        """Simulations of round `number`."""
        return self.begun[number] if number < len(self.begun) else self.simulations

    @property
    def capacity(self) -> int:
        """Rows that the run will have in the end."""
        return sum(self.begun[: self.rounds]) + max(self.rounds - len(self.begun), 0) * self.simulations

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


Event = RoundStarted | Simulated | WarmedUp | Trained | RoundFinished
Listener = Callable[[Event], None]


class State(NamedTuple):
    """What a round needs from the rounds before it; `memory` is the method's own."""

    number: int
    posterior: Any
    memory: Any


def state_of(store: Store) -> tuple[State, list[RoundFinished]]:
    """Where a run stands, and the rounds that it has finished: none, for a store that is new."""
    finished, memory = store.finished()
    return State(len(finished), finished[-1].posterior if finished else None, memory), finished


def first_draws(frame: Frame, plan: Plan) -> Draws:
    """What the first round draws from the prior."""
    return FromPrior(frame).draw(Key((plan.seed,)).child(_THETA, 0), plan.simulations)


def more_prior_draws(frame: Frame, plan: Plan, there: int, more: int) -> Draws:
    """Rows to be added to the `there` rows of a run with a single round."""
    return FromPrior(frame).draw(Key((plan.seed,)).child(_THETA, 0, there), more)


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
    size = plan.size(number)
    rows = store.plan(number, lambda: proposal.draw(root.child(_THETA, number), size))
    task = Task(
        frame=problem.frame,
        observation=problem.observation,
        number=number,
        rounds=plan.rounds,
        capacity=plan.capacity,
        last=plan.is_last(number),
        proposal=proposal,
        rows_since=store.simulations,
        for_weights=root.child(_WEIGHTS),
        for_training=root.child(_TRAINING, number),
        listen=lambda progress: listen(Trained(number, progress)),
        missing=problem.missing,
    )
    if plan.overlap and len(rows.index):
        with WarmUp(method, task, state.memory, store) as warm_up:
            tell = _telling(warm_up, listen)
            tally = _simulate(problem, plan, executor, store, tell, number, rows)
        for news in warm_up.news():
            listen(news)
        task = replace(task, head_start=warm_up.weights)
    else:
        tally = _simulate(problem, plan, executor, store, listen, number, rows)
    learned = method.learn(task, state.memory)
    kinds = {status: n for status, n in tally.endings.items() if status is not Status.DONE}
    shares = {f"share_{status.value}": n / size for status, n in kinds.items()}
    notes = {"share_failed": tally.failed / size, **shares, **learned.notes}
    finished = RoundFinished(
        number, learned.posterior, learned.history, tally.failed, notes, tally.seconds, learned.complete
    )
    store.close_round(finished, learned.memory)
    listen(finished)
    return State(number + 1, learned.posterior, learned.memory), finished


def _telling(warm_up: WarmUp, listen: Listener) -> Listener:
    """A listener that also tells a warm-up what has arrived, and others what it has learned."""

    def tell(event: Event) -> None:
        listen(event)
        if isinstance(event, Simulated):
            warm_up.arrived(event.done + event.failed)
            for news in warm_up.news():
                listen(news)

    return tell


def _simulate(problem, plan, executor, store, listen, number, rows: Rows) -> Tally:
    """Run those of a round's simulations that have no outcome yet; returns how all of them ended."""
    tally, allowed = store.tally(number), plan.max_failed * plan.size(number)

    def counted(outcomes: Iterable[Outcome]):
        """The outcomes, until there is no point in going on."""
        for outcome in outcomes:
            tally.add(outcome)
            yield outcome
            if tally.failed > allowed or (tally.failed >= HOPELESS_AFTER and tally.done == 0):
                return

    if len(rows.index):
        outcomes = executor(problem.simulator, Key((plan.seed, _X)).integer(), rows)
        # Closed at once, not when Python gets round to it: what runs elsewhere must end before we go on.
        with closing(_compared(outcomes, problem)) as compared:
            for group in batched(counted(compared)):
                store.record(group)
                listen(Simulated(number, tally.done, tally.failed))
    _check_endings(plan, number, tally)
    return tally


def _check_endings(plan: Plan, number: int, tally: Tally) -> None:
    """Raise if a round's simulations cannot be learned from, and say why."""
    done, failed, planned, first_failure = tally.done, tally.failed, plan.size(number), tally.first_failure
    first = (
        f" The first failure ({first_failure.status.value}): {first_failure.reason}" if first_failure else ""
    )
    if done == 0 and failed:
        raise SimulationError(f"all of the first {failed} simulations of round {number + 1} failed.{first}")
    if failed > plan.max_failed * planned:
        kinds = ", ".join(f"{n} {s.value}" for s, n in tally.endings.most_common() if s is not Status.DONE)
        raise SimulationError(
            f"{failed} of the {planned} simulations of round {number + 1} have failed ({kinds}), more than "
            f"max_failed={plan.max_failed:g} allows. Repair the simulator, or raise max_failed. A run file "
            f"keeps failed simulations: a repaired simulator needs another file.{first}"
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


def _compared(outcomes: Iterable[Outcome], problem: Problem) -> Generator[Outcome, None, None]:
    """The outcomes; x_o is compared with the first that has data, before any other is waited for."""
    compared = False
    try:
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
    finally:
        getattr(outcomes, "close", lambda: None)()
