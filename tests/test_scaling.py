"""Standardising x: robust, by channel, one-to-one, and exact where float32 would not be."""

import numpy as np
import pytest

from aptinfer.scaling import LINEAR_UP_TO, Scaling, fit_scaling

N = 4000


def test_normal_data_become_standard():
    x = np.random.default_rng(0).normal([3.0, -20.0], [0.1, 7.0], size=(N, 2))
    u = fit_scaling(x)(x)
    assert u.dtype == np.float32
    # Standard errors of a median, and of a width from quartiles: 1.25 and 1.17 over the root of N.
    assert (np.abs(u.mean(0)) < 5 * 1.25 / N**0.5).all()
    assert (np.abs(u.std(0) - 1) < 5 * 1.17 / N**0.5).all()


def test_heavy_tails_neither_widen_the_bulk_nor_stay_huge():
    x = np.random.default_rng(1).standard_cauchy((N, 1)) * 10 + 5
    scaling = fit_scaling(x)
    # Cauchy quartiles lie one scale from the centre; three outliers of 1e30 change nothing.
    assert scaling.spread == pytest.approx(2 * 10 / 1.349, rel=0.15)
    outliers = fit_scaling(np.concatenate([x, np.full((3, 1), 1e30)]))
    assert outliers.spread == pytest.approx(scaling.spread, rel=0.01)
    u = scaling(np.array([[1e30], [-1e30], [np.median(x)]]))
    assert np.isfinite(u).all()
    assert np.abs(u).max() < 400
    assert u[2] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 7.5, -1e20, 0.1 + 0.2])
def test_constants_become_zero(value):
    x = np.full((50, 1), value)
    x[::2] *= 1 + 2e-16  # a constant up to rounding is a constant
    scaling = fit_scaling(x)
    assert scaling.spread == 1
    np.testing.assert_allclose(scaling(np.full((3, 1), scaling.centre)), 0)


def test_heavy_tails_keep_the_resolution_of_their_middle_half():
    """Log-normal, sigma = 3: the tails' deviation is some thirty times the quartiles' distance."""
    x = np.exp(3 * np.random.default_rng(0).normal(size=(20_000, 1)))
    quartile = 3 * 0.6745
    assert fit_scaling(x).spread == pytest.approx(2 * np.sinh(quartile) / 1.349, rel=0.1)


def test_counts_that_are_mostly_zero_are_spread_by_their_deviation():
    x = np.random.default_rng(2).poisson(0.1, size=(N, 1)).astype(float)
    assert np.quantile(x, 0.75) == 0
    scaling = fit_scaling(x)
    assert scaling.centre == 0
    assert scaling.spread == pytest.approx(0.1**0.5, rel=0.1)  # a Poisson's variance is its mean


def test_rare_counts_stay_finite_and_distinct():
    x = np.zeros((1000, 1))
    x[:2, 0] = [3, 4]  # beyond the 99.5 % quantile
    u = fit_scaling(x)(x)[:, 0]
    assert np.isfinite(u).all()
    assert u[2] == 0 < u[0] < u[1]


def test_a_large_offset_keeps_its_digits():
    noise = np.random.default_rng(3).normal(size=(N, 1))
    x = 1e8 + noise
    u = fit_scaling(x)(x)
    # What float32 alone would make of 1e8 ± 1: multiples of 8.
    assert len(np.unique(np.float32(x))) < 5
    assert len(np.unique(u)) > 0.99 * N
    assert np.corrcoef(u[:, 0], noise[:, 0])[0, 1] > 1 - 1e-6
    assert u.std() == pytest.approx(1, abs=5 * 1.17 / N**0.5)


@pytest.mark.parametrize(
    ("shape", "axis", "centre_shape"),
    [((200, 30, 2), 2, (1, 2)), ((100, 2, 5, 6), 1, (2, 1, 1)), ((500, 2), 1, (2,))],
    ids=["series", "images", "vectors"],
)
def test_channels_are_scaled_apart_and_keep_their_shape(shape, axis, centre_shape):
    rng = np.random.default_rng(4)
    widths = np.expand_dims(np.array([1.0, 1000.0]), tuple(i for i in range(len(shape)) if i != axis))
    x = widths * (rng.normal(size=shape) + 3)
    scaling = fit_scaling(x)
    assert scaling.centre.shape == scaling.spread.shape == centre_shape
    np.testing.assert_allclose(scaling.spread.ravel(), [1, 1000], rtol=0.2)
    np.testing.assert_allclose(scaling.centre.ravel(), [3, 3000], rtol=0.1)
    assert scaling(x).shape == shape
    np.testing.assert_array_equal(scaling(x)[0], scaling(x[0]))  # one row alone, as x_o is


def test_a_trend_over_time_survives():
    time = np.linspace(-1, 1, 40)[None, :, None]
    x = time + 0.01 * np.random.default_rng(5).normal(size=(100, 40, 1))
    u = fit_scaling(x)(x).mean(0)[:, 0]
    np.testing.assert_allclose(np.corrcoef(u, time[0, :, 0])[0, 1], 1, atol=1e-3)


def test_one_to_one_monotone_and_smooth():
    scaling = Scaling(np.array([2.0]), np.array([0.5]))
    size = np.geomspace(1e-3, 1e12, 3000)
    x = np.concatenate([-size[::-1], size])[:, None]
    u = scaling(x).astype(np.float64)[:, 0]
    assert (np.diff(u) > 0).all()
    # The inverse by hand.
    far = np.sign(u) * LINEAR_UP_TO * np.exp(np.abs(u) / LINEAR_UP_TO - 1)
    back = np.where(np.abs(u) <= LINEAR_UP_TO, u, far) * 0.5 + 2
    np.testing.assert_allclose(back, x[:, 0], rtol=1e-4, atol=1e-6)
    # Value and slope agree on both sides of where compression starts.
    edge, step = 2 + 0.5 * LINEAR_UP_TO, 1e-3
    below, at, above = scaling(np.array([[edge - step], [edge], [edge + step]]))[:, 0]
    assert at == pytest.approx(LINEAR_UP_TO)
    assert (above - at) / (at - below) == pytest.approx(1, abs=2e-3)
