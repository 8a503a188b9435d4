"""MMD² against a direct computation in double precision, and against cases with closed forms."""

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from aptinfer import problems
from aptinfer.diagnostics.two_sample import mmd, mmd2


def direct(x, y, w, s):
    """The definition, with all kernels in memory."""

    def kernel(a, b):
        return np.exp(-cdist(a, b, "sqeuclidean") / (2 * s**2))

    v = np.full(len(y), 1 / len(y))
    xx, yy = kernel(x, x), kernel(y, y)
    np.fill_diagonal(xx, 0)
    np.fill_diagonal(yy, 0)
    return w @ xx @ w / (1 - w @ w) + v @ yy @ v / (1 - v @ v) - 2 * w @ kernel(x, y) @ v


@pytest.mark.parametrize(
    ("n", "m", "dim", "shift", "offset"),
    [
        (2, 3, 1, 0.5, 0.0),
        (7, 10, 1, 0.5, 0.0),
        (1500, 1025, 2, 0.0, 0.0),  # neither a multiple of the tile
        (1024, 300, 5, 0.3, 1e5),  # far from zero, where single precision has few digits left
        (300, 1100, 20, 2.0, 0.0),  # more columns than are unrolled
    ],
)
def test_equals_the_definition(n, m, dim, shift, offset):
    rng = np.random.default_rng(n)
    x, y = rng.normal(shift, 1, (n, dim)) + offset, rng.normal(0, 1, (m, dim)) + offset
    s = np.median(pdist(y))
    assert mmd2(x, y) == pytest.approx(direct(x, y, np.full(n, 1 / n), s), abs=1e-6)
    w = rng.exponential(size=n)
    assert mmd2(x, y, weights=w, bandwidth=0.3) == pytest.approx(direct(x, y, w / w.sum(), 0.3), abs=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_is_unbiased_for_gaussians(shift):
    # E k between N(a, I) and N(b, I) is (s²/(s² + 2))^(dim/2) exp(-|a - b|² / (2 (s² + 2))).
    dim, s, n, repeats = 2, 1.5, 100, 100
    alike = (s**2 / (s**2 + 2)) ** (dim / 2)
    expected = 2 * alike * (1 - np.exp(-dim * shift**2 / (2 * (s**2 + 2))))
    rng = np.random.default_rng(4)
    values = [
        mmd2(rng.normal(shift, 1, (n, dim)), rng.normal(size=(n, dim)), bandwidth=s) for _ in range(repeats)
    ]
    assert abs(np.mean(values) - expected) < 4 * np.std(values, ddof=1) / np.sqrt(repeats)
    if shift == 0:
        assert min(values) < 0 < max(values)


def test_importance_weights_undo_a_shift():
    rng = np.random.default_rng(5)
    x, y = rng.normal(0, 1, (2000, 1)), rng.normal(0.5, 1, (2000, 1))
    weights = np.exp(0.5 * x[:, 0])  # N(0.5, 1) / N(0, 1), up to a constant
    # Kernels lie in [0, 1], so that MMD² at equality has a standard deviation below sqrt(2) (1/n + 1/m).
    noise = np.sqrt(2) * (np.sum(weights**2) / weights.sum() ** 2 + 1 / 2000)
    assert abs(mmd2(x, y, weights=weights)) < 4 * noise < mmd2(x, y)
    assert mmd2(x, y, weights=weights) == mmd2(x, y, weights=1e-300 * weights)


def test_known_values_of_two_moons():
    # Square roots known for this bandwidth: the prior 0.60, one missing mode 0.67, a Gaussian 0.33.
    problem = problems.get("two_moons")
    assert problem.reference is not None
    rng = np.random.default_rng(6)
    truth, other = (problem.reference(rng, np.zeros(2), n) for n in (4000, 2000))
    half = other[other.sum(1) > 0]
    gaussian = rng.multivariate_normal(truth.mean(0), np.cov(truth.T), 2000)
    for samples, known in [(rng.uniform(-1, 1, (2000, 2)), 0.60), (half, 0.67), (gaussian, 0.33)]:
        # A mean of kernels in [0, 1] over n rows: standard deviation of MMD² below 4 · 0.5 / sqrt(n).
        noise = 2 / np.sqrt(len(samples)) / (2 * known)
        assert np.sqrt(mmd2(samples, truth, bandwidth=0.229)) == pytest.approx(known, abs=noise)
    assert abs(mmd2(other, truth, bandwidth=0.229)) < 1e-3


def test_the_default_bandwidth_is_the_reference_median(monkeypatch):
    rng = np.random.default_rng(7)
    x, y = rng.normal(0, 3, (50, 2)), rng.normal(0, 1, (500, 2))
    exact = np.median(pdist(y))
    assert mmd2(x, y) == mmd2(x, y, bandwidth=float(exact))
    # Of many rows only some are paired, always the same. A median distance varies like a standard deviation.
    monkeypatch.setattr(mmd, "MEDIAN_ROWS", 200)
    assert mmd._median_distance(y) == mmd._median_distance(y)
    assert mmd._median_distance(y) != exact
    assert mmd._median_distance(y) == pytest.approx(exact, rel=4 / np.sqrt(2 * 200))


def test_memory_does_not_grow_with_the_number_of_pairs():
    n, dim = 100_000, 10
    x, w = mmd._tiles(np.zeros((n, dim)), np.full(n, 1 / n), np.zeros(dim), 1.0)
    pairs = jax.ShapeDtypeStruct((len(x) ** 2, 2), np.int32)
    needs = mmd._tile_sums.lower(x, w, x, w, pairs).compile().memory_analysis()
    assert needs is not None
    assert needs.temp_size_in_bytes < 16 * mmd.TILE**2 + 2 * x.nbytes
    assert needs.output_size_in_bytes < 10**6


def test_rows_beyond_single_precision_are_merely_far():
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=(100, 1)), rng.normal(size=(100, 1))
    x[0] = 1e300
    w = np.full(100, 1 / 100)
    assert mmd2(x, y) == pytest.approx(direct(np.clip(x, -1e6, 1e6), y, w, np.median(pdist(y))), abs=1e-6)


def test_unusable_input_is_refused_by_name():
    x = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(ValueError, match="samples must have at least 2 rows"):
        mmd2(x[:1], x)
    with pytest.raises(ValueError, match="equally many columns"):
        mmd2(x, x[:, :1])
    with pytest.raises(ValueError, match=r"weights must have shape \(10,\)"):
        mmd2(x, x, weights=np.ones(9))
    with pytest.raises(ValueError, match="weights must be at least 0"):
        mmd2(x, x, weights=-np.ones(10))
    with pytest.raises(ValueError, match="weights must not all be 0"):
        mmd2(x, x, weights=np.zeros(10))
    with pytest.raises(ValueError, match="at least two rows"):
        mmd2(x, x, weights=np.eye(10)[0])
    with pytest.raises(ValueError, match="bandwidth must be a finite number above 0"):
        mmd2(x, x, bandwidth=0.0)
    with pytest.raises(ValueError, match="Give bandwidth="):
        mmd2(x, np.zeros((10, 2)))
    with pytest.raises(TypeError, match="Did you mean 'bandwidth'"):
        mmd2(x, x, bandwith=1.0)  # pyright: ignore[reportCallIssue]
