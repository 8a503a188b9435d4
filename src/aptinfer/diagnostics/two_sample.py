"""The classifier two-sample test (C2ST): can a small network tell two sets of samples apart?

Label the samples y = 0 and the reference y = 1, train a classifier c(theta) on the pooled rows
and report its accuracy on rows it was not trained on. The best possible accuracy is

    1/2 + 1/4 ∫ |p(theta) - q(theta)| dtheta,

so 0.5 means that the sets cannot be told apart and 1.0 that they do not overlap. A trained
classifier reaches at most that; published values are comparable only for the same classifier.
This one is scikit-learn's `MLPClassifier` with its default settings and two hidden layers of
10·dim ReLU units, on inputs standardised by the reference, averaged over five shuffled folds.
All folds train side by side in one compiled program.

References: Lopez-Paz & Oquab, "Revisiting classifier two-sample tests", ICLR 2017; Lueckmann et
al., "Benchmarking simulation-based inference", AISTATS 2021.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from aptinfer import checks

__all__ = ["c2st"]

MINIMUM_ROWS = 100

# scikit-learn's defaults; MAXIMUM_EPOCHS is the published recipe's.
BATCH = 200
LEARNING_RATE = 1e-3
DECAY_1, DECAY_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's
PENALTY = 1e-4
TOLERANCE = 1e-4
PATIENCE = 10
MAXIMUM_EPOCHS = 10_000

# Beyond this many standard deviations a row is separable anyway; squares stay finite in float32.
FARTHEST = 1e6

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
        seed: fixes the folds, the initial weights and the minibatches.
        folds: number of folds; every row is tested once.

    Returns:
        Mean test accuracy over the folds: 0.5 is indistinguishable, 1.0 fully separable.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> score = c2st(rng.normal(size=(500, 2)), rng.normal(size=(500, 2)))
        >>> 0.4 < score < 0.6
        True
    """
    first, second = _rows("samples", samples), _rows("reference", reference)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"samples and reference must have equally many columns, one per parameter; got shapes "
            f"{first.shape} and {second.shape}."
        )
    seed = checks.positive_int("seed", seed, minimum=0)
    folds = checks.positive_int("folds", folds, minimum=2)
    size = min(len(first), len(second))
    if folds > size:
        raise ValueError(f"folds must be at most the number of rows, {size}; got {folds}.")

    centre, scale = second.mean(0), second.std(0)
    # A constant column has no scale; where the samples differ from it, they still differ.
    scale = np.where(scale > 0, scale, 1.0)

    rng = np.random.default_rng(seed)
    thinned = [x if len(x) == size else rng.choice(x, size, replace=False) for x in (first, second)]
    rows = (np.concatenate(thinned) - centre) / scale
    rows = np.clip(rows, -FARTHEST, FARTHEST).astype(np.float32)
    labels = np.repeat(np.array([0, 1], np.float32), size)

    shuffled = rng.permutation(2 * size)
    tests = np.array_split(shuffled, folds)
    trains = [np.setdiff1d(shuffled, test, assume_unique=True) for test in tests]
    key = jax.random.key(rng.integers(2**32, dtype=np.uint32))
    weights = _glorot(rng, rows.shape[1])
    right = _right(key, weights, rows, labels, *_padded(tests), *_padded(trains))
    accuracies = np.asarray(right, np.float64) / [len(test) for test in tests]
    return float(accuracies.mean())


def _rows(name: str, value: object) -> np.ndarray:
    array = checks.finite_array(name, value)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape (n, dim), one draw per row; got shape {array.shape}.")
    if len(array) < MINIMUM_ROWS:
        raise ValueError(
            f"{name} must have at least {MINIMUM_ROWS} rows for a classifier to learn from; got "
            f"{len(array)}. Draw more; published values use 10000."
        )
    return array


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


@jax.jit
def _right(
    key: Array,
    weights: Weights,
    rows: Array,
    labels: Array,
    test: Array,
    tested: Array,
    train: Array,
    used: Array,
) -> Array:
    """The number of correctly classified test rows of each fold.

    One `while_loop` trains all folds until the last has stopped; those that stopped before keep
    their weights. As in the published recipe, where each fold starts from the same random state,
    the folds share their initial weights and the order of their rows.
    """
    folds, size = train.shape

    def training(state: _Training) -> Array:
        return state.stalled <= PATIENCE

    def unfinished(carry: tuple[Array, _Training]) -> Array:
        epoch, states = carry
        return jnp.any(training(states)) & (epoch < MAXIMUM_EPOCHS)

    def one_epoch(carry: tuple[Array, _Training]) -> tuple[Array, _Training]:
        epoch, states = carry
        order = _permutation(jax.random.fold_in(key, epoch), size)

        def one_fold(state: _Training, index: Array, counts: Array) -> _Training:
            index, counts = index[order], counts[order]
            new = _epoch(state, rows[index], labels[index], counts)
            return jax.tree.map(functools.partial(jnp.where, training(state)), new, state)

        return epoch + 1, jax.vmap(one_fold)(states, train, used)

    def correct(state: _Training, index: Array, counts: Array) -> Array:
        right = (_logits(state.weights, rows[index]) > 0) == (labels[index] > 0)
        return jnp.sum(counts * right.astype(jnp.float32))

    zeros = jax.tree.map(jnp.zeros_like, weights)
    start = _Training(weights, zeros, zeros, jnp.float32(0), jnp.float32(jnp.inf), jnp.int32(0))
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * folds), start)
    _, states = lax.while_loop(unfinished, one_epoch, (jnp.int32(0), starts))
    return jax.vmap(correct)(states, test, tested)


def _permutation(key: Array, size: int) -> Array:
    """A random order of `size` rows, fast: sort one word of random bits and index per row.

    Sorting pairs, as `jax.random.permutation` does, takes five times as long on CPUs. Rows whose
    random bits agree keep their order, which does not matter for minibatches.
    """
    width = max(1, (size - 1).bit_length())
    bits = jax.random.bits(key, (size,), "uint32")
    words = lax.sort((bits << jnp.uint32(width)) | lax.iota(jnp.uint32, size))
    return (words & jnp.uint32(2**width - 1)).astype(jnp.int32)


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


def _glorot(rng: np.random.Generator, dim: int) -> Weights:
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
    """One step of Adam, with scikit-learn's placement of epsilon; returns loss × batch size."""
    rows, labels, used = minibatch
    loss, gradient = jax.value_and_grad(_loss)(state.weights, rows, labels, used)
    steps = state.steps + 1
    rate = LEARNING_RATE * jnp.sqrt(1 - DECAY_2**steps) / (1 - DECAY_1**steps)
    mean = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, state.mean, gradient)
    square = jax.tree.map(lambda v, g: DECAY_2 * v + (1 - DECAY_2) * g * g, state.square, gradient)
    weights = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) + EPSILON), state.weights, mean, square
    )
    moved = state._replace(weights=weights, mean=mean, square=square, steps=steps)
    return moved, loss * jnp.sum(used)
