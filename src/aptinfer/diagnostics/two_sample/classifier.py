"""The classifier two-sample test (C2ST): can a small network tell two sets of samples apart?

Label the samples y = 0 and the reference y = 1, train a classifier c(theta) on the pooled rows
and report its accuracy on rows it was not trained on. The best possible accuracy is

    1/2 + 1/4 ∫ |p(theta) - q(theta)| dtheta,

so 0.5 means that the sets cannot be told apart and 1.0 that they do not overlap. A trained
classifier reaches at most that; published values are comparable only for the same classifier.
This one is scikit-learn's `MLPClassifier` with its default settings and two hidden layers of
10·dim ReLU units, on inputs standardised by the reference, averaged over five shuffled folds. It
draws the same random numbers: folds, initial weights and minibatches are those of
`c2st_published`, and only rounding differs. All folds train side by side in one compiled program.

References: Lopez-Paz & Oquab, "Revisiting classifier two-sample tests", ICLR 2017; Lueckmann et
al., "Benchmarking simulation-based inference", AISTATS 2021.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from aptinfer import checks
from aptinfer.diagnostics import arrays
from aptinfer.diagnostics.two_sample.published import MAXIMUM_EPOCHS, MINIMUM_ROWS, REASON, standardised
from aptinfer.precision import precise

__all__ = ["c2st"]

# scikit-learn's defaults.
BATCH = 200
LEARNING_RATE = 1e-3
DECAY_1, DECAY_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's
PENALTY = 1e-4
TOLERANCE = 1e-4
PATIENCE = 10

EPOCHS_PER_CALL = 20  # the host shuffles so many epochs ahead

Weights = list[tuple[Array, Array]]


@checks.suggests_keywords
def c2st(samples: object, reference: object, *, seed: int = 1, folds: int = 5) -> float:
    """Cross-validated accuracy of a classifier between `samples` and `reference`.

    With equal distributions the value scatters around 0.5 with a standard deviation of about
    0.5 / sqrt(2 n). If one set is larger, a random subset of it is used, so that chance is 0.5
    whatever the sizes. The two arguments are not symmetric: `reference` sets the scale.

    Args:
        samples: `(n, dim)` array, at least 100 rows, such as draws from a posterior estimate.
        reference: `(m, dim)` array, at least 100 rows, draws from the truth.
        seed: fixes the folds, the initial weights and the minibatches; published values use 1.
        folds: number of folds; every row is tested once.

    Returns:
        Mean test accuracy over the folds: 0.5 is indistinguishable, 1.0 fully separable.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> score = c2st(rng.normal(size=(500, 2)), rng.normal(size=(500, 2)))
        >>> 0.4 < score < 0.6
        True
    """
    first, second = arrays.pair(samples, reference, minimum=MINIMUM_ROWS, reason=REASON)
    seed = checks.whole_seed(seed)
    folds = checks.positive_int("folds", folds, minimum=2)
    size = min(len(first), len(second))
    if folds > size:
        raise ValueError(f"folds must be at most the number of rows, {size}; got {folds}.")

    rows = standardised(first, second)
    rng = np.random.default_rng(seed)
    parts = rows[: len(second)], rows[len(second) :]
    parts = [x if len(x) == size else rng.choice(x, size, replace=False) for x in parts]
    rows, labels = np.concatenate(parts), np.repeat(np.array([0, 1], np.float32), size)

    tests, trains = _folds(seed, 2 * size, folds)
    sizes = [len(train) for train in trains]
    test, tested = _padded(tests)
    train, used = _padded(trains)
    states = _start(_glorot(np.random.RandomState(seed), rows.shape[1]), folds)
    for orders in _orders(seed, rows.shape[1], sizes):
        states = _train(states, rows, labels, train, used, orders)
        if not np.any(_training(states)):
            break
    right = _right(states.weights, rows, labels, test, tested)
    accuracies = np.asarray(right, np.float64) / [len(test) for test in tests]
    return float(accuracies.mean())


def _folds(seed: int, size: int, folds: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Test and training rows of every fold, the same that scikit-learn's `KFold` makes."""
    shuffled = np.arange(size)
    np.random.RandomState(seed).shuffle(shuffled)
    fold = np.empty(size, int)
    for number, part in enumerate(np.array_split(shuffled, folds)):
        fold[part] = number
    numbers = range(folds)
    return [np.flatnonzero(fold == k) for k in numbers], [np.flatnonzero(fold != k) for k in numbers]


def _orders(seed: int, dim: int, sizes: Sequence[int]) -> Iterator[np.ndarray]:
    """The order of each fold's training rows in each epoch, `(EPOCHS_PER_CALL, folds, longest)` at a time.

    Every fold's classifier starts from the same seed, whose generator draws the initial weights first and
    then shuffles once per epoch; folds of equal size see the same orders. Where a fold is one row shorter
    than another, the row that does not count comes last.
    """
    longest = max(sizes)
    generators = {size: np.random.RandomState(seed) for size in sorted(set(sizes))}
    for generator in generators.values():
        _glorot(generator, dim)
    last = {size: np.arange(longest, dtype=np.int32) for size in generators}
    for _ in range(MAXIMUM_EPOCHS // EPOCHS_PER_CALL):
        orders = np.empty((EPOCHS_PER_CALL, len(sizes), longest), np.int32)
        for epoch in range(EPOCHS_PER_CALL):
            for size, generator in generators.items():
                shuffled = np.arange(size)
                generator.shuffle(shuffled)
                last[size][:size] = last[size][shuffled]
            orders[epoch] = [last[size] for size in sizes]
        yield orders


def _padded(indices: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Index sets that may differ in length by one, as a matrix, and 1.0 where an entry counts."""
    longest = max(map(len, indices))
    counts = np.arange(longest)[None, :] < np.array([len(i) for i in indices])[:, None]
    filled = [np.resize(i, longest) for i in indices]
    return np.stack(filled).astype(np.int32), counts.astype(np.float32)


class _Training(NamedTuple):
    """What one fold carries from epoch to epoch: Adam's state and the stopping rule's."""

    weights: Weights
    mean: Weights
    square: Weights
    steps: Array
    best: Array
    stalled: Array


def _start(weights: Weights, folds: int) -> _Training:
    """All folds, one per row of every leaf, with the same initial weights."""
    zeros = jax.tree.map(jnp.zeros_like, weights)
    one = _Training(weights, zeros, zeros, jnp.float32(0), jnp.float32(jnp.inf), jnp.int32(0))
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * folds), one)


def _training(state: _Training) -> Array:
    return state.stalled <= PATIENCE


@jax.jit
@precise
def _train(
    states: _Training, rows: Array, labels: Array, train: Array, used: Array, orders: Array
) -> _Training:
    """All folds, one epoch per entry of `orders` or until the last fold has stopped.

    Those that stopped before keep their weights.
    """

    def unfinished(carry: tuple[Array, _Training]) -> Array:
        epoch, states = carry
        return jnp.any(_training(states)) & (epoch < len(orders))

    def one_epoch(carry: tuple[Array, _Training]) -> tuple[Array, _Training]:
        epoch, states = carry

        def one_fold(state: _Training, index: Array, counts: Array, order: Array) -> _Training:
            index, counts = index[order], counts[order]
            new = _epoch(state, rows[index], labels[index], counts)
            return jax.tree.map(functools.partial(jnp.where, _training(state)), new, state)

        return epoch + 1, jax.vmap(one_fold)(states, train, used, orders[epoch])

    return lax.while_loop(unfinished, one_epoch, (jnp.int32(0), states))[1]


@jax.jit
@precise
def _right(weights: Weights, rows: Array, labels: Array, test: Array, tested: Array) -> Array:
    """The number of correctly classified test rows of each fold."""

    def correct(weights: Weights, index: Array, counts: Array) -> Array:
        right = (_logits(weights, rows[index]) > 0) == (labels[index] > 0)
        return jnp.sum(counts * right.astype(jnp.float32))

    return jax.vmap(correct)(weights, test, tested)


def _epoch(state: _Training, rows: Array, labels: Array, used: Array) -> _Training:
    """One pass over the rows in minibatches, the last perhaps smaller, then the stopping rule."""
    batch = min(BATCH, len(rows))
    missing = -len(rows) % batch

    def batches(array: Array) -> Array:
        widths = [(0, missing)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, widths).reshape(-1, batch, *array.shape[1:])

    state, losses = lax.scan(_adam, state, (batches(rows), batches(labels), batches(used)))
    loss = jnp.sum(losses) / jnp.sum(used)
    improved = loss <= state.best - TOLERANCE
    return state._replace(
        best=jnp.minimum(loss, state.best),
        stalled=jnp.where(improved, jnp.int32(0), state.stalled + 1),
    )


def _glorot(rng: np.random.RandomState, dim: int) -> Weights:
    """Weights and biases uniform within ± sqrt(6 / (fan in + fan out)); two hidden layers."""
    layers = []
    for fan_in, fan_out in itertools.pairwise([dim, 10 * dim, 10 * dim, 1]):
        bound = np.sqrt(6 / (fan_in + fan_out))
        matrix = rng.uniform(-bound, bound, (fan_in, fan_out))
        bias = rng.uniform(-bound, bound, fan_out)
        layers.append((jnp.asarray(matrix, jnp.float32), jnp.asarray(bias, jnp.float32)))
    return layers


def _logits(weights: Weights, rows: Array) -> Array:
    *hidden, (matrix, bias) = weights
    for w, b in hidden:
        rows = jax.nn.relu(rows @ w + b[None, :])
    return (rows @ matrix + bias[None, :])[:, 0]


def _loss(weights: Weights, rows: Array, labels: Array, used: Array) -> Array:
    """Mean logistic loss plus (PENALTY / 2) |weights|² / batch size; biases are not penalised."""
    size = jnp.maximum(jnp.sum(used), jnp.float32(1))
    logits = _logits(weights, rows)
    # jax.nn.softplus without its care for infinite inputs, which cannot occur here.
    softplus = jnp.maximum(logits, jnp.float32(0)) + jnp.log1p(jnp.exp(-jnp.abs(logits)))
    penalty = 0.5 * PENALTY * sum(jnp.sum(matrix * matrix) for matrix, _ in weights)
    return (jnp.sum(used * (softplus - labels * logits)) + penalty) / size


def _adam(state: _Training, minibatch: tuple[Array, Array, Array]) -> tuple[_Training, Array]:
    """One step of Adam, with scikit-learn's placement of epsilon; returns loss × batch size.

    The last minibatch of a fold that is a row shorter than another may be empty, and changes nothing.
    """
    rows, labels, used = minibatch
    loss, gradient = jax.value_and_grad(_loss)(state.weights, rows, labels, used)
    some = (jnp.sum(used) > 0).astype(jnp.float32)
    steps = state.steps + some
    new_1, new_2 = some * (1 - DECAY_1), some * (1 - DECAY_2)
    rate = some * LEARNING_RATE * jnp.sqrt(1 - DECAY_2**steps) / (1 - DECAY_1**steps)
    mean = jax.tree.map(lambda m, g: (1 - new_1) * m + new_1 * g, state.mean, gradient)
    square = jax.tree.map(lambda v, g: (1 - new_2) * v + new_2 * g * g, state.square, gradient)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + EPSILON), state.weights, mean, square
    )
    moved = state._replace(weights=weights, mean=mean, square=square, steps=steps)
    return moved, loss * jnp.sum(used)
