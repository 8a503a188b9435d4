"""Where a posterior was found, and likelihoods that learn only there."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.methods.nearby import Nearby

RNG = np.random.default_rng(0)
DRAWS = RNG.multivariate_normal([1.0, -2.0, 0.0], [[1.0, 0.9, 0], [0.9, 1.0, 0], [0, 0, 1e-4]], 5000)
ROWS = DRAWS[0] + RNG.normal(size=(400, 3)) * [3, 3, 0.1]


def floats(values) -> Any:
    return jnp.asarray(values, jnp.float32)


def distances(values):
    centred = values - DRAWS.mean(axis=0)
    inverse = np.linalg.inv(np.cov(DRAWS, rowvar=False))
    return np.sqrt(np.einsum("ni,ij,nj->n", centred, inverse, centred) / 3)


def test_distances_are_those_of_the_draws_covariance():
    nearby = Nearby.of(DRAWS, ROWS[:10], 3.0)
    np.testing.assert_allclose(nearby.distance(floats(ROWS)), distances(ROWS), rtol=2e-3)
    assert np.sqrt(np.mean(nearby.distance(floats(DRAWS)) ** 2)) == pytest.approx(1, rel=1e-3)


def test_half_of_the_rows_are_near_at_least():
    far = Nearby.of(DRAWS, ROWS, 2.0)
    assert far.radius == pytest.approx(np.median(distances(ROWS)), rel=2e-3)
    assert far.contains(ROWS).mean() == pytest.approx(0.5, abs=0.01)
    wide = Nearby.of(DRAWS, ROWS, 50.0)
    assert wide.radius == 50
    np.testing.assert_array_equal(wide.contains(ROWS), distances(ROWS) <= 50)


def test_a_likelihood_loses_nothing_inside_and_falls_off_outside():
    nearby = Nearby.of(DRAWS, DRAWS, 2.0)
    exact = -1.5 * np.maximum(distances(ROWS) ** 2 - 4, 0)
    assert (exact == 0).any()
    assert (exact < -10).any()
    np.testing.assert_allclose(jax.vmap(nearby.log_weight)(floats(ROWS)), exact, rtol=5e-3, atol=1e-2)
    np.testing.assert_array_equal(jax.vmap(Nearby.everywhere(3).log_weight)(floats(ROWS)), 0)


def test_draws_in_a_plane_or_a_point_have_a_region_too():
    for draws in (DRAWS * [1, 1, 0], np.ones((100, 3))):
        nearby = Nearby.of(draws, ROWS, 3.0)
        assert np.isfinite(nearby.distance(floats(ROWS))).all()
        assert nearby.contains(draws).all()


NOISE = 0.1


def bent(rng, theta):
    """All but linear for small theta, and anything but for large ones."""
    return theta + theta**3 + NOISE * rng.standard_normal(theta.shape)


def infer(method, **sizes):
    prior = apt.gaussian([0.0], [[1.0]])
    return apt.infer(apt.BatchSimulator(bent), prior, [0.0], method=method, progress=False, **sizes)


@pytest.fixture(scope="module", params=[3.0, None])
def posterior(request):
    method = apt.SNL(
        estimator=apt.MDN(1),
        embedding=apt.Flatten(),
        local=request.param,
        trainer=apt.Trainer(learning_rate=0.01, epochs=300),
        sampler=apt.samplers.Resampled(10_000),
    )
    return infer(method, rounds=5, simulations=200).posterior


def is_local(posterior):
    return posterior.model.nearby is not None


def test_a_simple_model_is_right_where_the_posterior_is(posterior):
    draws = posterior.sample(4000)
    grid = np.linspace(-1, 1, 2001)
    exact = np.exp(-0.5 * (grid + grid**3) ** 2 / NOISE**2 - 0.5 * grid**2)
    spread = np.sqrt(np.sum(grid**2 * exact) / np.sum(exact))
    # Mean and spread from some 500 rows near the posterior, and as much again for the training.
    error = 4 * np.sqrt(2 / 500)
    right = abs(draws.mean()) < error * spread and abs(np.log(draws.std() / spread)) < error
    assert right == is_local(posterior)


def test_an_observation_whose_posterior_is_elsewhere_is_warned_of(posterior):
    elsewhere = posterior.given([2.0])
    if is_local(posterior):
        with pytest.warns(apt.SamplingWarning, match=r"draws lie where the likelihood has not learned"):
            elsewhere.sample(100)
    else:
        elsewhere.sample(100)


def test_too_few_rows_are_all_learned_from():
    method = apt.SNL(
        estimator=apt.MDN(1),
        embedding=apt.Flatten(),
        local=2.0,
        trainer=apt.Trainer(epochs=5),
        sampler=apt.samplers.Resampled(1000),
    )
    posterior: Any = infer(method, rounds=2, simulations=20).posterior
    assert np.isinf(posterior.model.nearby.radius)


@pytest.mark.parametrize(
    ("local", "says"),
    [(0, "SNL local must be"), (1.5, "SNL local must be at least 2"), ("near", "SNL local")],
)
def test_other_settings_are_refused(local, says):
    with pytest.raises((TypeError, ValueError), match=says):
        apt.SNL(local=local)
