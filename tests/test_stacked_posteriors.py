"""Stacks of posteriors: the mixture that they are, the scores that weight them, and a run."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import aptinfer as apt
from aptinfer.estimators.embeddings import Embedded, Flatten
from aptinfer.estimators.ensemble import each_member
from aptinfer.estimators.mdn import LOG_DIAGONAL
from aptinfer.estimators.stack import ENOUGH, Family, Stacked, default_posteriors
from aptinfer.methods.losses import Atomic, Loss, MaximumLikelihood
from aptinfer.methods.stacked import _losses
from aptinfer.protocols import Simulations
from aptinfer.rows import TrainingRows, training_rows

QUICK = apt.Trainer(batch=50, epochs=150, learning_rate=0.01, patience=10)


def family(seed: int, members: int = 2) -> Embedded:
    """Normal densities of one number, linear in another, with weights made on the host."""
    head = eqx.filter_eval_shape(lambda: apt.MDN(1).build(jax.random.key(0), 1, 1))
    rng = np.random.default_rng(seed)
    arrays = [
        np.float32(0.4 * rng.normal(size=(members, 2, 1))),
        np.float32(0.4 * rng.normal(size=(members, 2))),
    ]
    network = Flatten().build(jax.random.key(0), (1,))
    return Embedded(network, eqx.tree_at(lambda h: (h.linear.weight, h.linear.bias), head, arrays))


def normal_of(one: Embedded, member: int, x: Any) -> Any:
    """The same densities, from the weights alone."""
    head: Any = one.head
    weight, bias = (np.asarray(a[member], np.float64) for a in (head.linear.weight[..., 0], head.linear.bias))
    mean, raw = x * weight[0] + bias[0], x * weight[1] + bias[1]
    return norm(mean, np.exp(-LOG_DIAGONAL * np.tanh(raw / LOG_DIAGONAL)))


FAMILIES, WEIGHTS = (family(0), family(1)), np.array([0.3, 0.7])


def test_a_stack_is_the_mixture_of_its_families():
    stacked, values = Stacked.of(FAMILIES, WEIGHTS), np.linspace(-2, 2, 5)
    x = jnp.asarray([0.7], jnp.float32)
    log_prob = jax.vmap(lambda q, value: q.log_prob(value), in_axes=(None, 0))
    found = each_member(stacked, lambda one: log_prob(one(x), jnp.asarray(values[:, None], jnp.float32)))
    for member in range(2):
        densities = [normal_of(one, member, 0.7).pdf(values) for one in FAMILIES]
        np.testing.assert_allclose(found[member], np.log(WEIGHTS @ densities), atol=1e-5)


def test_a_stack_draws_from_its_families_as_often_as_they_weigh():
    stacked, x = Stacked.of(FAMILIES, WEIGHTS), jnp.asarray([0.7], jnp.float32)
    keys = jax.random.split(jax.random.key(3), 20_000)
    draws = np.asarray(each_member(stacked, lambda one: jax.vmap(one(x).sample)(keys)))[0, :, 0]
    levels = np.linspace(-1, 1, 9)
    exact = WEIGHTS @ [normal_of(one, 0, 0.7).cdf(levels) for one in FAMILIES]
    np.testing.assert_allclose((draws[:, None] <= levels).mean(axis=0), exact, atol=0.015)  # 4 errors


def rows_of(n: int, proposed: int, *, contrasts: bool) -> TrainingRows:
    """The last `proposed` rows come from a proposal; every seventh has failed."""
    rng = np.random.default_rng(2)
    value, x = rng.standard_normal((2, n, 1)).astype(np.float32)
    source = (np.arange(n) >= n - proposed).astype(np.int32)
    rows = Simulations(value, value, source, source, x, np.arange(n) % 7 > 0)
    return training_rows(
        rows,
        norm.logpdf(value[:, 0]),
        None,
        capacity=n + 10,
        validates=lambda index: index % 2 == 1,
        contrasts=contrasts,
        rng=rng,
    )


def mean_loss(rows: TrainingRows, one: Embedded, place: Any, atoms: int) -> float:
    """Of members, at a place in the order of validation."""
    order = np.asarray(rows.validation)[: int(rows.n_validation)]
    offered = order[(place + np.arange(atoms)) % len(order)]
    values, found = np.asarray(rows.value[offered, 0], np.float64), []
    for member in range(2):
        assert rows.x is not None
        log_q = normal_of(one, member, float(rows.x[order[place], 0])).logpdf(values)
        log_ratio = log_q - norm.logpdf(values)
        found.append(-log_q[0] if atoms == 1 else logsumexp(log_ratio) - log_ratio[0])
    return float(np.mean(found))


@pytest.mark.parametrize("loss", [MaximumLikelihood(), Atomic(4)], ids=["likelihood", "atomic"])
@pytest.mark.parametrize("proposed", [100, ENOUGH], ids=["enough proposed", "few proposed"])
def test_scores_are_losses_at_rows_held_back(loss: Loss, proposed: int):
    """Those of proposals, if they are enough; half of all are held back, and a few of these have failed."""
    rows = rows_of(170, proposed, contrasts=loss.atoms > 1)
    order = np.asarray(rows.validation)[: int(rows.n_validation)]
    from_proposal = rows.done[order] & (np.asarray(rows.source)[order] > 0)
    assert (from_proposal.sum() >= ENOUGH) == (proposed == 100)
    wanted = from_proposal if proposed == 100 else rows.done[order]
    exact = [[mean_loss(rows, one, p, loss.atoms) for p in np.flatnonzero(wanted)] for one in FAMILIES]
    # Parts of 20 rows, of which the last is not full.
    np.testing.assert_allclose(_losses(FAMILIES, loss, rows, 20), exact, atol=2e-5)


def simulate(rng, theta):
    """x is theta + N(0, 1/4), without the sign of theta_1: one Gaussian is not enough."""
    return np.array([abs(theta[0]), theta[1]]) + 0.5 * rng.standard_normal(2)


PRIOR, OBSERVED = apt.gaussian([0, 0], np.eye(2)), np.array([1.0, -0.5])
TWO = apt.Stack((Family(apt.MDN(1), apt.Flatten()), apt.MDN(4)))
METHOD = apt.APT(estimator=TWO, embedding=apt.MLP((16,)), trainer=QUICK)


@pytest.fixture(scope="module")
def run():
    return apt.infer(
        simulate, PRIOR, OBSERVED, method=METHOD, rounds=2, simulations=1000, seed=0, progress=False
    )


def test_a_run_prefers_the_family_that_can_have_the_posterior(run):
    notes = run.rounds[-1].notes
    assert notes["weight_2"] > 0.8
    np.testing.assert_allclose(notes["weight_1"] + notes["weight_2"], 1, atol=1e-6)
    grid = np.linspace(-4, 4, 2001)
    exact = norm.pdf(grid) * norm.pdf(OBSERVED[0], np.abs(grid), 0.5)
    size = np.sum(np.abs(grid) * exact) / exact.sum()
    first, second = run.posterior.sample(4000).T
    np.testing.assert_allclose(np.abs(first).mean(), size, atol=0.1)
    np.testing.assert_allclose((first < 0).mean(), 0.5, atol=0.15)
    np.testing.assert_allclose([second.mean(), second.std()], [0.8 * OBSERVED[1], np.sqrt(0.2)], atol=0.12)


def test_it_can_be_kept_and_is_another_posterior_elsewhere(run, tmp_path):
    run.posterior.save(tmp_path / "a.posterior")
    read = apt.load_posterior(tmp_path / "a.posterior")
    np.testing.assert_array_equal(read.sample(10), run.posterior.sample(10))
    assert run.posterior.given([1.0, 0.5]).sample(2000)[:, 1].mean() > 0.1


def test_families_may_be_images_and_series_too():
    """The first of the usual ones sees x itself only where it is a vector."""
    assert default_posteriors((3,))[0].embedding == apt.Flatten()
    assert all(one.embedding is None for one in default_posteriors((3, 8, 8)))


def test_an_embedding_that_does_not_fit_x_is_refused_before_the_first_simulation():
    def never(rng, theta):
        ran.append(theta)
        return simulate(rng, theta)

    ran = []
    stack = apt.Stack((apt.MDN(1), Family(apt.MDN(2), apt.CNN())))
    with pytest.raises(ValueError, match="CNN"):
        apt.infer(never, PRIOR, OBSERVED, method=apt.APT(estimator=stack), progress=False)
    assert not ran
    with pytest.raises(TypeError, match="APT embedding"):
        apt.APT(estimator=apt.Stack((Family(apt.MDN(1), apt.MLP),)))


def test_what_posteriors_cannot_stack_is_refused():
    with pytest.raises(TypeError, match=r"a Stack belongs to apt.APT\(\), apt.NPE\(\) or apt.SNL\(\)"):
        apt.SNPEB(estimator=apt.Stack())
    with pytest.raises(TypeError, match="is a ratio"):
        apt.APT(estimator=apt.Stack((apt.MDN(1), apt.RatioNetwork())))
    with pytest.raises(
        ValueError, match=r"all be ensembles of one size, or all single; got \[1, 3\] members"
    ):
        apt.NPE(estimator=apt.Stack((apt.MDN(1), apt.Ensemble(apt.MDN(1), 3))))
    with pytest.raises(TypeError, match="must be settings such as"):
        apt.APT(estimator=apt.Ensemble(apt.Stack(), 3))
    with pytest.raises(ValueError, match="needs a mixture density network"):
        apt.APT(apt.MixtureProposal(), apt.Stack((apt.MDN(1), apt.MDN(2))))
