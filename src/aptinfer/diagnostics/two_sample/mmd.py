"""The squared maximum mean discrepancy (MMD²): how far apart two sets are on average, under a kernel.

With the Gaussian kernel k(u, v) = exp(-|u - v|² / (2 s²)),

    MMD² = mean_{i≠j} k(x_i, x_j) + mean_{i≠j} k(y_i, y_j) - 2 mean_{i,j} k(x_i, y_j)

is an unbiased estimate of the squared distance between the two distributions' kernel means. It is
zero on average when they are equal, and then often a little below zero. One bandwidth s, the median
distance between the reference's rows, makes values comparable between methods; it also makes the test
weak where a posterior has fine structure, such as thin modes. Use `c2st` beside it.

Between two equal modes, as of two moons, half of the pairs are near and half are far: the median is one
or the other by chance, whatever the number of rows. Give a bandwidth there.

References: Gretton et al., "A kernel two-sample test", JMLR 2012; Papamakarios et al., "Sequential
neural likelihood", AISTATS 2019, for the bandwidth and the weighted form.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.spatial.distance import pdist

from aptinfer import checks
from aptinfer.diagnostics import arrays
from aptinfer.precision import precise

__all__ = ["mmd2"]

MEDIAN_ROWS = 5000  # pairs of so many rows fit into 100 MB
TILE = 1024

# In bandwidths. Kernels of rows so far out are zero, and their differences stay finite in float32.
FARTHEST = 1e15


@checks.suggests_keywords
def mmd2(
    samples: object, reference: object, *, weights: object = None, bandwidth: float | None = None
) -> float:
    """Unbiased squared maximum mean discrepancy between `samples` and `reference`.

    Normalised weights w replace the mean over the samples' pairs by Σ_{i≠j} w_i w_j k / (1 - Σ_i w_i²), and
    the mean over mixed pairs by a weighted one. Time grows with the number of pairs, memory with the number
    of rows: kernels are computed tile by tile in single precision, around a common centre, and added in
    double.

    Args:
        samples: `(n, dim)` array, at least two rows.
        reference: `(m, dim)` array, at least two rows.
        weights: `(n,)` array of importance weights of the samples, in any unit; None for equal ones.
        bandwidth: the kernel's standard deviation s; None for the median Euclidean distance between two rows
            of the reference, over all pairs, or over those of 5000 rows (always the same) when it has more.

    Returns:
        MMD²; about zero, perhaps slightly negative, for equal distributions. Figures often show its square
        root: `np.sqrt(max(value, 0))`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> near, far = rng.normal(0, 1, (500, 2)), rng.normal(5, 1, (500, 2))
        >>> reference = rng.normal(0, 1, (500, 2))
        >>> abs(mmd2(near, reference)) < 0.01 < 0.5 < mmd2(far, reference)
        True
    """
    first, second = arrays.pair(samples, reference, minimum=2, reason="to have pairs")
    weight = arrays.weights(weights, len(first))
    if np.sum(weight**2) > 1 - 1e-6:
        raise ValueError("weights must be above 0 for at least two rows: one row alone has no pairs.")
    scale = _median_distance(second) if bandwidth is None else checks.positive_float("bandwidth", bandwidth)
    equal = arrays.weights(None, len(second))
    within = _within(first, weight, scale) + _within(second, equal, scale)
    return within - 2 * _between(first, weight, second, equal, scale)


def _median_distance(reference: np.ndarray) -> float:
    if len(reference) > MEDIAN_ROWS:
        chosen = np.random.default_rng(0).choice(len(reference), MEDIAN_ROWS, replace=False)
        reference = reference[chosen]
    median = float(np.median(pdist(reference), overwrite_input=True))
    if not 0 < median < np.inf:
        raise ValueError(
            f"The median distance between rows of reference is {median}, which is no bandwidth for a kernel. "
            f"Are most rows equal? Give bandwidth=."
        )
    return median


def _within(rows: np.ndarray, weights: np.ndarray, scale: float) -> float:
    """The weighted mean kernel of two different rows."""
    x, w = _tiles(rows, weights, np.median(rows, 0), scale)
    i, j = np.triu_indices(len(x))
    sums = np.asarray(_tile_sums(x, w, x, w, np.stack([i, j], 1)), np.float64)
    total = np.sum(np.where(i == j, 1, 2) * sums)  # the kernel is symmetric
    itself = np.sum(w.astype(np.float64) ** 2)  # k(x_i, x_i) = 1
    return float((total - itself) / (np.sum(w, dtype=np.float64) ** 2 - itself))


def _between(
    first: np.ndarray, weight: np.ndarray, second: np.ndarray, equal: np.ndarray, scale: float
) -> float:
    """The weighted mean kernel of a row of each set."""
    centre = np.median(second, 0)
    x, w = _tiles(first, weight, centre, scale)
    y, v = _tiles(second, equal, centre, scale)
    pairs = np.indices((len(x), len(y))).reshape(2, -1).T
    total = np.sum(np.asarray(_tile_sums(x, w, y, v, pairs), np.float64))
    return float(total / (np.sum(w, dtype=np.float64) * np.sum(v, dtype=np.float64)))


def _tiles(
    rows: np.ndarray, weights: np.ndarray, centre: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows in bandwidths, `(tiles, dim, size)`, and their weights times n; rows of weight 0 fill the last."""
    n, dim = rows.shape
    size = min(TILE, 2 ** (n - 1).bit_length())
    tiles = -(-n // size)
    x = np.zeros((tiles * size, dim), np.float32)
    w = np.zeros(tiles * size, np.float32)
    x[:n] = np.clip((rows - centre) / scale, -FARTHEST, FARTHEST)
    w[:n] = weights * n
    return np.ascontiguousarray(x.reshape(tiles, size, dim).swapaxes(1, 2)), w.reshape(tiles, size)


@jax.jit
@precise
def _tile_sums(x: Array, w: Array, y: Array, v: Array, pairs: Array) -> Array:
    """Σ_ab w_a v_b k(x_a, y_b) over each pair of tiles, one pair after the other.

    Differences, and no matrix product: |u|² + |v|² - 2 u·v would lose what is left of it for close rows, and
    accelerators multiply matrices in less than single precision.
    """

    def one(pair: Array) -> Array:
        first, second = x[pair[0]], y[pair[1]]

        def add(square: Array, columns: tuple[Array, Array]) -> tuple[Array, None]:
            difference = columns[0][:, None] - columns[1][None, :]
            return square + difference * difference, None

        start = jnp.zeros((x.shape[2], y.shape[2]), jnp.float32)
        square, _ = lax.scan(add, start, (first, second), unroll=min(x.shape[1], 16))
        kernel = jnp.exp(jnp.float32(-0.5) * square)
        return jnp.sum(w[pair[0]] * jnp.sum(kernel * v[pair[1]][None, :], axis=1))

    return lax.map(one, pairs)
