"""The only training loop: one compiled program per run.

Rows live in arrays of fixed capacity with a traced count, minibatches are gathered by index on the device,
and many epochs are one `lax.while_loop`, so a new round retraces nothing and no step waits for the host.
Members of an ensemble are a `vmap` axis of that same program, each with its own initial weights, order of
rows and early stopping.

Stopping is without noise: which rows validate is decided by their index for ever, validation candidates
are drawn once per round from validation rows, and the best weights are restored.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from aptinfer.checks import positive_float, positive_int, suggests_keywords
from aptinfer.errors import TrainingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import as_members
from aptinfer.keys import Key, as_jax
from aptinfer.methods.losses import Loss
from aptinfer.rows import TrainingRows
from aptinfer.shuffling import random_order


@dataclass(frozen=True)
class History:
    """How a training went. Losses have one column per member of an ensemble."""

    training_loss: np.ndarray
    validation_loss: np.ndarray
    best_loss: np.ndarray
    epochs: int
    stop_reason: str
    compile_seconds: float
    run_seconds: float
    skipped_steps: int


class Progress(NamedTuple):
    """What a listener is told now and then during training."""

    epoch: int
    training_loss: float
    validation_loss: float
    best_loss: float


class _State(NamedTuple):
    """What an epoch needs from the one before; every array but `epoch` has a leading member axis.

    A member's weights are one vector here: an optimiser's update of many small arrays would be as many small
    loops, which take longer on a CPU than the arithmetic itself.
    """

    weights: Float[Array, "members weights"]
    average: Float[Array, "members weights"]
    optimiser: optax.OptState
    best: Float[Array, "members weights"]
    best_loss: Float[Array, " members"]
    wait: Int[Array, " members"]
    drops: Int[Array, " members"]
    skipped: Int[Array, " members"]
    epoch: Int[Array, ""]


@suggests_keywords
@dataclass(frozen=True)
class Trainer:
    """AdamW with warm-up, gradient clipping, learning-rate drops on plateaus and early stopping.

    When the validation loss has not improved for `patience` epochs, the best weights are restored and the
    learning rate is multiplied by `drop`; after `drops` such drops, training stops.

    Args:
        batch: rows per step (fewer when a first round has fewer).
        learning_rate: of AdamW.
        weight_decay: of AdamW, on matrices only.
        clip: largest global norm of a gradient.
        warmup: steps over which the learning rate rises at the start of each round.
        patience: epochs without improvement that are waited for.
        average: decay of a moving average of the weights, which is then validated and kept; 0: none.
        drops: learning-rate drops before training stops.
        drop: factor of each.
        hurry: wait for half of `patience` and drop nothing in all rounds but the last: they are for proposals
            only, which need not be perfect. As accurate in the end, and nearly twice as fast.
        epochs: largest number of epochs per round.
        validation: share of rows held back to decide when to stop.
    """

    batch: int = 100
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip: float = 5.0
    warmup: int = 50
    patience: int = 20
    average: float = 0.99
    drops: int = 2
    drop: float = 0.2
    hurry: bool = True
    epochs: int = 2000
    validation: float = 0.1

    def __post_init__(self):
        positive_int("Trainer batch", self.batch, minimum=2)
        positive_float("Trainer learning_rate", self.learning_rate)
        positive_float("Trainer weight_decay", self.weight_decay, zero=True)
        positive_float("Trainer clip", self.clip)
        positive_int("Trainer warmup", self.warmup, minimum=0)
        positive_int("Trainer patience", self.patience)
        positive_int("Trainer drops", self.drops, minimum=0)
        positive_float("Trainer drop", self.drop)
        positive_int("Trainer epochs", self.epochs)
        if not 0 <= positive_float("Trainer average", self.average, zero=True) < 1:
            raise ValueError(f"Trainer average must be a decay in [0, 1), got {self.average}.")
        if not 0 < positive_float("Trainer validation", self.validation) <= 0.5:
            raise ValueError(f"Trainer validation must be a share in (0, 0.5], got {self.validation}.")

    def validates(self, index: np.ndarray) -> np.ndarray:
        """Which rows are held back: decided by the row's number, once, for ever."""
        period = round(1 / self.validation)
        return index % period == period - 1

    def __call__(
        self,
        key: Key,
        estimator: Embedded,
        loss: Loss,
        rows: TrainingRows,
        listen: Callable[[Progress], None] = lambda progress: None,
        *,
        last: bool = True,
    ) -> tuple[Embedded, History]:
        """Train every member of `estimator` (arrays with a leading member axis); see `hurry` for `last`."""
        started = time.perf_counter()
        weights, rest = as_members(estimator)
        layout = _Layout.of(weights)
        words = key.words()
        state, rows = jax.device_put((_start(self, layout.vectors(weights)), rows))
        thorough = last or not self.hurry
        limits = _limits(self.patience, self.drops) if thorough else _limits(self.patience / 2, 0)
        block, compile_seconds = _compiled(self, loss, layout, rest, words, state, rows)
        training, validation, reported = [], [], time.perf_counter()
        epochs_per_call, stopped = 1, False
        while not stopped:
            state, losses, done = block(words, state, rest, rows, np.int32(epochs_per_call), limits)
            count = int(state.epoch) - len(training)
            training.extend(np.asarray(losses[0])[:count])
            validation.extend(np.asarray(losses[1])[:count])
            stopped = bool(done)
            listen(Progress(len(training), *_means(training[-1], validation[-1], state.best_loss)))
            # Return to the host about twice a second, for progress and interrupts, not more often.
            now = time.perf_counter()
            faster = now - reported < 0.5
            epochs_per_call = min(2 * epochs_per_call, _BLOCK) if faster else epochs_per_call
            reported = now
        best_loss = np.asarray(state.best_loss)
        if not np.isfinite(best_loss).all():
            raise TrainingError(
                "training never reached a finite validation loss. The simulated data may hold huge "
                "values, or the learning rate may be too large: try Trainer(learning_rate=1e-4)."
            )
        history = History(
            training_loss=np.stack(training),
            validation_loss=np.stack(validation),
            best_loss=best_loss,
            epochs=len(training),
            stop_reason="converged" if len(training) < self.epochs else "epoch limit",
            compile_seconds=compile_seconds,
            run_seconds=time.perf_counter() - started - compile_seconds,
            skipped_steps=int(np.sum(state.skipped)),
        )
        return eqx.combine(layout.arrays(np.asarray(state.best)), rest), history


class _Limits(NamedTuple):
    """When to slow down and when to stop. Not part of the program: rounds differ in them."""

    patience: Float[Array, ""]
    drops: Int[Array, ""]


def _limits(patience: float, drops: int) -> Any:
    return _Limits(np.float32(patience), np.int32(drops))  # pyright: ignore[reportArgumentType]


_BLOCK = 64  # epochs per call of the compiled program at most: the size of its buffer of losses
_FEWEST_EPOCHS = 5  # without improvement before a member may slow down or stop
_PROGRAMS: dict = {}


def _means(*values) -> tuple[float, ...]:
    return tuple(float(np.mean(np.asarray(v))) for v in values)


class _Layout(NamedTuple):
    """How a member's arrays lie in its vector of weights."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @classmethod
    def of(cls, weights) -> "_Layout":
        leaves, structure = jax.tree.flatten(weights)
        return cls(structure, tuple(a.shape[1:] for a in leaves), tuple(a.dtype for a in leaves))

    def vectors(self, weights) -> np.ndarray:
        """All members' weights: (members, weights)."""
        flat = [np.asarray(a, np.float32).reshape(len(a), -1) for a in jax.tree.leaves(weights)]
        return np.concatenate(flat, axis=1)

    def arrays(self, vectors):
        """The arrays in a vector of weights, or in several along a first axis."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = zip(self.shapes, self.dtypes, [0, *ends[:-1]], ends, strict=True)
        xp = np if isinstance(vectors, np.ndarray) else jnp
        leaves = [
            xp.reshape(vectors[..., a:b], (*vectors.shape[:-1], *shape)).astype(dtype)
            for shape, dtype, a, b in parts
        ]
        return jax.tree.unflatten(self.structure, [jnp.asarray(leaf) for leaf in leaves])

    def vector(self, arrays) -> Float[Array, " weights"]:
        """One member's arrays as a vector, in a compiled program."""
        return jnp.concatenate([a.astype(jnp.float32).ravel() for a in jax.tree.leaves(arrays)])

    def decayed(self) -> np.ndarray:
        """One for weights of matrices, which are decayed, zero for biases, which are not."""
        return np.concatenate([np.full(int(np.prod(s)), len(s) >= 2, np.float32) for s in self.shapes])


def _optimiser(trainer: Trainer) -> optax.GradientTransformation:
    """Adam after clipping; learning rate and weight decay are applied by the step itself."""
    return optax.chain(optax.clip_by_global_norm(trainer.clip), optax.scale_by_adam())


def _start(trainer: Trainer, weights: Any) -> _State:
    members = len(weights)

    def filled(value, dtype: Any = np.int32, shape: tuple = (members,)) -> Any:
        return np.full(shape, value, dtype)

    shapes = jax.eval_shape(jax.vmap(_optimiser(trainer).init), weights)
    return _State(
        weights=weights,
        average=weights,
        # Adam starts from zeros throughout; making them here spares a compiled program.
        optimiser=jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes),
        best=weights,
        best_loss=filled(np.inf, np.float32),
        wait=filled(0),
        drops=filled(0),
        skipped=filled(0),
        epoch=filled(0, shape=()),
    )


def _compiled(trainer, loss, layout, rest, words, state, rows):
    """The program for these shapes, compiled at most once per process, and the seconds that took."""
    leaves, structure = jax.tree.flatten((words, state, rest, rows))
    described = tuple((a.shape, a.dtype) if hasattr(a, "dtype") else a for a in leaves)
    wanted = (trainer, loss, layout, structure, described)
    if wanted in _PROGRAMS:
        return _PROGRAMS[wanted], 0.0
    started = time.perf_counter()

    def block(words, state, rest, rows, epochs, limits):
        return _epochs(trainer, loss, layout, as_jax(words), state, rest, rows, epochs, limits)

    lowered = eqx.filter_jit(block).lower(words, state, rest, rows, np.int32(1), _limits(1, 1))
    _PROGRAMS[wanted] = lowered.compile()
    return _PROGRAMS[wanted], time.perf_counter() - started


def _epochs(trainer: Trainer, loss: Loss, layout: _Layout, key, state: _State, rest, rows, epochs, limits):
    """At most `epochs` epochs, fewer when every member has stopped."""
    optimiser, decay = _optimiser(trainer), trainer.weight_decay * layout.decayed()
    members = state.weights.shape[0]
    each = jax.vmap if members > 1 else _alone
    key_of_steps = jax.random.fold_in(key, trainer.epochs)  # a number that no epoch has

    def row_losses(weights, batch):
        return loss(eqx.combine(weights, rest), batch)

    def objective(weights, index, key):
        candidates = index[_neighbours(trainer.batch, loss.atoms)]
        losses = row_losses(weights, rows.batch(index, candidates)._replace(key=key))
        # The expected number of finished rows, not this batch's: a ratio of two sums would be biased.
        return jnp.sum(jnp.where(rows.done[index], losses, 0.0)) / (trainer.batch * rows.share_done)

    def train_epoch(for_order, for_steps, weights, average, optimiser_state, drops, skipped):
        order = rows.train[random_order(for_order, rows.train.shape[0], rows.n_train)]

        def step(i, carry):
            weights, average, optimiser_state, skipped, total = carry
            index = jax.lax.dynamic_slice(order, (i * trainer.batch,), (trainer.batch,))
            key = jax.random.fold_in(for_steps, i)
            value, gradients = jax.value_and_grad(objective)(layout.arrays(weights), index, key)
            gradient = layout.vector(gradients)
            update, proposed = optimiser.update(gradient, optimiser_state)
            count = optax.tree.get(proposed, "count")
            warm = jnp.minimum(count / max(trainer.warmup, 1), 1.0).astype(jnp.float32)
            rate = -trainer.learning_rate * warm * jnp.float32(trainer.drop) ** drops
            # A step whose gradient is not finite is skipped and counted; it must not poison the rest.
            finite = jnp.isfinite(value) & jnp.isfinite(jnp.sum(gradient**2))
            keep = lambda new, old: jnp.where(finite, new, old)  # noqa: E731
            weights = keep(weights + rate * (update + decay * weights), weights)
            optimiser_state = jax.tree.map(keep, proposed, optimiser_state)
            average = weights + trainer.average * (average - weights)
            total = total + jnp.where(finite, value, 0.0)
            return weights, average, optimiser_state, skipped + (~finite).astype(jnp.int32), total

        steps = jnp.maximum(rows.n_train // trainer.batch, 1)
        start = (weights, average, optimiser_state, skipped, jnp.float32(0))
        *carry, total = jax.lax.fori_loop(0, steps, step, start)
        return *carry, total / steps

    def validate(weights):
        n = rows.n_validation

        def part(i, total):
            position = i * trainer.batch + jnp.arange(trainer.batch)
            candidates = (position[:, None] + jnp.arange(loss.atoms)) % n
            index = rows.validation[position % n]
            batch = rows.batch(index, rows.validation[candidates])
            # Where there are more atoms than validation rows, none is offered twice.
            offered = jnp.where(jnp.arange(loss.atoms) < n, batch.log_prior, jnp.inf)
            losses = row_losses(weights, batch._replace(log_prior=offered, position=position))
            counted = (position < n) & rows.done[index]
            losses = jnp.where(counted, losses, 0.0)
            return total[0] + jnp.sum(losses), total[1] + jnp.sum(counted, dtype=jnp.int32)

        parts = (n + trainer.batch - 1) // trainer.batch
        total, counted = jax.lax.fori_loop(0, parts, part, (jnp.float32(0), jnp.int32(0)))
        return total / counted

    def one_epoch(carry):
        i, state, losses = carry
        for_order, for_steps = (
            jax.random.split(jax.random.fold_in(root, state.epoch), members) for root in (key, key_of_steps)
        )
        weights, average, optimiser_state, skipped, training = each(train_epoch)(
            for_order, for_steps, state.weights, state.average, state.optimiser, state.drops, state.skipped
        )
        validation = each(lambda vector: validate(layout.arrays(vector)))(average)
        state = state._replace(weights=weights, average=average, optimiser=optimiser_state, skipped=skipped)
        state = _after_epoch(limits, state, validation)
        losses = (losses[0].at[i].set(training), losses[1].at[i].set(validation))
        return i + 1, state, losses

    def active(state):
        return jnp.any(state.drops <= limits.drops) & (state.epoch < trainer.epochs)

    buffer = jnp.zeros((_BLOCK, members), jnp.float32)
    _, state, losses = jax.lax.while_loop(
        lambda carry: (carry[0] < epochs) & active(carry[1]),
        one_epoch,
        (jnp.int32(0), state, (buffer, buffer)),
    )
    return state, losses, ~active(state)


def _after_epoch(limits: _Limits, state: _State, validation) -> _State:
    """Remember improvements; after `patience` epochs without one go back to the best and slow down."""
    running = state.drops <= limits.drops
    improved = running & (validation < state.best_loss)
    select = lambda choose, new, old: jnp.where(choose[:, None], new, old)  # noqa: E731
    best = select(improved, state.average, state.best)
    wait = jnp.where(improved, 0, state.wait + 1)
    tired = running & (wait >= jnp.maximum(limits.patience, _FEWEST_EPOCHS))
    return state._replace(
        weights=select(tired, best, state.weights),
        average=select(tired, best, state.average),
        best=best,
        best_loss=jnp.where(improved, validation, state.best_loss),
        wait=jnp.where(tired, 0, wait),
        drops=state.drops + tired.astype(jnp.int32),
        epoch=state.epoch + 1,
    )


def _neighbours(batch: int, atoms: int) -> np.ndarray:
    """Candidates of each position of a shuffled batch: itself and those that follow, round the end.

    The batch is in random order, so these are draws without replacement by the same sampler that drew
    the row itself, as the atomic loss demands; with atoms = batch, every row meets every other.
    """
    return (np.arange(batch)[:, None] + np.arange(atoms)) % batch


def _alone(function):
    """`vmap` over an axis of length one, without its cost."""
    take = lambda tree: jax.tree.map(lambda a: a[0], tree)  # noqa: E731
    return lambda *args: jax.tree.map(lambda a: a[None], function(*map(take, args)))
