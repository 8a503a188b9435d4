"""Mixtures of Gaussians against scipy, quadrature and an independent float64 computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from aptinfer.estimators.mog import (
    GaussianTerms,
    HostMixture,
    Mixture,
    clipped,
    density_ratio,
    log_normaliser,
    on_host,
)

pytestmark = pytest.mark.usefixtures("strict")

CORRELATED = {
    1: GaussianTerms(np.array([0.4]), np.array([[2.5]])),
    2: GaussianTerms(np.array([0.4, -0.3]), np.array([[2.0, 0.9], [0.9, 1.5]])),
}


def standard(dim: int) -> GaussianTerms:
    return GaussianTerms(np.zeros(dim), np.eye(dim))


def flat(dim: int) -> GaussianTerms:
    return GaussianTerms(np.zeros(dim), np.zeros((dim, dim)))


PRIORS = {"standard": standard, "correlated": CORRELATED.__getitem__, "flat": flat}


def random_mixture(rng, components: int, dim: int, *, width=(0.3, 1.5)) -> HostMixture:
    """Random weights and centres, covariances with random rotations and widths in the given range."""
    weights = rng.dirichlet(np.full(components, 3.0))
    rotations = np.linalg.qr(rng.normal(size=(components, dim, dim)))[0]
    variances = np.exp(rng.uniform(*np.log(width), size=(components, dim))) ** 2
    covariances = np.einsum("kij,kj,klj->kil", rotations, variances, rotations)
    return HostMixture(weights, rng.normal(size=(components, dim)) * 0.8, covariances)


def on_device(mixture: HostMixture) -> Mixture:
    """The same density by its upper-triangular precision factors, P = U'U."""
    precisions = np.linalg.inv(mixture.covariances)
    factors = np.swapaxes(np.linalg.cholesky(precisions), -1, -2)
    arrays = (np.log(mixture.weights), mixture.means, factors)
    return Mixture(*(np.asarray(a, np.float32) for a in arrays))  # pyright: ignore[reportArgumentType]


def scipy_log_prob(mixture: HostMixture, values: np.ndarray) -> np.ndarray:
    parts = [
        np.log(w) + multivariate_normal(m, c).logpdf(values)
        for w, m, c in zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    ]
    return np.asarray(logsumexp(np.reshape(parts, (len(parts), -1)), axis=0))


def grid(dim: int, bound: float = 12.0) -> tuple[np.ndarray, float]:
    """Points of an even grid and the volume of a cell; for smooth densities the plain sum is exact."""
    axis = np.linspace(-bound, bound, {1: 4001, 2: 401}[dim])
    points = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    return points, (axis[1] - axis[0]) ** dim


evaluate = jax.jit(jax.vmap(Mixture.log_prob, in_axes=(None, 0)))
log_z = jax.jit(log_normaliser)


@pytest.mark.parametrize("components", [1, 4])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_log_prob_agrees_with_scipy(components, dim):
    rng = np.random.default_rng(10 * components + dim)
    mixture = random_mixture(rng, components, dim)
    values = rng.normal(size=(200, dim)) * 2
    ours = evaluate(on_device(mixture), jnp.asarray(values, jnp.float32))
    np.testing.assert_allclose(ours, scipy_log_prob(mixture, values), rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("dim", [1, 2])
def test_log_prob_integrates_to_one(dim):
    mixture = random_mixture(np.random.default_rng(dim), 3, dim)
    points, volume = grid(dim)
    density = np.exp(np.asarray(evaluate(on_device(mixture), jnp.asarray(points, jnp.float32)), np.float64))
    assert density.sum() * volume == pytest.approx(1, abs=2e-5)


def mixture_moments(mixture: HostMixture) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance by the raw second moment, E vv' - E v E v'."""
    mean, second = np.zeros(mixture.means.shape[1]), 0.0
    for w, m, c in zip(mixture.weights, mixture.means, mixture.covariances, strict=True):
        mean, second = mean + w * m, second + w * (c + np.outer(m, m))
    return mean, second - np.outer(mean, mean)


def check_moments(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray):
    """Five standard errors of the sample's own means and products."""
    away = draws - mean
    products = np.einsum("ni,nj->nij", away, away)
    root = np.sqrt(len(draws))
    assert (np.abs(away.mean(0)) < 5 * away.std(0) / root).all()
    assert (np.abs(products.mean(0) - covariance) < 5 * products.std(0) / root).all()


def test_samples_have_the_mixture_s_moments():
    mixture = random_mixture(np.random.default_rng(3), 3, 2)
    keys = jax.random.split(jax.random.key(0), 50_000)
    draws = jax.jit(jax.vmap(Mixture.sample, in_axes=(None, 0)))(on_device(mixture), keys)
    check_moments(np.asarray(draws, np.float64), *mixture_moments(mixture))


def test_host_samples_have_the_mixture_s_moments():
    mixture = random_mixture(np.random.default_rng(4), 3, 2)
    check_moments(mixture.sample(np.random.default_rng(5), 50_000), *mixture_moments(mixture))


def test_on_host_gives_the_covariances_back():
    mixture = random_mixture(np.random.default_rng(6), 3, 4)
    back = on_host(on_device(mixture))
    for ours, expected in zip(back, mixture, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_projection_keeps_mean_and_covariance():
    mixture = random_mixture(np.random.default_rng(7), 4, 3)
    mean, covariance = mixture_moments(mixture)
    single = mixture.projected()
    assert single.weights == pytest.approx([1.0])
    np.testing.assert_allclose(single.means, mean[None], atol=1e-12)
    np.testing.assert_allclose(single.covariances, covariance[None], atol=1e-12)


@pytest.mark.parametrize("prior", [standard(3), GaussianTerms(np.ones(3), np.diag([4.0, 1.0, 0.2]) + 0.1)])
def test_clipped_components_are_nowhere_wider_than_the_prior(prior):
    mixture = random_mixture(np.random.default_rng(8), 6, 3, width=(0.1, 10.0))
    narrow = clipped(mixture, prior)
    for before, after in zip(mixture.covariances, narrow.covariances, strict=True):
        # Widths relative to the prior's: generalised eigenvalues of (covariance, prior covariance).
        widths = np.sort(np.linalg.eigvals(after @ prior.precision).real)
        expected = np.sort(np.minimum(np.linalg.eigvals(before @ prior.precision).real, 1))
        np.testing.assert_allclose(widths, expected, rtol=1e-8)
    np.testing.assert_array_equal(narrow.means, mixture.means)
    np.testing.assert_array_equal(narrow.weights, mixture.weights)


def test_clipping_leaves_narrow_components_alone():
    mixture = random_mixture(np.random.default_rng(9), 5, 3, width=(1e-3, 0.99))
    np.testing.assert_allclose(clipped(mixture, standard(3)).covariances, mixture.covariances, atol=1e-12)


def test_a_flat_prior_clips_nothing():
    mixture = random_mixture(np.random.default_rng(10), 5, 2, width=(0.1, 100.0))
    assert clipped(mixture, flat(2)) is mixture


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", PRIORS)
def test_log_normaliser_equals_the_integral(name, dim):
    rng = np.random.default_rng(20 + dim)
    prior = PRIORS[name](dim)
    proposal = clipped(random_mixture(rng, 2, dim, width=(0.3, 2.0)), prior)
    q = random_mixture(rng, 3, dim)
    points, volume = grid(dim)
    log_product = scipy_log_prob(q, points) + scipy_log_prob(proposal, points)
    if name != "flat":  # a flat prior's density is one
        log_product -= multivariate_normal(prior.mean, np.linalg.inv(prior.precision)).logpdf(points)
    expected = logsumexp(log_product) + np.log(volume)
    assert float(log_z(on_device(q), density_ratio(proposal, prior))) == pytest.approx(expected, abs=3e-5)


@pytest.mark.parametrize("dim", [1, 5])
def test_log_normaliser_is_zero_when_the_proposal_is_the_prior(dim):
    prior = standard(dim)
    proposal = HostMixture(np.ones(1), np.zeros((1, dim)), np.eye(dim)[None])
    for seed in range(5):
        q = random_mixture(np.random.default_rng(seed), 3, dim, width=(0.01, 5.0))
        assert float(log_z(on_device(q), density_ratio(proposal, prior))) == pytest.approx(0, abs=1e-5)


def exact_log_z(q: HostMixture, proposal: HostMixture, prior: GaussianTerms) -> float:
    """The textbook product of Gaussians, in float64: natural parameters added and subtracted."""

    def natural(mean, precision):
        shift = precision @ mean
        log_norm = 0.5 * (np.linalg.slogdet(precision)[1] - len(mean) * np.log(2 * np.pi) - mean @ shift)
        return precision, shift, log_norm

    terms = []
    p0, s0, n0 = natural(prior.mean, prior.precision)
    for a, m, c in zip(*q, strict=True):
        for b, mt, ct in zip(*proposal, strict=True):
            p1, s1, n1 = natural(m, np.linalg.inv(c))
            p2, s2, n2 = natural(mt, np.linalg.inv(ct))
            precision, shift = p1 + p2 - p0, s1 + s2 - s0
            product = natural(np.linalg.solve(precision, shift), precision)
            terms.append(np.log(a) + np.log(b) + n1 + n2 - n0 - product[2])
    return float(np.asarray(logsumexp(terms)))


@pytest.mark.parametrize("dim", [2, 5])
def test_log_normaliser_keeps_its_digits_at_sd_one_thousandth(dim):
    rng = np.random.default_rng(30 + dim)
    sd, prior = 1e-3, standard(dim)
    for _ in range(20):
        direction = rng.normal(size=dim)
        centre = rng.uniform(0, 3) * direction / np.linalg.norm(direction)
        mixtures = []
        for _ in range(2):
            rotations = np.linalg.qr(rng.normal(size=(2, dim, dim)))[0]
            variances = (sd * rng.uniform(0.5, 2, size=(2, dim))) ** 2
            # Rounded to float32 before anything is compared: otherwise the inputs themselves would differ.
            means = (centre + sd * rng.uniform(-2, 2, size=(2, dim))).astype(np.float32).astype(np.float64)
            covariances = np.einsum("kij,kj,klj->kil", rotations, variances, rotations)
            mixtures.append(HostMixture(np.array([0.3, 0.7]), means, covariances))
        q, proposal = mixtures
        expected = exact_log_z(q, proposal, prior)
        ours = float(log_z(on_device(q), density_ratio(proposal, prior)))
        assert ours == pytest.approx(expected, abs=1e-4, rel=0)


@pytest.mark.parametrize("dim", [2, 5])
def test_log_normaliser_and_its_gradient_hold_for_any_precision(dim):
    """Eigenvalues from 1e-3 to 1e6, random rotations: 200 pairs of mixtures in one compiled call."""
    rng = np.random.default_rng(40 + dim)
    prior, width = standard(dim), (1e-3, 10**1.5)
    mixtures = [random_mixture(rng, 2, dim, width=width) for _ in range(400)]
    pairs = [(q, clipped(p, prior)) for q, p in zip(mixtures[:200], mixtures[200:], strict=True)]
    q = jax.tree.map(lambda *a: np.stack(a), *[on_device(q) for q, _ in pairs])
    ratio = jax.tree.map(lambda *a: np.stack(a), *[density_ratio(p, prior) for _, p in pairs])
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(log_normaliser)))(q, ratio)
    assert value.dtype == jnp.float32
    # The reference takes q as rounded to float32: at these widths the rounding itself moves log Z.
    expected = [exact_log_z(on_host(on_device(q)), p, prior) for q, p in pairs]
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
