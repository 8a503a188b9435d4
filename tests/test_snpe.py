"""SNPE-A's division and SNPE-B's weights, against algebra and integrals done independently."""

from types import SimpleNamespace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import aptinfer as apt
from aptinfer.estimators.mdn import MixtureHead
from aptinfer.estimators.mog import (
    GaussianTerms,
    HostMixture,
    Mixture,
    clipped,
    density_ratio,
    divided,
    on_host,
)
from aptinfer.methods import snpe_a
from aptinfer.proposals.defensive import WithPrior
from aptinfer.protocols import Simulations
from aptinfer.spaces import LatentFrame

TRAINER = apt.Trainer(epochs=60, patience=10, learning_rate=5e-3, warmup=10)
PRIOR_COVARIANCE = np.array([[1.0, 0.6], [0.6, 1.0]])
PRIOR = apt.gaussian([0.0, 0.0], PRIOR_COVARIANCE)


def simulator(rng, theta):
    return theta + 0.5 * rng.standard_normal(2)


def infer(method, **settings):
    return apt.infer(simulator, PRIOR, [0.4, 0.7], method=method, progress=False, **settings)


def random_mixture(rng, components, dim, scale):
    factors = np.triu(0.3 * rng.normal(size=(components, dim, dim)), 1)
    factors += np.eye(dim) * np.exp(0.3 * rng.normal(size=(components, 1, dim))) / scale
    weights = rng.dirichlet(np.ones(components))
    arrays = np.log(weights), scale * rng.normal(size=(components, dim)), factors
    return Mixture(*(np.float32(a) for a in arrays))  # pyright: ignore[reportArgumentType]


def multiplied(mixture: HostMixture, proposal: HostMixture, prior: GaussianTerms) -> HostMixture:
    """mixture x proposal / prior in float64, by the textbook formulas about the origin."""
    p_tilde = np.linalg.inv(proposal.covariances[0])
    m_tilde = proposal.means[0]
    precisions = np.linalg.inv(mixture.covariances)
    new = precisions + p_tilde - prior.precision
    shifts = (
        np.einsum("kij,kj->ki", precisions, mixture.means) + p_tilde @ m_tilde - prior.precision @ prior.mean
    )
    means = np.stack([np.linalg.solve(p, s) for p, s in zip(new, shifts, strict=True)])
    quadratic = [
        m @ p @ m - m_0 @ p_0 @ m_0
        for m, p, m_0, p_0 in zip(means, new, mixture.means, precisions, strict=True)
    ]
    log_weights = np.log(mixture.weights) + 0.5 * (
        np.linalg.slogdet(precisions)[1] - np.linalg.slogdet(new)[1] + quadratic
    )
    weights = np.exp(log_weights - log_weights.max())
    return HostMixture(weights / weights.sum(), means, np.linalg.inv(new))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_division_undoes_multiplication(seed, flat):
    rng = np.random.default_rng(seed)
    dim = 3
    precision = np.zeros((dim, dim)) if flat else np.linalg.inv(np.cov(rng.normal(size=(dim, 40))))
    prior = GaussianTerms(0.3 * rng.normal(size=dim) * (not flat), precision)
    original = random_mixture(rng, 4, dim, 0.5)
    proposal = clipped(on_host(random_mixture(rng, 1, dim, 0.4)), prior)
    product = multiplied(on_host(original), proposal, prior)
    roots = np.linalg.cholesky(np.linalg.inv(product.covariances))
    arrays = np.log(product.weights), product.means, np.swapaxes(roots, -1, -2)
    as_network = Mixture(*(np.float32(a) for a in arrays))  # pyright: ignore[reportArgumentType]
    back = on_host(jax.jit(divided)(as_network, density_ratio(proposal, prior)))
    expected = on_host(original)
    for found, known in zip(back, expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=2e-3, atol=2e-4)
    assert np.abs(product.means - expected.means).max() > 0.05


def test_a_quotient_that_is_no_density_is_nan():
    proposal = HostMixture(np.ones(1), np.zeros((1, 2)), 0.1 * np.eye(2)[None])
    prior = GaussianTerms(np.zeros(2), np.eye(2))
    wide = Mixture(np.zeros(1, np.float32), np.zeros((1, 2), np.float32), np.eye(2, dtype=np.float32)[None])  # pyright: ignore
    assert np.isnan(divided(wide, density_ratio(proposal, prior)).factors).any()
    # One component that does not exist is enough: the others' weights are then unknown.
    factors = np.stack([np.eye(2), 10 * np.eye(2)]).astype(np.float32)
    partly = Mixture(np.log([0.5, 0.5]).astype(np.float32), np.zeros((2, 2), np.float32), factors)  # pyright: ignore
    quotient = divided(partly, density_ratio(proposal, prior))
    assert np.isfinite(quotient.factors[1]).all()
    assert np.isnan(quotient.log_weights).all()


def test_snpe_a_grows_its_network_in_the_last_round_only():
    run = infer(apt.SNPEA(estimator=apt.MDN(3), trainer=TRAINER), rounds=3, simulations=300)
    first, *later = [cast(Any, finished.posterior).estimator.head for finished in run.rounds]
    assert isinstance(first, MixtureHead)
    assert first.components == 1
    assert [head.head.components for head in later] == [1, 3]
    assert all(finished.notes["not_positive_definite"] == 0 for finished in run.rounds)
    np.testing.assert_allclose(run.posterior.mean(), [0.44, 0.62], atol=0.25)


def test_a_component_much_wider_than_the_prior_is_no_quotient():
    def found(*spreads, precision=1.0):
        factors = jnp.stack([jnp.diag(jnp.array([10.0, 1 / spread])) for spread in spreads])
        mixture = Mixture(jnp.zeros(len(spreads)), jnp.zeros((len(spreads), 2)), factors)
        return snpe_a._exists(mixture, GaussianTerms(np.zeros(2), precision * np.eye(2)))

    assert found(0.1, 1.0, 1.9)
    assert not found(0.1, 1.0, 2.1)
    assert not found(0.1, 1.0, np.nan)
    assert found(6.0, precision=0.1)
    assert found(1e3, precision=0.0)


def test_snpe_a_keeps_the_last_posterior_that_exists(monkeypatch):
    divide = snpe_a._quotient

    def by_far_too_narrow(estimator, ratios):
        return divide(estimator, eqx.tree_at(lambda r: r.roots, ratios, 100 * ratios.roots))

    monkeypatch.setattr(snpe_a, "_quotient", by_far_too_narrow)
    run = infer(apt.SNPEA(estimator=apt.MDN(1), trainer=TRAINER), rounds=2, simulations=200)
    assert run.rounds[1].notes["not_positive_definite"] == 1
    np.testing.assert_array_equal(run.posterior.sample(5), run.rounds[0].posterior.sample(5))


def test_snpe_b_from_the_prior_is_npe():
    settings = {"estimator": apt.MDN(2), "trainer": TRAINER}
    ours, npe = (infer(m, rounds=1, simulations=300) for m in (apt.SNPEB(**settings), apt.NPE(**settings)))
    np.testing.assert_array_equal(ours.posterior.sample(10), npe.posterior.sample(10))


def mixed(share):
    return apt.Defensive(share) if share else apt.LastPosterior()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("defensive", [0.0, 0.3])
def test_snpe_b_weights_are_prior_over_proposals(own, defensive, monkeypatch):
    from aptinfer.methods import learning, weight_uncertainty

    used, train = [], learning.train_network
    spy = lambda *args, weights: used.append(weights) or train(*args, weights=weights)  # noqa: E731
    monkeypatch.setattr(weight_uncertainty, "train_network", spy)
    method = apt.SNPEB(estimator=apt.MDN(1), trainer=TRAINER, own_weights=own, proposal=mixed(defensive))
    run = infer(method, rounds=2, simulations=400)
    rows, first = run.simulations, run.rounds[0].posterior
    log_prior = PRIOR.log_prob(rows.theta)
    proposed = (1 - defensive) * np.exp(first.log_prob(rows.theta)) + defensive * np.exp(log_prior)
    if own:
        densities = np.where(rows.round == 0, np.exp(log_prior), proposed)
    else:
        densities = 0.5 * np.exp(log_prior) + 0.5 * proposed
    expected = np.exp(log_prior) / densities
    np.testing.assert_array_equal(used[0], 1)
    np.testing.assert_allclose(used[1], expected / expected.mean(), rtol=1e-3)
    effective = expected.sum() ** 2 / np.sum(expected**2)
    assert run.rounds[1].notes["effective_rows"] == pytest.approx(effective, rel=1e-3)
    if not own:
        assert expected.max() < 2 + 1e-6
        # An importance weight has mean one under what the rows were drawn from.
        assert abs(expected.mean() - 1) < 5 * expected.std() / np.sqrt(len(expected))


class Narrow:
    """A proposal with latent mean 0.8 and standard deviation 0.2."""

    def draw(self, rng, n):
        return 0.8 + 0.2 * rng.normal(size=(n, 2))

    def log_ratio(self, value, theta):
        return (norm.logpdf(value, 0.8, 0.2) - norm.logpdf(value)).sum(axis=1)


@pytest.mark.parametrize("defensive", [0.0, 0.3])
def test_snpe_b_weights_average_to_one_over_all_proposed_rows(defensive):
    """Of what was proposed, failed rows included, also with a proposal far narrower than the prior."""
    rng, n = np.random.default_rng(0), 20_000
    narrow, from_prior = Narrow().draw(rng, n), rng.normal(size=(n, 2))
    proposed = np.where(rng.uniform(size=(n, 1)) < defensive, from_prior, narrow)
    z = np.concatenate([rng.normal(size=(n, 2)), proposed])
    failed = np.all(np.abs(z - 0.8) < 0.4, axis=1)  # most of what the narrow proposal draws
    rounds = np.repeat([0, 1], n)
    rows = Simulations(
        z, z @ np.linalg.cholesky(PRIOR_COVARIANCE).T, rounds, rounds, z, np.logical_not(failed)
    )
    task = SimpleNamespace(simulations=rows)
    proposal = WithPrior(Narrow(), LatentFrame(PRIOR, np.float64), defensive) if defensive else Narrow()
    weights = apt.SNPEB().weights(task, (proposal,))  # pyright: ignore
    error = np.sqrt((weights[:n].var() + weights[n:].var()) / 4 / n)  # of two strata of equal size
    assert abs(weights.mean() - 1) < 4 * error < 0.02
    # Without the failed rows it is another number.
    assert abs(weights[~failed].mean() - 1) > 10 * error
    prior, narrow_density = (np.exp(norm.logpdf(z, m, s).sum(axis=1)) for m, s in ((0, 1), (0.8, 0.2)))
    known = prior / (0.5 * prior + 0.5 * (defensive * prior + (1 - defensive) * narrow_density))
    np.testing.assert_allclose(weights, known, rtol=1e-6)
    assert weights.max() <= 2


def test_what_a_method_cannot_do_is_said_when_it_is_built():
    with pytest.raises(ValueError, match=r"SNPEA divides densities.*apt.SNPEB"):
        apt.SNPEA(estimator=apt.MAF())
    with pytest.raises(TypeError, match="Did you mean 'proposal'"):
        apt.SNPEB(proposals=apt.Defensive())  # pyright: ignore[reportCallIssue]
