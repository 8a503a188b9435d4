"""Posteriors of weighted particles: moments by weight, draws that repeat, and a density after smoothing."""

from dataclasses import replace

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.posteriors import ParticlePosterior
from aptinfer.posteriors.particles import equal_weights

BOX = apt.box([-1, -1], [1, 1], names=["a", "b"])


def make(n=300, space=None, seed=0) -> ParticlePosterior:
    """Weighted particles near an edge of a box."""
    rng = np.random.default_rng(seed)
    frame = (space or apt.Latent()).frame(BOX, np.float64)
    theta = rng.normal([0.8, -0.2], 0.15, (2 * n, 2))
    theta = theta[BOX.contains(theta)][:n]
    weights = rng.exponential(size=n)
    weights /= weights.sum()
    return ParticlePosterior(frame, np.zeros(2), (2,), frame.from_theta(theta), theta, weights)


def test_moments_use_the_weights():
    posterior = make()
    w, theta = posterior.weights, posterior.theta
    np.testing.assert_allclose(posterior.mean(), np.average(theta, axis=0, weights=w))
    covariance = np.cov(theta.T, aweights=w, ddof=0)
    np.testing.assert_allclose(posterior.std(), np.sqrt(np.diag(covariance)))
    order = np.argsort(theta[:, 0])
    median = theta[order][np.searchsorted(np.cumsum(w[order]), 0.5), 0]
    assert posterior.quantiles([0.5])[0, 0] == median
    assert posterior.effective_size == pytest.approx(1 / np.sum(w**2))
    assert np.isnan(posterior.r_hat)
    assert repr(posterior) == "ParticlePosterior(a, b; 300 particles)"


def test_draws_are_particles_by_weight():
    posterior = make()
    draws = posterior.sample(10_000, seed=1)
    counts = np.array([(draws[:, 0] == a).sum() for a in posterior.theta[:, 0]])
    assert counts.sum() == 10_000
    assert np.abs(counts - 10_000 * posterior.weights).max() < 1
    assert not np.array_equal(draws, posterior.sample(10_000, seed=2))


def test_what_particles_cannot_do():
    posterior = make()
    with pytest.raises(ValueError, match=r"smoothed\(\)"):
        posterior.log_prob([0.1, 0.1])
    with pytest.raises(ValueError, match=r"apt.NPE\(\)"):
        posterior.given([0.1, 0.2])
    with pytest.raises(ValueError, match=r"apt.NPE\(\)"):
        posterior.smoothed().given([0.1, 0.2])
    assert posterior.given(posterior.observation) is posterior
    with pytest.raises(ValueError, match="between 0 and 1"):
        posterior.quantiles([1.5])
    with pytest.raises(ValueError, match="bandwidth"):
        posterior.smoothed(bandwidth=-1.0)


@pytest.mark.parametrize("space", [apt.Latent(), apt.Theta()])
def test_a_smoothed_posterior_is_a_density(space):
    smooth = make(space=space).smoothed()
    draws = smooth.sample(5000, seed=1)
    assert BOX.contains(draws).all()
    assert len(np.unique(draws, axis=0)) == 5000
    middle = (np.arange(200) + 0.5) / 100 - 1
    points = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    mass = np.exp(smooth.log_prob(points)) / 100**2
    # Within the error of the share inside, in theta, and of the grid at the edge, in latent space.
    assert mass.sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(mass @ points, draws.mean(0), atol=0.02)


def test_the_mode_is_where_the_particles_are():
    np.testing.assert_allclose(make(2000).map(), [0.8, -0.2], atol=0.12)


def test_states_of_chains():
    rng = np.random.default_rng(0)
    records = rng.normal(size=(200, 8, 2))
    for t in range(1, 200):
        records[t] = 0.9 * records[t - 1] + np.sqrt(1 - 0.81) * records[t]
    values = records.reshape(-1, 2)
    posterior = replace(
        make(), values=values, theta=BOX.forward(values), weights=equal_weights(1600), chains=8
    )
    # 19 steps of an autoregression of 0.9 are worth one draw.
    assert 1600 / 19 / 2 < posterior.effective_size < 2 * 1600 / 19
    assert 1 < posterior.r_hat < 1.2
    assert "8 chains" in repr(posterior)
    assert len(posterior.smoothed().sample(10)) == 10


def test_particles_that_are_all_alike():
    """As after a population that collapsed: kernels still have a width."""
    one = make(20)
    same = np.zeros(20, int)
    alike = replace(one, values=one.values[same], theta=one.theta[same])
    np.testing.assert_allclose(alike.map(), one.theta[0])
    np.testing.assert_allclose(alike.smoothed().sample(5), one.theta[:5] * 0 + one.theta[0], atol=1e-4)
