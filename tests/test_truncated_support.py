"""Priors with edges, in theta space and without a bijection: rejection, new starts, and distilled flows."""

from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest
from scipy import stats

import aptinfer as apt
from aptinfer.posteriors import DirectPosterior

TRAINER = apt.Trainer(epochs=60, patience=10, learning_rate=5e-3, warmup=10)
BOX, X_O = apt.box([-1, -1], [1, 1]), np.array([0.9, -0.95])


def simulator(rng, theta):
    return theta + 0.5 * rng.standard_normal(2)


@pytest.fixture(scope="module")
def leaking() -> DirectPosterior:
    """A Gaussian of width 0.3 centred in a corner of the box: a quarter of it lies inside."""
    method = apt.NPE(estimator=apt.MDN(1), space=apt.Theta(), trainer=TRAINER)
    posterior = apt.infer(simulator, BOX, X_O, method=method, simulations=100, progress=False).posterior
    assert isinstance(posterior, DirectPosterior)
    mean = posterior.frame.from_theta(np.array([[1.0, -1.0]]))[0]
    narrow = -np.log(0.3 / posterior.frame.spread)  # pyright: ignore
    bias = np.array([*mean, narrow[0], 0, 0, narrow[1]], np.float32)
    linear = posterior.estimator.head.linear  # pyright: ignore
    known = eqx.tree_at(lambda m: (m.weight, m.bias), linear, (0 * linear.weight, bias[None]))
    return replace(posterior, estimator=eqx.tree_at(lambda e: e.head.linear, posterior.estimator, known))


def test_distilling_keeps_the_shape_and_brings_the_mass_inside(leaking):
    distilled = apt.distil(leaking, estimator=apt.NSF(layers=2), draws=4000, trainer=apt.Trainer(epochs=60))
    assert abs(leaking.acceptance[0] - 0.25) < 0.02
    assert distilled.acceptance[0] > 0.9
    half = stats.truncnorm(-2 / 0.3, 0, 1.0, 0.3)
    theta = half.rvs((20_000, 2), random_state=0) * np.array([1, -1])
    ours = distilled.sample(20_000, seed=2)
    assert (np.abs(ours) < 1).all()
    spread = theta.std(axis=0)
    # Trained on 3,600 draws: a mean is known to 1 / 60 of the spread, and a flow adds its own error.
    assert np.abs((ours.mean(axis=0) - theta.mean(axis=0)) / spread).max() < 5 / 60 + 0.05
    assert np.abs(ours.std(axis=0) / spread - 1).max() < 0.1
    exact = np.log(half.pdf(theta * np.array([1, -1]))).sum(axis=1)  # pyright: ignore
    assert -0.05 < (exact - distilled.log_prob(theta)).mean() < 0.15


def test_a_distilled_posterior_knows_one_observation(leaking):
    distilled = apt.distil(leaking, estimator=apt.MDN(1), draws=300, trainer=TRAINER)
    with pytest.raises(ValueError, match="distilled at one observation and knows no other"):
        distilled.given([0.0, 0.0])
    with pytest.raises(ValueError, match="needs a single observation"):
        apt.distil(leaking.given(np.zeros((2, 2))))
    with pytest.raises(TypeError, match=r"distil takes the posterior of a run with apt.APT\(\)"):
        apt.distil("posterior")  # pyright: ignore[reportArgumentType]


def test_a_restart_begins_every_round_with_its_own_new_weights(monkeypatch):
    started, train = [], apt.Trainer.__call__

    def spy(self, key, estimator, *args, **keywords):
        started.append(np.asarray(estimator.head.linear.weight).copy())
        return train(self, key, estimator, *args, **keywords)

    monkeypatch.setattr(apt.Trainer, "__call__", spy)
    for restart in (False, True):
        method = apt.APT(estimator=apt.MDN(1), trainer=apt.Trainer(restart=restart, epochs=2, batch=50))
        run = apt.infer(
            simulator,
            apt.box([-1, -1], [1, 1]),
            X_O,
            method=method,
            rounds=2,
            simulations=100,
            progress=False,
        )
        trained = np.asarray(run.rounds[0].posterior.estimator.head.linear.weight)  # pyright: ignore
        assert np.array_equal(started[-1], trained) != restart
    assert not np.array_equal(started[-1], started[-2])
