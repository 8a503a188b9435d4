"""The losses of APT: what they equal, and that their gradient vanishes, on average, at the true posterior."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.epochs import neighbours
from aptinfer.estimators.mdn import LOG_DIAGONAL, MDN, MixtureHead
from aptinfer.estimators.mog import GaussianTerms, HostMixture, Mixture, density_ratio
from aptinfer.methods.losses import (
    Atomic,
    Batch,
    Combined,
    GaussianProposal,
    MaximumLikelihood,
    MixtureProposal,
    WeightedLikelihood,
)

pytestmark = pytest.mark.usefixtures("strict")

PRIOR = GaussianTerms(np.zeros(2), np.eye(2))
STANDARD = HostMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])


def normal_log_prob(z: np.ndarray) -> np.ndarray:
    return -0.5 * np.sum(np.float64(z) ** 2, axis=-1) - 0.5 * z.shape[-1] * np.log(2 * np.pi)


def head(components: int, dim: int, weight: np.ndarray, bias: np.ndarray) -> MixtureHead:
    """An MDN on raw x with these parameters."""
    shapes = eqx.filter_eval_shape(lambda: MDN(components).build(jax.random.key(0), dim, weight.shape[1]))
    where = lambda h: (h.linear.weight, h.linear.bias)  # noqa: E731
    return eqx.tree_at(where, shapes, (np.float32(weight), np.float32(bias)))


# Equalities, row by row.


@pytest.fixture(scope="module")
def random_head() -> MixtureHead:
    rng = np.random.default_rng(0)
    return head(3, 2, 0.3 * rng.normal(size=(21, 2)), 0.5 * rng.normal(size=21))


def batch_of(rng, ratio=None, *, rows=8, atoms=5, from_prior=True) -> Batch:
    candidates = rng.normal(size=(rows, atoms, 2)).astype(np.float32)
    if ratio is not None:
        ratio = jax.tree.map(lambda a: np.repeat(a[None], rows, axis=0), ratio)
    return Batch(
        rng.normal(size=(rows, 2)).astype(np.float32),  # pyright: ignore[reportArgumentType]
        candidates,  # pyright: ignore[reportArgumentType]
        normal_log_prob(candidates).astype(np.float32),  # pyright: ignore[reportArgumentType]
        np.full(rows, from_prior),  # pyright: ignore[reportArgumentType]
        np.ones(rows, np.float32),  # pyright: ignore[reportArgumentType]
        ratio,
    )


def numpy_log_q(head: MixtureHead, x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """log q(values[b, a] | x[b]) of an MDN, in float64 from its weights alone."""
    k, n = head.components, head.dim
    out = np.float64(x) @ np.float64(head.linear.weight).T + np.float64(head.linear.bias)  # pyright: ignore
    result = np.empty(values.shape[:2])
    for b, row in enumerate(out):
        weights = np.exp(row[:k]) / np.exp(row[:k]).sum()
        means, raw = row[k : k + k * n].reshape(k, n), row[k + k * n :].reshape(k, n, n)
        total = np.zeros(values.shape[1])
        for w, m, r in zip(weights, means, raw, strict=True):
            diagonal = np.exp(LOG_DIAGONAL * np.tanh(np.diag(r) / LOG_DIAGONAL))
            factor = np.triu(r, 1) + np.diag(diagonal)
            square = np.sum(((values[b] - m) @ factor.T) ** 2, axis=1)
            total += w * diagonal.prod() * np.exp(-0.5 * square) / (2 * np.pi) ** (n / 2)
        result[b] = np.log(total)
    return result


@eqx.filter_jit
def _evaluate(loss, head, batch):
    return loss(head, batch)


def evaluate(loss, head, batch) -> np.ndarray:
    return np.asarray(_evaluate(loss, head, batch), np.float64)


NARROW = HostMixture(np.array([0.4, 0.6]), np.array([[1.0, 0], [0, 2]]), np.stack([np.eye(2) * 0.1] * 2))


def test_weights_multiply_the_likelihood_row_by_row(random_head):
    rng = np.random.default_rng(1)
    batch = batch_of(rng)
    weight = rng.uniform(0.1, 3, len(batch.x)).astype(np.float32)
    weighted = evaluate(WeightedLikelihood(), random_head, batch._replace(weight=weight))  # pyright: ignore
    expected = -weight * numpy_log_q(random_head, batch.x, batch.candidates)[:, 0]  # pyright: ignore
    np.testing.assert_allclose(weighted, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", [MixtureProposal(), GaussianProposal()], ids=repr)
def test_on_prior_rows_the_closed_form_is_maximum_likelihood(loss, random_head):
    batch = batch_of(np.random.default_rng(1), density_ratio(NARROW, PRIOR))
    expected = -numpy_log_q(random_head, batch.x, batch.candidates)[:, 0]  # pyright: ignore
    np.testing.assert_allclose(evaluate(MaximumLikelihood(), random_head, batch), expected, atol=1e-5)
    np.testing.assert_allclose(evaluate(loss, random_head, batch), expected, atol=1e-5)
    # And only there: with the same proposal but from_prior false, the loss differs.
    other = evaluate(loss, random_head, batch._replace(from_prior=np.zeros(8, bool)))
    assert (np.abs(other - expected) > 1e-2).all()


@pytest.mark.parametrize("loss", [MixtureProposal(), GaussianProposal()], ids=repr)
def test_when_the_proposal_is_the_prior_the_closed_form_is_maximum_likelihood(loss, random_head):
    batch = batch_of(np.random.default_rng(2), density_ratio(STANDARD, PRIOR), from_prior=False)
    expected = -numpy_log_q(random_head, batch.x, batch.candidates)[:, 0]  # pyright: ignore
    np.testing.assert_allclose(evaluate(loss, random_head, batch), expected, atol=1e-5)


def test_atomic_is_a_softmax_over_ratios(random_head):
    batch = batch_of(np.random.default_rng(3))
    ratio = np.exp(numpy_log_q(random_head, batch.x, batch.candidates) - np.float64(batch.log_prior))  # pyright: ignore
    expected = -np.log(ratio[:, 0] / ratio.sum(axis=1))
    np.testing.assert_allclose(evaluate(Atomic(5), random_head, batch), expected, atol=2e-5)


@pytest.mark.parametrize("atoms", [2, 9])
def test_atomic_knows_nothing_at_the_prior(atoms):
    prior = head(1, 2, np.zeros((6, 2)), np.zeros(6))  # N(0, I) whatever x
    batch = batch_of(np.random.default_rng(4), atoms=atoms)
    np.testing.assert_allclose(evaluate(Atomic(atoms), prior, batch), np.log(atoms), atol=1e-5)


def test_combined_adds_maximum_likelihood_on_prior_rows(random_head):
    batch = batch_of(np.random.default_rng(5))._replace(from_prior=np.arange(8) % 2 == 0)  # pyright: ignore
    log_q = numpy_log_q(random_head, batch.x, batch.candidates)  # pyright: ignore
    ratio = np.exp(log_q - np.float64(batch.log_prior))  # pyright: ignore
    expected = -np.log(ratio[:, 0] / ratio.sum(axis=1)) - np.where(np.arange(8) % 2 == 0, log_q[:, 0], 0)
    np.testing.assert_allclose(evaluate(Combined(5), random_head, batch), expected, atol=2e-5)


# The gradient law. z ~ N(0, I), x | z ~ N(A z, I / 4): the posterior is Gaussian with precision
# P = I + 4 A'A and mean P^-1 4 A'x, linear in x, so a one-component MDN on raw x holds it exactly.

A = np.array([[1.0, 0.5], [0.2, 0.8]])
NOISE = 0.5
BATCHES, ROWS, ATOMS = 2000, 50, 5

SHARES = np.array([0.2, 0.4, 0.4])  # of rows from the prior and from each proposal

# Narrower than the prior, shifted, correlated; the first has two modes.
PROPOSALS = [
    HostMixture(
        np.array([0.7, 0.3]),
        np.array([[0.8, -0.4], [-0.5, 0.6]]),
        np.array([[[0.3, 0.1], [0.1, 0.2]], [[0.1, 0.0], [0.0, 0.4]]]),
    ),
    HostMixture(
        np.array([0.5, 0.5]),
        np.array([[0.9, 0.3], [0.4, 0.3]]),
        np.array([[[0.2, -0.05], [-0.05, 0.1]], [[0.15, 0.0], [0.0, 0.15]]]),
    ),
]


def true_head(extra: float = 0.0) -> MixtureHead:
    """The exact posterior as an MDN; `extra` is precision added by failures (below)."""
    precision = (1 + extra) * np.eye(2) + A.T @ A / NOISE**2
    factor = np.linalg.cholesky(precision).T
    raw = np.triu(factor, 1) + np.diag(LOG_DIAGONAL * np.arctanh(np.log(np.diag(factor)) / LOG_DIAGONAL))
    weight = np.zeros((6, 2))
    weight[:2] = np.linalg.solve(precision, A.T) / NOISE**2
    return head(1, 2, weight, np.concatenate([np.zeros(2), raw.ravel()]))


class Rows(NamedTuple):
    """Many batches: parameters, data, where they came from, and the density of all rows together."""

    z: np.ndarray
    x: np.ndarray
    source: np.ndarray
    log_mixture: np.ndarray


@pytest.fixture(scope="module")
def rows() -> Rows:
    """A fifth of the rows from the prior, the others from two proposals, at random."""
    rng = np.random.default_rng(11)
    count = BATCHES * ROWS
    source = rng.choice(3, size=count, p=SHARES)
    choices = np.stack([m.sample(rng, count) for m in (STANDARD, *PROPOSALS)])
    z = choices[source, np.arange(count)]
    density = np.zeros(count)
    for share, mixture in zip(SHARES, (STANDARD, *PROPOSALS), strict=True):
        for w, m, c in zip(*mixture, strict=True):
            square = np.einsum("ni,ij,nj->n", z - m, np.linalg.inv(c), z - m)
            density += share * w * np.exp(-0.5 * square) / (2 * np.pi * np.sqrt(np.linalg.det(c)))
    x = z @ A.T + NOISE * rng.normal(size=z.shape)
    shape = (BATCHES, ROWS)
    return Rows(
        z.reshape(*shape, 2), x.reshape(*shape, 2), source.reshape(shape), np.log(density).reshape(shape)
    )


def table():
    """Proposal densities by source; entry 0 stands for the prior and is not used."""
    entries = [density_ratio(m, PRIOR) for m in (PROPOSALS[0], *PROPOSALS)]
    return jax.tree.map(lambda *a: np.stack(a), *entries)


@eqx.filter_jit
def _gradients(loss, head, ratios, x, log_prior, source, candidates, weights):
    """The gradient of each batch's weighted mean loss."""

    def one(parameters, x, log_prior, source, candidates, weights):
        ratio = jax.tree.map(lambda a: a[source], ratios)
        batch = Batch(x, candidates, log_prior, source == 0, jnp.ones(len(source)), ratio)
        return jnp.mean(weights * loss(eqx.combine(parameters, rest), batch))

    parameters, rest = eqx.partition(head, eqx.is_inexact_array)
    over = (None, 0, 0, 0, 0, 0)
    return jax.vmap(jax.grad(one), over)(parameters, x, log_prior, source, candidates, weights)


def t_statistics(loss, rows: Rows, head, *, weights=None, contrasts=None, no_prior=False) -> np.ndarray:
    """|mean| / standard error of the gradient over batches, for every parameter that has one."""
    # A row's own value first, its contrasts after it, as the trainer arranges them.
    candidates = rows.z[:, neighbours(ROWS, loss.atoms)] if contrasts is None else contrasts
    log_prior = normal_log_prob(candidates) * (0.0 if no_prior else 1.0)
    weights = np.ones(rows.source.shape) if weights is None else weights
    x, log_prior, candidates, weights = (np.float32(a) for a in (rows.x, log_prior, candidates, weights))
    gradients = _gradients(loss, head, table(), x, log_prior, rows.source, candidates, weights)
    flat = np.concatenate(
        [np.asarray(g, np.float64).reshape(BATCHES, -1) for g in jax.tree.leaves(gradients)], axis=1
    )
    used = np.abs(flat).max(axis=0) > 0  # not what `triu` drops
    assert used.sum() == (2 + 3) * 3  # means and triangular factors, each with two weights and a bias
    flat = flat[:, used]
    return np.abs(flat.mean(0)) / (flat.std(0) / np.sqrt(BATCHES))


RIGHT, WRONG = 4.5, 8.0


@pytest.mark.parametrize("loss", [Atomic(ATOMS), Atomic(ROWS), Combined(ATOMS), MixtureProposal()], ids=repr)
def test_the_gradient_vanishes_at_the_true_posterior(loss, rows):
    assert t_statistics(loss, rows, true_head()).max() < RIGHT


@pytest.mark.parametrize("loss", [Atomic(ATOMS), MixtureProposal()], ids=repr)
def test_and_nowhere_near_it(loss, rows):
    """The law can tell: parameters that are off by 0.03 are seen."""
    head = true_head()
    moved = eqx.tree_at(lambda h: h.linear.bias, head, replace_fn=lambda bias: bias + np.float32(0.03))
    assert t_statistics(loss, rows, moved).max() > WRONG


def test_uncorrected_proposals_bias(rows):
    assert t_statistics(MaximumLikelihood(), rows, true_head()).max() > WRONG


def test_leaving_out_the_prior_biases(rows):
    assert t_statistics(Atomic(ATOMS), rows, true_head(), no_prior=True).max() > WRONG


@pytest.mark.parametrize("loss", [Atomic(ATOMS), MixtureProposal()], ids=repr)
def test_weighting_rows_biases(loss, rows):
    weights = np.exp(normal_log_prob(rows.z) - rows.log_mixture)  # p / p~, at most five
    assert t_statistics(loss, rows, true_head(), weights=weights).max() > WRONG


def test_contrasts_from_the_prior_bias(rows):
    fresh = np.random.default_rng(12).normal(size=(BATCHES, ROWS, ATOMS, 2))
    fresh[:, :, 0] = rows.z
    assert t_statistics(Atomic(ATOMS), rows, true_head(), contrasts=fresh).max() > WRONG


# Failures that depend on the parameters. Success with probability exp(-c |z|^2 / 2) keeps the posterior
# given a success Gaussian, its precision greater by c.


@pytest.fixture(scope="module")
def failing(rows) -> tuple[np.ndarray, float]:
    c = 1.0
    success = np.random.default_rng(13).random(rows.source.shape) < np.exp(
        -0.5 * c * np.sum(rows.z**2, axis=-1)
    )
    assert 0.3 < success.mean() < 0.9
    return success, c


def test_failures_kept_as_contrasts_leave_no_bias(rows, failing):
    success, c = failing
    assert t_statistics(Atomic(ATOMS), rows, true_head(c), weights=success).max() < RIGHT
    # The posterior that ignores why some rows are missing is not the answer.
    assert t_statistics(Atomic(ATOMS), rows, true_head(), weights=success).max() > WRONG


def test_dropping_failures_biases(rows, failing):
    success, c = failing
    kept = [np.flatnonzero(s) for s in success]
    # The successes alone, in full batches; the last ones are used again to keep their number.
    order = np.concatenate([b * ROWS + k for b, k in enumerate(kept)])
    order = np.resize(order, BATCHES * ROWS)
    z, x = (a.reshape(-1, 2)[order].reshape(BATCHES, ROWS, 2) for a in (rows.z, rows.x))
    source, log_mixture = (a.ravel()[order].reshape(BATCHES, ROWS) for a in (rows.source, rows.log_mixture))
    dropped = Rows(z, x, source, log_mixture)
    assert t_statistics(Atomic(ATOMS), dropped, true_head(c)).max() > WRONG


def test_mixture_head_of_the_law_is_the_posterior():
    """The reference itself: the head at x is the conjugate posterior, computed another way."""
    x = np.array([0.3, -0.7])
    q = true_head()(np.float32(x))  # pyright: ignore[reportArgumentType]
    assert isinstance(q, Mixture)
    joint = np.block([[np.eye(2), A.T], [A, A @ A.T + NOISE**2 * np.eye(2)]])  # covariance of (z, x)
    gain = joint[:2, 2:] @ np.linalg.inv(joint[2:, 2:])
    covariance = joint[:2, :2] - gain @ joint[2:, :2]
    np.testing.assert_allclose(q.means[0], gain @ x, atol=1e-5)
    factor = np.asarray(q.factors[0], np.float64)
    np.testing.assert_allclose(np.linalg.inv(factor.T @ factor), covariance, atol=1e-5)
