"""What an epoch of training is made of, and epochs of rows that all lie on the device: one compiled program.

Rows live in arrays of fixed capacity with a traced count, minibatches are gathered by index on the device,
and many epochs are one `lax.while_loop`, so a new round retraces nothing and no step waits for the host.
Members of an ensemble are a `vmap` axis of that same program, each with its own initial weights, order of
rows and early stopping.
"""

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from aptinfer import adam
from aptinfer.keys import as_jax
from aptinfer.methods.losses import Loss
from aptinfer.programs import compiled
from aptinfer.rows import TrainingRows
from aptinfer.shuffling import random_order

if TYPE_CHECKING:
    from aptinfer.train import Trainer

BLOCK = 64  # epochs per call of the compiled program at most: the size of its buffer of losses
_AT_ONCE = 8  # arrays that XLA fuses with the concatenation of them; with more, each is a loop and a copy
_FEWEST_EPOCHS = 5  # without improvement before a member may slow down or stop


class State(NamedTuple):
    """What an epoch needs from the one before; every array but `epoch` has a leading member axis.

    A member's weights are one vector here: an optimiser's update of many small arrays would be as many small
    loops, which take longer on a CPU than the arithmetic itself.
    """

    weights: Float[Array, "members weights"]
    average: Float[Array, "members weights"]
    moments: adam.Moments
    best: Float[Array, "members weights"]
    best_loss: Float[Array, " members"]
    wait: Int[Array, " members"]
    drops: Int[Array, " members"]
    skipped: Int[Array, " members"]
    epoch: Int[Array, ""]


class Limits(NamedTuple):
    """When to slow down and when to stop. Not part of the program: rounds differ in them."""

    patience: Float[Array, ""]
    drops: Int[Array, ""]
    epochs: Int[Array, ""]


def limits_of(patience: float, drops: int, epochs: int) -> Any:
    return Limits(np.float32(patience), np.int32(drops), np.int32(epochs))  # pyright: ignore


class Layout(NamedTuple):
    """How a member's arrays lie in its vector of weights: those of one shape side by side.

    So a few of them at a time are joined in their own shape, and then flattened. XLA computes an array that
    it flattens at once element by element on CPUs, which takes three times as long.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @classmethod
    def of(cls, weights) -> "Layout":
        leaves, structure = jax.tree.flatten(weights)
        return cls(structure, tuple(a.shape[1:] for a in leaves), tuple(a.dtype for a in leaves))

    def groups(self) -> list[list[int]]:
        """The numbers of arrays that are joined, in the vector's order."""
        alike = [[i for i, s in enumerate(self.shapes) if s == shape] for shape in dict.fromkeys(self.shapes)]
        return [group[k : k + _AT_ONCE] for group in alike for k in range(0, len(group), _AT_ONCE)]

    def vectors(self, weights) -> np.ndarray:
        """All members' weights: (members, weights)."""
        flat = [np.asarray(a, np.float32).reshape(len(a), -1) for a in jax.tree.leaves(weights)]
        return np.concatenate([flat[i] for group in self.groups() for i in group], axis=1)

    def arrays(self, vectors):
        """The arrays in a vector of weights, or in several along a first axis."""
        xp = np if isinstance(vectors, np.ndarray) else jnp
        leaves, start = {}, 0
        for i in itertools.chain(*self.groups()):
            shape, end = self.shapes[i], start + math.prod(self.shapes[i])
            part = xp.reshape(vectors[..., start:end], (*vectors.shape[:-1], *shape))
            leaves[i], start = jnp.asarray(part.astype(self.dtypes[i])), end
        return jax.tree.unflatten(self.structure, [leaves[i] for i in range(len(leaves))])

    def vector(self, arrays) -> Float[Array, " weights"]:
        """One member's arrays as a vector, in a compiled program."""
        leaves = [jnp.atleast_1d(a.astype(jnp.float32)) for a in jax.tree.leaves(arrays)]
        return jnp.concatenate(
            [jnp.concatenate([leaves[i] for i in group]).ravel() for group in self.groups()]
        )

    def decayed(self) -> np.ndarray:
        """One for weights of matrices, which are decayed, zero for biases, which are not."""
        shapes = [self.shapes[i] for group in self.groups() for i in group]
        return np.concatenate([np.full(math.prod(s), len(s) >= 2, np.float32) for s in shapes])


def start(weights: Any) -> State:
    members = len(weights)

    def filled(value, dtype: Any = np.int32, shape: tuple = (members,)) -> Any:
        return np.full(shape, value, dtype)

    return State(
        weights=weights,
        average=weights,
        moments=adam.Moments.start(weights),
        best=weights,
        best_loss=filled(np.inf, np.float32),
        wait=filled(0),
        drops=filled(0),
        skipped=filled(0),
        epoch=filled(0, shape=()),
    )


class Epoch(NamedTuple):
    """The parts of an epoch. Where rows are not on the device, `x` of a minibatch is handed in."""

    trainer: "Trainer"
    loss: Loss
    layout: Layout

    def keys(self, words, epoch, members: int):
        """For every member, a key of its order of rows and one of its steps."""
        key = as_jax(words)
        key_of_steps = jax.random.fold_in(key, self.trainer.most_epochs)  # a number that no epoch has
        return [jax.random.split(jax.random.fold_in(root, epoch), members) for root in (key, key_of_steps)]

    def order(self, key, rows: TrainingRows) -> Int[Array, " capacity"]:
        """The numbers of the training rows in random order."""
        return rows.train[random_order(key, rows.train.shape[0], rows.n_train)]

    def steps(self, rows: TrainingRows) -> Any:
        """How many an epoch has."""
        return jnp.maximum(rows.n_train // self.trainer.batch, 1)

    def step(self, i, carry: "Carry", rest, rows: TrainingRows, order, key, drops, x=None) -> "Carry":
        """Step number `i` of a member's epoch."""
        trainer, layout = self.trainer, self.layout
        index = jax.lax.dynamic_slice(order, (i * trainer.batch,), (trainer.batch,))

        def objective(weights):
            candidates = index[neighbours(trainer.batch, self.loss.atoms)]
            batch = rows.batch(index, candidates, x)._replace(key=jax.random.fold_in(key, i))
            losses = self.loss(eqx.combine(weights, rest), batch)
            # The expected number of finished rows, not this batch's: a ratio of two sums would be biased.
            return jnp.sum(jnp.where(rows.done[index], losses, 0.0)) / (trainer.batch * rows.share_done)

        value, gradients = jax.value_and_grad(objective)(layout.arrays(carry.weights))
        warm = jnp.minimum((carry.moments.steps + 1).astype(jnp.float32) / max(trainer.warmup, 1), 1)
        slower = np.float32(trainer.drop) ** drops.astype(jnp.float32)
        # A step that is not finite is skipped and counted; it must not poison the rest.
        weights, moments, taken = adam.step(
            carry.weights,
            carry.moments,
            layout.vector(gradients),
            jnp.isfinite(value),
            rate=np.float32(trainer.learning_rate) * warm * slower,
            clip=trainer.clip,
            decay=np.float32(trainer.weight_decay) * layout.decayed() if trainer.weight_decay else None,
        )
        return Carry(
            weights=weights,
            average=weights + np.float32(trainer.average) * (carry.average - weights),
            moments=moments,
            skipped=carry.skipped + (~taken).astype(jnp.int32),
            total=carry.total + jnp.where(taken, value, np.float32(0)),
        )

    def parts(self, rows: TrainingRows) -> Any:
        """How many a validation has."""
        return (rows.n_validation + self.trainer.batch - 1) // self.trainer.batch

    def part(self, i, sums, weights, rest, rows: TrainingRows, x=None):
        """The sum of losses and the number of rows, with those of part number `i` of a validation added."""
        estimator = eqx.combine(self.layout.arrays(weights), rest)
        losses, counted = held_back_losses(self.loss, estimator, rows, i, self.trainer.batch, x)
        losses = jnp.where(counted, losses, 0.0)
        return sums[0] + jnp.sum(losses), sums[1] + jnp.sum(counted, dtype=jnp.int32)

    def active(self, state: State, limits: Limits):
        return jnp.any(state.drops <= limits.drops) & (state.epoch < limits.epochs)


class Carry(NamedTuple):
    """What a step of a member needs from the one before; `total` is the sum of the epoch's losses."""

    weights: Float[Array, "*members weights"]
    average: Float[Array, "*members weights"]
    moments: adam.Moments
    skipped: Int[Array, "*members"]
    total: Float[Array, "*members"]

    @classmethod
    def of(cls, state: State) -> "Carry":
        nothing = jnp.zeros_like(state.best_loss)
        return cls(state.weights, state.average, state.moments, state.skipped, nothing)


def held_back_losses(loss: Loss, estimator, rows: TrainingRows, i, size: int, x=None):
    """Losses of part number `i`, of `size` rows, of a validation, and which of them count."""
    n, atoms = rows.n_validation, loss.atoms
    position = i * size + jnp.arange(size)
    candidates = (position[:, None] + jnp.arange(atoms)[None, :]) % n
    index = rows.validation[position % n]
    batch = rows.batch(index, rows.validation[candidates], x)
    # Where there are more atoms than validation rows, none is offered twice.
    offered = jnp.where(jnp.arange(atoms)[None, :] < n, batch.log_prior, jnp.inf)
    batch = batch._replace(log_prior=offered, position=position)
    return loss(estimator, batch), (position < n) & rows.done[index]


def no_losses() -> tuple[Float[Array, ""], Int[Array, ""]]:
    """The sum and the number of losses before a validation."""
    return jnp.float32(0), jnp.int32(0)


def after_epoch(limits: Limits, state: State, carry: Carry, validation) -> State:
    """Remember improvements; after `patience` epochs without one go back to the best and slow down."""
    running = state.drops <= limits.drops
    improved = running & (validation < state.best_loss)
    select = lambda choose, new, old: jnp.where(choose[:, None], new, old)  # noqa: E731
    best = select(improved, carry.average, state.best)
    wait = jnp.where(improved, 0, state.wait + 1)
    tired = running & (wait.astype(jnp.float32) >= jnp.maximum(limits.patience, _FEWEST_EPOCHS))
    return State(
        weights=select(tired, best, carry.weights),
        average=select(tired, best, carry.average),
        moments=carry.moments,
        best=best,
        best_loss=jnp.where(improved, validation, state.best_loss),
        wait=jnp.where(tired, 0, wait),
        drops=state.drops + tired.astype(jnp.int32),
        skipped=carry.skipped,
        epoch=state.epoch + 1,
    )


class InMemory:
    """Epochs of rows that lie on the device: as many as asked for in one call of a compiled program."""

    def __init__(self, epoch: Epoch, words, state: State, rest, rows: TrainingRows):
        self._fixed = (words, rest, jax.device_put(rows))

        def block(words, rest, rows, state, epochs, limits):
            return epochs_in_memory(epoch, words, state, rest, rows, epochs, limits)

        arguments = (*self._fixed, state, np.int32(1), limits_of(1, 1, 1))
        self._block, self.compile_seconds = compiled("in memory", block, epoch, *arguments)

    def __call__(self, state: State, epochs: int, limits: Limits):
        """The state after at most so many epochs, their losses, and whether training has ended."""
        return self._block(*self._fixed, state, np.int32(epochs), limits)


def epochs_in_memory(parts: Epoch, words, state: State, rest, rows, epochs, limits):
    """At most `epochs` epochs, fewer when every member has stopped."""
    members = state.weights.shape[0]
    each = jax.vmap if members > 1 else alone

    def train(for_order, for_steps, carry, drops):
        order = parts.order(for_order, rows)
        steps = parts.steps(rows)
        one = lambda i, carry: parts.step(i, carry, rest, rows, order, for_steps, drops)  # noqa: E731
        carry = jax.lax.fori_loop(0, steps, one, carry)
        return carry, carry.total / steps.astype(jnp.float32)

    def validate(weights):
        one = lambda i, sums: parts.part(i, sums, weights, rest, rows)  # noqa: E731
        total, counted = jax.lax.fori_loop(0, parts.parts(rows), one, no_losses())
        return total / counted.astype(jnp.float32)

    def one_epoch(turn):
        i, state, losses = turn
        for_order, for_steps = parts.keys(words, state.epoch, members)
        carry, training = each(train)(for_order, for_steps, Carry.of(state), state.drops)
        validation = each(validate)(carry.average)
        losses = (losses[0].at[i].set(training), losses[1].at[i].set(validation))
        return i + 1, after_epoch(limits, state, carry, validation), losses

    buffer = jnp.zeros((BLOCK, members), jnp.float32)
    _, state, losses = jax.lax.while_loop(
        lambda turn: (turn[0] < epochs) & parts.active(turn[1], limits),
        one_epoch,
        (jnp.int32(0), state, (buffer, buffer)),
    )
    return state, losses, ~parts.active(state, limits)


def neighbours(batch: int, atoms: int) -> np.ndarray:
    """Candidates of each position of a shuffled batch: itself and those that follow, round the end.

    The batch is in random order, so these are draws without replacement by the same sampler that drew
    the row itself, as the atomic loss demands; with atoms = batch, every row meets every other.
    """
    return (np.arange(batch)[:, None] + np.arange(atoms)) % batch


def alone(function):
    """`vmap` over an axis of length one, without its cost."""
    take = lambda tree: jax.tree.map(lambda a: a[0], tree)  # noqa: E731
    return lambda *args: jax.tree.map(lambda a: a[None], function(*map(take, args)))
