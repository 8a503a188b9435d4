"""The sequential loop, pure: one round is one step from state to state (paper, algorithms 1 and 2).

    parameters from the proposal ─► simulations ─► training on all rounds ─► posterior ─► next proposal

Nothing is printed here. Whoever wants to know what happens listens to the events.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from aptinfer.errors import SimulationError, TrainingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import build_members
from aptinfer.estimators.mog import Ratio
from aptinfer.keys import Key
from aptinfer.methods.losses import Atomic, ClosedForm
from aptinfer.posteriors import Posterior, check_observation
from aptinfer.proposals import FromMixtures, FromPrior
from aptinfer.protocols import Executor, Outcome, RoundResult, Rows, Simulations, Status, Store, batched
from aptinfer.rows import training_rows
from aptinfer.scaling import Scaling, fit_scaling
from aptinfer.simulators import BaseSimulator
from aptinfer.spaces import Frame
from aptinfer.train import History, Progress, Trainer

HOPELESS_AFTER = 50  # a simulator whose first so many runs all fail will not recover
FEWEST_ROWS = 20  # successful simulations without which no network can be trained
FAR = 4.0  # |z| beyond which the prior has next to no mass: a posterior that does has drifted


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
    """A round's posterior and how it came about."""

    number: int
    posterior: Posterior
    history: History
    failed: int
    notes: dict[str, float]
    seconds_simulating: float


Event = RoundStarted | Simulated | Trained | RoundFinished
Listener = Callable[[Event], None]


class State(NamedTuple):
    """What a round needs from the rounds before it."""

    number: int
    estimator: Embedded | None
    scaling: Scaling | None
    posterior: Posterior | None
    ratios: tuple[Ratio, ...]


def initial_state() -> State:
    return State(0, None, None, None, ())


def step(
    problem: Problem,
    method: Any,
    plan: Plan,
    executor: Executor,
    store: Store,
    listen: Listener,
    state: State,
) -> tuple[State, RoundFinished]:
    """One round. `method` is settled (see `methods.apt`); `store` remembers the rows."""
    number = state.number
    listen(RoundStarted(number))
    root = Key((plan.seed,))
    for_theta, for_training = root.child(_THETA, number), root.child(_TRAINING, number)

    if state.posterior is None:
        proposal = FromPrior(problem.frame)
    else:
        proposal = method.propose(state.posterior, number)
    ratios = state.ratios
    if isinstance(proposal, FromMixtures):
        ratios = (*ratios, proposal.ratios)
    rows = store.plan(proposal.draw(for_theta, plan.simulations))
    failed, seconds = _simulate(problem, plan, executor, store, listen, number, rows)

    simulations = store.simulations()
    event = simulations.x.shape[1:]
    scaling = state.scaling or fit_scaling(simulations.x[simulations.done])
    estimator = state.estimator or build_members(
        root.child(_WEIGHTS), method.estimator, method.embedding, problem.frame.prior.dim, event
    )
    loss = method.loss_of_round(number)
    log_prior = problem.frame.log_prior(simulations.value, simulations.theta)
    trainer = _fitting(method.trainer, simulations)
    data = training_rows(
        simulations._replace(x=scaling(simulations.x)),
        log_prior,
        _table(ratios, plan.rounds) if isinstance(loss, ClosedForm) else None,
        capacity=plan.rounds * plan.simulations,
        validates=trainer.validates,
        contrasts=isinstance(loss, Atomic),
        rng=for_training.child(1).generator(),
    )
    if isinstance(loss, Atomic):
        assert loss.atoms is not None
        loss = replace(loss, atoms=min(loss.atoms, trainer.batch))
    estimator, history = trainer(
        for_training,
        estimator,
        loss,
        data,
        lambda progress: listen(Trained(number, progress)),
        last=plan.is_last(number),
    )
    posterior = Posterior(problem.frame, scaling, estimator, problem.observation, event)
    notes = _notes(posterior, failed / plan.simulations)
    store.close_round(RoundResult(estimator, history, notes))
    finished = RoundFinished(number, posterior, history, failed, notes, seconds)
    listen(finished)
    return State(number + 1, estimator, scaling, posterior, ratios), finished


def _simulate(problem, plan, executor, store, listen, number, rows: Rows) -> tuple[int, float]:
    """Run a round's simulations; returns how many failed and their seconds in all."""
    done, failed, seconds, first_failure = 0, 0, 0.0, None
    outcomes = executor(problem.simulator, Key((plan.seed, _X)).integer(), rows)
    for group in batched(_compared(outcomes, problem.observation), size=max(problem.simulator.chunk, 10)):
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


def _compared(outcomes: Iterable[Outcome], observation: np.ndarray) -> Iterator[Outcome]:
    """The outcomes; x_o is compared with the first that has data, before any other is waited for."""
    compared = False
    for outcome in outcomes:
        if outcome.x is not None and not compared:
            check_observation("x_o", observation, outcome.x.shape)
            compared = True
        yield outcome


def _fitting(trainer: Trainer, simulations: Simulations) -> Trainer:
    """A batch no larger than the first round's training rows. Rounds only add rows, so it stays."""
    first = np.flatnonzero((simulations.round == 0) & simulations.done)
    held_back = trainer.validates(first)
    if not held_back.any():
        raise TrainingError(
            f"none of the {len(first)} successful simulations of the first round is held back to decide when "
            f"to stop. Raise simulations= or Trainer(validation=...)."
        )
    return replace(trainer, batch=min(trainer.batch, int((~held_back).sum())))


def _table(ratios: tuple[Ratio, ...], rounds: int) -> Ratio:
    """All rounds' proposals, padded to the run's capacity; entry 0 stands for the prior and is not used."""
    flat = jax.tree.map(lambda *leaves: np.concatenate(leaves), *ratios)
    per_round = ratios[0].means.shape[0]
    capacity = 1 + per_round * max(rounds - 1, 1)

    def padded(a):
        return np.concatenate([a[:1], a, np.repeat(a[:1], capacity - 1 - len(a), axis=0)])

    return jax.tree.map(padded, flat)


def _notes(posterior: Posterior, failing: float) -> dict[str, float]:
    """Numbers worth watching from round to round."""
    value = posterior.raw_values(4096)
    notes = {"share_failed": failing}
    if posterior.frame.always_inside:
        notes["share_far"] = float((np.abs(value) > FAR).any(axis=1).mean())
    else:
        inside = posterior.frame.prior.contains(posterior.frame.to_theta(value))
        notes["acceptance"] = float(inside.mean())
    return notes
