r"""Entries of x that have nothing to do with the parameters, found in simulations.

If entries D are independent of theta and of all other entries S together, then p(theta | x) = p(theta | x_S)
exactly: they can be left out, and a density of x has that much less to learn. That is so whatever the
parameters were drawn from: rows of all rounds may be asked. Whether an entry belongs to D is judged by
correlations of its normal scores u, and of u^2, with

* the normal scores of theta's coordinates, their squares and products;
* the scores of the entries that are kept, so that a channel that carries another's noise stays.

An entry that passes for noise alone may still carry a little, and a hundred of them a lot. So D is left out
only if its correlations are, all together, no larger than those of shuffled rows.
"""

from itertools import combinations_with_replacement

import numpy as np
from scipy.special import ndtri
from scipy.stats import norm, rankdata

FEWEST_ENTRIES = 16  # of x, for it to be worth while
FEWEST_ROWS = 50  # for correlations to say anything
LEVEL = 0.01  # chance that any entry of pure noise is kept
JOINT_LEVEL = 0.02  # share of shuffles that must be as large for D to be left out
SHUFFLES = 100


def informative(theta: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Which entries of x (rows, entries), simulated from theta (rows, dim), to keep.

    All of them, where there are few, or few rows, or where those that look like noise do not do so together.
    """
    rows, entries = x.shape
    everything = np.ones(entries, bool)
    if entries < FEWEST_ENTRIES or rows < FEWEST_ROWS:
        return everything
    asked, scores = _features(theta), _scores(x)
    largest = np.abs(_correlations(asked, scores)).max(axis=(0, 1))
    kept = largest > _threshold(rows, asked.shape[1] * scores.shape[1] * entries)
    between = np.abs(_correlations(_flat(scores), scores)).reshape(2, entries, 2, entries).max(axis=(0, 2))
    linked = between > _threshold(rows, 4 * entries**2 / 2)
    while (more := kept | (linked & kept[:, None]).any(axis=0)).sum() > kept.sum():
        kept = more
    if kept.all() or not kept.any() or _joint(asked, scores[:, :, ~kept], rng):
        return everything
    return kept


def _features(theta: np.ndarray) -> np.ndarray:
    """Scores of the coordinates, squares and products, standardised: (rows, features)."""
    theta = normal_scores(theta)
    pairs = combinations_with_replacement(range(theta.shape[1]), 2)
    products = [theta[:, i] * theta[:, j] for i, j in pairs]
    return _standardised(np.column_stack([theta, *products]))


def normal_scores(a: np.ndarray) -> np.ndarray:
    """Each column as if it were normal: quantiles of the ranks of its rows."""
    return ndtri((rankdata(a, axis=0) - 0.5) / len(a))


def _scores(x: np.ndarray) -> np.ndarray:
    """Normal scores of every entry, and their squares: (rows, 2, entries)."""
    u = normal_scores(x)
    return _standardised(np.stack([u, u**2], axis=1))


def _standardised(a: np.ndarray) -> np.ndarray:
    spread = a.std(axis=0)
    return (a - a.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _flat(scores: np.ndarray) -> np.ndarray:
    return scores.reshape(len(scores), -1)


def _correlations(a: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(features of a, 2, entries)."""
    return (a.T @ _flat(scores)).reshape(a.shape[1], *scores.shape[1:]) / len(a)


def _threshold(rows: int, tests: float) -> float:
    """What none of so many correlations of independent numbers exceeds, but for a chance of `LEVEL`."""
    return norm.isf(LEVEL / 2 / tests) / np.sqrt(rows)


def _joint(asked: np.ndarray, scores: np.ndarray, rng: np.random.Generator) -> bool:
    """Whether these entries are correlated with theta all together more than by chance."""
    size = lambda features: float(np.sum(_correlations(features, scores) ** 2))  # noqa: E731
    by_chance = np.array([size(rng.permutation(asked)) for _ in range(SHUFFLES)])
    return float((by_chance >= size(asked)).mean()) < JOINT_LEVEL
