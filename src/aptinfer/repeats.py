r"""Measurements that were repeated: x as several draws, one beside the other, of one density given theta.

Who measures the same thing four times gets four times as much to learn from, if the likelihood knows of it.
It is found in simulations. If x is made of blocks that are exchangeable given theta, each with p numbers,
rows stay as likely when their blocks change places. So the sizes of

    mean_r g(theta_r) h(u_rtp) - mean_t,        g: 1, coordinates and their squares;  h: u, u^2
    mean_r h(u_rtp) h'(u_rsq) - mean_{t,s},     over t = s and over t != s

over blocks t and s and places p and q, with normal scores u, are those of rows whose blocks were shuffled,
each by itself. By the second a series is known, whose neighbours are more alike than others.

Blocks may stand one after another, or their first numbers first, then their second ones. In any other order
entries of one place are recognised by their relation to theta, and those of one block by depending on
each other.

That blocks are independent given theta is not asked here: a likelihood that takes them for independent
competes with others that do not.
"""

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform
from scipy.special import ndtri
from scipy.stats import rankdata

from aptinfer.screening import normal_scores

FEWEST_ROWS = 50  # for the relation with theta to say anything
MOST_ROWS = 500  # that are looked at
MOST_SEARCHED = 64  # entries that are put in order
SHUFFLES = 30
CLEARLY = 3.0  # standard deviations above shuffles at which blocks are not exchangeable
FIRST, FAR = 3, 3.0  # so many times as unlike as any of the first shuffles: it takes no more of them to tell


def measurements(theta: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Which entries of x (rows, entries), simulated from theta (rows, dim), are one measurement.

    (times, size), of the smallest size; None: all of x is one.
    """
    if len(x) < FEWEST_ROWS:
        return None
    theta, x = normal_scores(theta[:MOST_ROWS]), x[:MOST_ROWS]
    # One scale for all entries: equal laws stay equal.
    scores = ndtri((rankdata(x) - 0.5) / x.size).reshape(x.shape)
    asked = np.column_stack([np.ones(len(theta)), theta, theta**2 - 1])
    entries = np.arange(x.shape[1])
    for size in (size for size in entries[1:] if len(entries) % size == 0):
        times = len(entries) // size
        for blocks in (entries.reshape(times, size), entries.reshape(size, times).T):
            if _exchangeable(asked, scores[:, blocks], rng):
                return blocks
        if size > 1 and len(entries) <= MOST_SEARCHED:
            blocks = _put_in_order(asked, scores, size)
            if blocks is not None and _exchangeable(asked, scores[:, blocks], rng):
                return blocks
    return None


def _exchangeable(asked: np.ndarray, blocks: np.ndarray, rng: np.random.Generator) -> bool:
    """Whether blocks (rows, times, size) are hardly more unlike than they are when shuffled."""
    rows, times, _ = blocks.shape
    powers = np.concatenate([blocks, blocks**2], axis=-1)
    powers = (powers - powers.mean(axis=(0, 1))) / (powers.std(axis=(0, 1)) + 1e-300)
    row, order = np.arange(rows)[:, None], np.tile(np.arange(times), (rows, 1))

    def apart(powers: np.ndarray) -> np.ndarray:
        return np.array([_unlike(asked, powers), _unlike_pairs(powers)])

    found, shuffled = apart(powers), []
    for _ in range(SHUFFLES):
        shuffled.append(apart(powers[row, rng.permuted(order, axis=1)]))
        if len(shuffled) == FIRST and (found > FAR * np.max(shuffled, axis=0)).any():
            return False  # which is how it ends for nearly all that are not
    return bool((found <= np.mean(shuffled, axis=0) + CLEARLY * np.std(shuffled, axis=0)).all())


def _unlike(asked: np.ndarray, powers: np.ndarray) -> float:
    """How much blocks differ in their relation to theta."""
    powers = powers - powers.mean(axis=1, keepdims=True)
    chance = np.einsum("rf,rtp->fp", asked**2, powers**2, optimize=True) + 1e-300
    return float(np.sum(np.einsum("rf,rtp->tfp", asked, powers, optimize=True) ** 2 / chance))


def _unlike_pairs(powers: np.ndarray) -> float:
    """How much pairs of blocks differ in their relation to each other, and blocks within themselves."""
    rows, times, size = powers.shape
    if times > 2:  # what all share is noise here; of two, it is all that can be compared
        powers = powers - powers.mean(axis=1, keepdims=True)
    flat = powers.reshape(rows, times * size)
    products = (flat.T @ flat).reshape(times, size, times, size).swapaxes(1, 2) / rows
    own = np.eye(times, dtype=bool)
    return float(sum(np.sum((some - some.mean(axis=0)) ** 2) for some in (products[own], products[~own])))


def _put_in_order(asked: np.ndarray, scores: np.ndarray, size: int) -> np.ndarray | None:
    """Blocks of entries in any order, (times, size); the same ones always stand in the same order."""
    entries = scores.shape[1]
    unlike = np.zeros((entries, entries))
    for power in (scores, scores**2):
        for feature in asked.T:
            unlike += _differences(feature[:, None] * power) ** 2
    tree = linkage(squareform(unlike, checks=False), "average")
    place = fcluster(tree, size, "maxclust")
    places = [np.flatnonzero(place == k) for k in range(1, size + 1)]
    if any(len(same) != entries // size for same in places):
        return None
    first, *others = places
    blocks = np.column_stack([first, *(_partners(asked, scores, first, other) for other in others)])
    blocks = blocks[np.argsort(blocks.min(axis=1))]
    return blocks[:, np.argsort(blocks[0])]


def _differences(a: np.ndarray) -> np.ndarray:
    """By how many standard errors the means of columns differ, each from each other."""
    between = np.cov(a, rowvar=False)
    variance = np.diag(between)[:, None] + np.diag(between) - 2 * between
    mean = a.mean(axis=0)
    return (mean[:, None] - mean) / np.sqrt(np.maximum(variance, 1e-12) / len(a))


def _partners(asked: np.ndarray, scores: np.ndarray, first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of each entry in `first` the one in `other` that depends on it, whatever theta is.

    Independent ones have the same mean product with any function of theta; those of one block have another.
    """
    fit = np.linalg.lstsq(asked, scores, rcond=None)[0]
    rest = scores - asked @ fit
    products = rest[:, first, None] * rest[:, None, other]
    products = (products - products.mean(axis=(1, 2), keepdims=True)).reshape(len(scores), -1)
    strength = (asked.T @ products) ** 2 / np.maximum((asked**2).T @ products**2, 1e-300)
    _, partner = linear_sum_assignment(-strength.sum(axis=0).reshape(len(first), len(other)))
    return other[partner]
