"""How a method learns from the rows of a run: what it is told, what it answers, and what neural ones share.

A settled method has three functions,

    propose(posterior, number) -> proposal of round `number`
    learn(task, memory)        -> what the rows so far teach, and what to remember for the next round
    one_round                  -> whether there is only one round

and the loop in `sequential.py` knows nothing else of it. The front asks for more, where a method has it:
`check_run(rounds, simulations, observation)` refuses what cannot work before anything is simulated,
`usual_rounds` is how many there are by default, `has_density` is False where posteriors have none, `embeds_x`
says that x goes through an embedding, `takes_any_theta` that rows of unknown origin may be learned from, and
`takes_given_rows` is False where rows made elsewhere are of no use.

`train_network` is what all methods with a network of theta given x do between rows and weights: scale x once,
build the network once, train on all rows. `fit` is the last of these steps alone, whatever is learned given
what.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from aptinfer.errors import TrainingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import build_members
from aptinfer.estimators.mog import Ratio
from aptinfer.estimators.stack import Stack, Stacked, build_families, default_posteriors, families_of
from aptinfer.keys import Key
from aptinfer.methods.losses import Atomic, Loss
from aptinfer.methods.stacked import with_others
from aptinfer.posteriors import DirectPosterior
from aptinfer.protocols import Proposal, Simulations
from aptinfer.rows import training_rows
from aptinfer.scaling import Scaling, fit_scaling
from aptinfer.spaces import Frame
from aptinfer.train import History, Progress, Trainer

FAR = 4.0  # |z| beyond which the prior has next to no mass: a posterior that does has drifted


@dataclass(frozen=True)
class Task:
    """What a method is told after a round's simulations.

    Attributes:
        frame, observation: the coordinates and x_o.
        number, rounds: of this round, counted from zero, and how many there will be.
        capacity: rows that the run will have in the end.
        last: whether the user may get this round's posterior.
        proposal: what this round's parameters were drawn from.
        rows_since: every row of the run from round `first` on.
        for_weights, for_training: keys, of the run's networks and of this round's training.
        listen: told how training goes; an answer of True ends it.
        missing: whether entries of x may be missing, that is, NaN.
        head_start: weights to begin with, from a training on a part of these rows; None: the usual ones.
        ended: which rows have an outcome, in a rehearsal on a part of them (see `Rehearsed`); None: all.
    """

    frame: Frame
    observation: np.ndarray
    number: int
    rounds: int
    capacity: int
    last: bool
    proposal: Proposal
    rows_since: Callable[[int], Simulations]
    for_weights: Key
    for_training: Key
    listen: Callable[[Progress], bool | None]
    missing: bool = False
    head_start: Any = None
    ended: np.ndarray | None = None

    @cached_property
    def simulations(self) -> Simulations:
        """Every row of the run so far."""
        return self.rows_since(0)

    @cached_property
    def newest(self) -> Simulations:
        """The rows of this round."""
        return self.rows_since(self.number) if self.number else self.simulations

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of one x."""
        read = self.simulations if "simulations" in vars(self) else self.newest  # not a second time
        return read.x.shape[1:]


class Learned(NamedTuple):
    """What a method answers: `memory` comes back to it in the next round.

    `history` is None where nothing was trained. `complete` ends the run: nothing is left to learn.
    """

    posterior: Any
    history: History | None
    notes: dict[str, float]
    memory: Any
    complete: bool = False


class Rehearsed(Exception):  # noqa: N818
    """Ends a rehearsal with the weights that it has learned: what would be made of them is not wanted yet."""

    def __init__(self, estimator: Any):
        self.estimator = estimator


class Network(NamedTuple):
    """A trained network and the scaling of x that it was trained with, fixed after the first round.

    `estimator` is an `Embedded`, or a `Stacked` of them where the method takes a stack.
    """

    estimator: Any
    scaling: Scaling


def train_network(
    task: Task,
    method: Any,
    loss: Loss,
    before: Network | None,
    *,
    simulations: Simulations | None = None,
    ratios: Ratio | None = None,
    weights: np.ndarray | None = None,
    log_prior: np.ndarray | None = None,
) -> tuple[Network, History]:
    """Train the method's estimator on the rows of a run, from where the round before left it.

    Args:
        task: see `Task`.
        method: anything with `estimator`, `embedding` and `trainer`.
        loss: of every row.
        before: what this function returned in the round before.
        simulations: other rows than the task's, such as the last round's alone.
        ratios: the proposals' densities over the prior's, for closed forms.
        weights: one number per row, for weighted losses.
        log_prior: one number per row, where a loss is to see others than the prior's.
    """
    rows = task.simulations if simulations is None else simulations
    if before is None:
        before = new_network(task, method)
    elif method.trainer.restart:
        before = before._replace(estimator=new_weights(task, method))
    scaled = rows._replace(x=before.scaling(rows.x, task.capacity))
    if log_prior is None:
        log_prior = task.frame.log_prior(rows.value, rows.theta)
    estimator, history = fit(
        task, method.trainer, loss, before.estimator, scaled, log_prior, ratios=ratios, weights=weights
    )
    return before._replace(estimator=estimator), history


def fit(
    task: Task,
    trainer: Trainer,
    loss: Loss,
    estimator: Any,
    rows: Simulations,
    log_prior: np.ndarray | None = None,
    *,
    ratios: Ratio | None = None,
    weights: np.ndarray | None = None,
    teaching: np.ndarray | None = None,
) -> tuple[Any, History]:
    """Train an estimator of `rows.value` given `rows.x`, whatever stands there: the roles may be swapped.

    `log_prior` is the prior's at each value; None where a loss does not look at it. `teaching` says which
    rows are learned from; None: all that have not failed.

    Raises:
        Rehearsed: the task is a rehearsal.
    """
    trainer = fitting(trainer, rows)
    if teaching is not None:
        rows = rows._replace(done=rows.done & teaching)
    first = estimator.families[0] if isinstance(estimator, Stacked) else estimator
    if _alike(task.head_start, first):
        first = task.head_start
    data = training_rows(
        rows,
        np.zeros(len(rows.value)) if log_prior is None else log_prior,
        ratios,
        weights=weights,
        capacity=task.capacity,
        validates=trainer.validates,
        contrasts=isinstance(loss, Atomic),
        ended=task.ended,
        rng=task.for_training.child(1).generator(),
    )
    if isinstance(loss, Atomic):
        assert loss.atoms is not None
        loss = replace(loss, atoms=min(loss.atoms, trainer.batch))

    def train(key: Key, estimator: Embedded, **listen: Any) -> tuple[Embedded, History]:
        return trainer(key, estimator, loss, data, **listen, number=task.number, last=task.last)

    trained = train(task.for_training, first, listen=task.listen)
    if task.ended is not None:
        raise Rehearsed(trained[0])
    if isinstance(estimator, Stacked):
        return with_others(trained, estimator, train, task.for_training, loss, data, trainer.batch)
    return trained


def _alike(one: Any, two: Any) -> bool:
    """Whether two networks have arrays of the same shapes in the same places."""
    first, second = (jax.tree.flatten(eqx.filter(tree, eqx.is_array)) for tree in (one, two))
    return first[1] == second[1] and [a.shape for a in first[0]] == [a.shape for a in second[0]]


def new_network(task: Task, method: Any) -> Network:
    """The method's network before its first round of training."""
    return Network(new_weights(task, method), fit_scaling(task.simulations.x, task.simulations.done))


def new_weights(task: Task, method: Any) -> Embedded | Stacked:
    """Embedding and density with the random weights that belong to this round."""
    key = task.for_weights.child(task.number) if task.number else task.for_weights
    dim, estimator = task.frame.prior.dim, method.estimator
    if not isinstance(estimator, Stack):
        return build_members(key, estimator, method.embedding, dim, task.event, missing=task.missing)
    families = default_posteriors(task.event) if estimator.families is None else families_of(estimator)
    families = [f if f.embedding is not None else f._replace(embedding=method.embedding) for f in families]
    built = build_families(key, families, dim, task.event, missing=task.missing)
    return Stacked.of(built, np.full(len(built), 1 / len(built)))


def fitting(trainer: Trainer, simulations: Simulations) -> Trainer:
    """A batch no larger than the first of these rounds' training rows. Rounds only add rows, so it stays."""
    first = np.flatnonzero((simulations.round == simulations.round[0]) & simulations.done)
    held_back = trainer.validates(first)
    if not held_back.any():
        raise TrainingError(
            f"none of the {len(first)} successful simulations of the first round is held back to decide when "
            f"to stop. Raise simulations= or Trainer(validation=...)."
        )
    rows, devices = int((~held_back).sum()), trainer.devices or 1
    if rows < devices:
        raise TrainingError(f"Trainer devices={devices}, and the first round has {rows} rows to train on.")
    return replace(trainer, batch=min(trainer.batch, rows - rows % devices))


def direct(task: Task, network: Network, history: History, memory: Any = None) -> Learned:
    """The answer of a method whose network is the posterior."""
    posterior = DirectPosterior(task.frame, network.scaling, network.estimator, task.observation, task.event)
    return Learned(posterior, history, notes_on(posterior), memory)


def notes_on(posterior: DirectPosterior) -> dict[str, float]:
    """Numbers worth watching from round to round."""
    value, weights = posterior.raw_values(4096), {}
    if isinstance(posterior.estimator, Stacked):
        weights = notes_of_weights(np.exp(posterior.estimator.log_weights[0]))
    if posterior.frame.always_inside:
        return {"share_far": float((np.abs(value) > FAR).any(axis=1).mean()), **weights}
    inside = posterior.frame.prior.contains(posterior.frame.to_theta(value))
    return {"acceptance": float(inside.mean()), **weights}


def notes_of_weights(weights: Iterable[float]) -> dict[str, float]:
    """Of the families of a stack."""
    return {f"weight_{k}": float(weight) for k, weight in enumerate(weights, 1)}
