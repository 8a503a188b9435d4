"""Gaussians over weights: their divergence, the loss with them, and what each round is compared with."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import aptinfer as apt
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import build_members, count_members, member
from aptinfer.keys import Key
from aptinfer.methods import learning, weight_uncertainty
from aptinfer.methods.losses import Batch, MaximumLikelihood
from aptinfer.methods.weight_uncertainty import Gaussians, Uncertain, UncertainWeights

ROWS = 5
PRIOR = apt.gaussian([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]])
TRAINER = apt.Trainer(epochs=40, patience=10, learning_rate=5e-3, warmup=10)


def network(members: int = 1) -> Embedded:
    return build_members(Key((0,)), apt.Ensemble(apt.MDN(1), members), apt.MLP((4,)), 2, (2,))


def one_of(weights: Any, number: int = 0) -> Any:
    """A member's share."""
    return member(weights, number)


def vector_of(estimator) -> jax.Array:
    leaves = jax.tree.leaves(eqx.filter(estimator, eqx.is_inexact_array))
    return jnp.concatenate([jnp.ravel(a) for a in leaves])


def weights_of(estimator) -> np.ndarray:
    return np.asarray(vector_of(estimator))


def batch_of(key=None) -> Batch:
    rng = np.random.default_rng(0)
    x, value = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((ROWS, 2), (ROWS, 1, 2)))
    ones = jnp.ones(ROWS, jnp.float32)
    return Batch(x, value, ones[:, None], ones > 0, ones, None, n_train=1000, key=key)


def test_the_divergence_is_the_integral():
    mean, sd, mean_0, sd_0 = np.array([[0.3, 0.5, -0.2, 1.4], [-1.0, 0.1, 0.0, 0.7], [0.0, 2.0, 0.0, 2.0]]).T

    def integrand(w, p, q):
        return p.pdf(w) * (p.logpdf(w) - q.logpdf(w))

    pairs = [
        (stats.norm(*first), stats.norm(*second))
        for first, second in zip(zip(mean, sd, strict=True), zip(mean_0, sd_0, strict=True), strict=True)
    ]
    ends = [(p.mean() - 12 * p.std(), p.mean() + 12 * p.std()) for p, _ in pairs]
    known = sum(integrate.quad(integrand, *end, args=pair)[0] for pair, end in zip(pairs, ends, strict=True))
    ours, other = (Gaussians(*map(jnp.float32, g)) for g in ((mean, np.log(sd)), (mean_0, np.log(sd_0))))
    assert float(ours.divergence(other)) == pytest.approx(known, rel=1e-5)
    assert float(ours.divergence(ours)) == 0


def test_training_starts_near_the_network_with_the_prior_of_the_settings():
    start = apt.WeightUncertainty(precision=0.04).around(network(3))
    assert count_members(start) == 3  # pyright: ignore[reportArgumentType]
    one = one_of(start, 1)
    mean = weights_of(one.mean)
    np.testing.assert_array_equal(one.log_sd, np.full(mean.size, -5, np.float32))
    known = np.log(5) + 5 + (np.exp(-10) + mean.astype(float) ** 2) * 0.04 / 2 - 0.5
    assert float(one.divergence()) == pytest.approx(known.sum(), rel=1e-5)


def test_random_weights_have_the_spread_that_is_learned():
    start = apt.WeightUncertainty().around(network())
    one = one_of(start)
    mean = weights_of(one.mean)
    log_sd = jnp.linspace(-3, 0, mean.size, dtype=jnp.float32)
    one = eqx.tree_at(lambda u: u.log_sd, one, log_sd)
    draw = eqx.filter_jit(eqx.filter_vmap(lambda u, key: vector_of(u.drawn(key)), in_axes=(None, 0)))
    draws = np.asarray(draw(one, jax.random.split(jax.random.key(0), 2000)), float)
    scaled = (draws - mean) / np.exp(np.asarray(log_sd, float))
    assert np.abs(scaled.mean(axis=0)).max() < 5 / 2000**0.5
    assert np.abs(scaled.std(axis=0) - 1).max() < 5 / 4000**0.5
    away = np.corrcoef(scaled.T) - np.eye(mean.size)
    assert np.abs(away).max() < 6 / 2000**0.5


def test_without_spread_only_the_divergence_is_added():
    one = one_of(apt.WeightUncertainty(precision=1e-12).around(network()))
    certain = eqx.tree_at(lambda u: u.log_sd, one, jnp.full_like(one.log_sd, -30))
    plain, loss, batch = MaximumLikelihood(), Uncertain(MaximumLikelihood()), batch_of(jax.random.key(1))

    @eqx.filter_jit
    def both(certain, batch):
        expected = plain(certain.mean, batch) + certain.divergence() / 1000
        gradient = eqx.filter_grad(lambda u: jnp.mean(loss(u, batch)))(certain)
        known = eqx.filter_grad(lambda e: jnp.mean(plain(e, batch)))(certain.mean)
        return loss(certain, batch), expected, gradient, known

    losses, expected, gradient, known = both(certain, batch)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # Under a flat prior the divergence does not care for the means: they are pulled by the loss alone.
    np.testing.assert_allclose(weights_of(gradient.mean), weights_of(known), rtol=1e-4, atol=1e-6)
    assert (weights_of(gradient.prior) == 0).all()


def test_validation_is_the_plain_loss_at_mean_weights():
    one = one_of(apt.WeightUncertainty().around(network()))
    plain, loss, batch = MaximumLikelihood(), Uncertain(MaximumLikelihood()), batch_of()
    ours, known = eqx.filter_jit(lambda u, b: (loss(u, b), plain(u.mean, b)))(one, batch)
    np.testing.assert_array_equal(ours, known)


def simulator(rng, theta):
    return theta + 0.5 * rng.standard_normal(2)


def test_snpe_b_goes_on_from_the_weights_of_the_round_before(monkeypatch):
    starts: list[UncertainWeights] = []
    ends: list[UncertainWeights] = []
    train = learning.train_network

    def spy(task, method, loss, network, **rows):
        starts.append(network.estimator)
        trained, history = train(task, method, loss, network, **rows)
        ends.append(trained.estimator)  # pyright: ignore[reportArgumentType]
        return trained, history

    monkeypatch.setattr(weight_uncertainty, "train_network", spy)
    method = apt.SNPEB(
        estimator=apt.MDN(1),
        embedding=apt.MLP((8,)),
        trainer=TRAINER,
        uncertainty=apt.WeightUncertainty(precision=0.1),
    )
    run = apt.infer(simulator, PRIOR, [0.4, 0.7], method=method, rounds=2, simulations=200, progress=False)
    for start, end in zip(starts, ends, strict=True):
        for a, b in zip(jax.tree.leaves(start.prior), jax.tree.leaves(end.prior), strict=True):
            np.testing.assert_array_equal(a, b)  # never trained
        assert not np.array_equal(start.log_sd, end.log_sd)
    first, second = (one_of(start) for start in starts)
    np.testing.assert_array_equal(first.prior.mean, 0)
    np.testing.assert_allclose(first.prior.log_sd, 0.5 * np.log(10), rtol=1e-6)
    assert float(second.divergence()) == 0
    np.testing.assert_array_equal(second.prior.mean, weights_of(one_of(ends[0]).mean))
    np.testing.assert_array_equal(second.prior.log_sd, np.asarray(ends[0].log_sd)[0])
    # Posteriors have the mean weights.
    np.testing.assert_array_equal(weights_of(run.rounds[0].posterior.estimator), weights_of(ends[0].mean))  # pyright: ignore


def test_it_is_refused_where_it_is_something_else():
    with pytest.raises(
        TypeError, match=r"SNPEB uncertainty must be None or apt.WeightUncertainty\(...\); got True"
    ):
        apt.SNPEB(uncertainty=True)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="WeightUncertainty precision must be a finite number above 0"):
        apt.WeightUncertainty(precision=0)
