"""The sliced Wasserstein distance against scipy in one dimension and closed forms in more."""

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import wasserstein_distance

from aptinfer.diagnostics.two_sample import sliced_wasserstein, wasserstein


def mean_absolute_cosine(dim: int) -> float:
    """E|u_1| of a direction u uniform on the sphere."""
    return float(np.exp(gammaln(dim / 2) - gammaln((dim + 1) / 2)) / np.sqrt(np.pi))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (50, 50), (70, 31)])
def test_one_dimension_is_scipys_distance(n, m):
    rng = np.random.default_rng(n)
    x, y, w = rng.normal(size=n), rng.gumbel(2, 3, size=m), rng.exponential(size=n)
    x[n // 2 :] = x[0]  # ties
    assert sliced_wasserstein(x[:, None], y[:, None]) == pytest.approx(wasserstein_distance(x, y), rel=1e-9)
    assert sliced_wasserstein(x[:, None], y[:, None], weights=w) == pytest.approx(
        wasserstein_distance(x, y, w), rel=1e-9
    )


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_a_shift_moves_every_projection_by_its_cosine(dim):
    # The same rows shifted by d: each projection's distance is exactly |u·d|; directions alone add noise.
    y = np.random.default_rng(dim).normal(size=(50, dim))
    shift = np.full(dim, 3.0 / np.sqrt(dim))
    projections = 2000
    mean = mean_absolute_cosine(dim)
    noise = np.sqrt(1 / dim - mean**2) / np.sqrt(projections)  # E u_1² = 1 / dim
    value = sliced_wasserstein(y + shift, y, projections=projections)
    assert value == pytest.approx(3 * mean, abs=3 * 4 * noise)


def test_a_shift_between_independent_gaussians():
    # Sorting noise: a quantile of N(0, 1) from n draws is off by about 1/sqrt(n) on average.
    rng, n, shift = np.random.default_rng(1), 2000, 2.0
    x, y = rng.normal([shift, 0], 1, (n, 2)), rng.normal(size=(3 * n, 2))
    noise = shift * np.sqrt(0.5 - (2 / np.pi) ** 2) / np.sqrt(200)
    assert sliced_wasserstein(x, y) == pytest.approx(shift * 2 / np.pi, abs=4 * noise + 4 / np.sqrt(n))
    assert sliced_wasserstein(x - [shift, 0], y) < 4 / np.sqrt(n)


def test_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    x, y, times = rng.normal(size=(40, 3)), rng.normal(size=(30, 3)), rng.integers(0, 4, 40)
    assert sliced_wasserstein(x, y, weights=times) == pytest.approx(
        sliced_wasserstein(np.repeat(x, times, axis=0), y), rel=1e-9
    )


def test_equal_sets_are_at_distance_zero_and_offsets_cost_no_digits():
    x = np.random.default_rng(3).normal(size=(100, 2))
    assert sliced_wasserstein(x, x) < 1e-12
    assert sliced_wasserstein(x + 1e6, x + 1e6 + 0.1) == pytest.approx(
        sliced_wasserstein(x, x + 0.1), rel=1e-6
    )


def test_blocks_of_directions_change_nothing(monkeypatch):
    x, y = np.random.default_rng(4).normal(size=(2, 100, 3))
    whole = sliced_wasserstein(x, y, projections=17)
    monkeypatch.setattr(wasserstein, "BLOCK", 1000)  # five directions at a time, the last block shorter
    assert sliced_wasserstein(x, y, projections=17) == pytest.approx(whole, rel=1e-12)


def test_the_seed_fixes_the_directions():
    x, y = np.random.default_rng(5).normal(size=(2, 100, 3))
    assert sliced_wasserstein(x, y, seed=1) == sliced_wasserstein(x, y, seed=1)
    assert sliced_wasserstein(x, y, seed=1) != sliced_wasserstein(x, y, seed=2)


def test_unusable_input_is_refused_by_name():
    x = np.zeros((5, 2))
    with pytest.raises(ValueError, match=r"samples must have shape \(n, dim\)"):
        sliced_wasserstein(np.zeros(5), x)
    with pytest.raises(ValueError, match="reference must have at least 1 row"):
        sliced_wasserstein(x, x[:0])
    with pytest.raises(ValueError, match="projections must be a whole number"):
        sliced_wasserstein(x, x, projections=0)
    with pytest.raises(TypeError, match="Did you mean 'projections'"):
        sliced_wasserstein(x, x, projection=3)  # pyright: ignore[reportCallIssue]
