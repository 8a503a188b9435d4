"""Laws of the joint priors: constructors × properties, the user's own priors, and the refusals."""

import json
import subprocess
import sys
from typing import Any, cast

import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from scipy.special import kolmogorov, ndtr

from aptinfer.priors import BijectivePrior, CustomPrior, Prior, as_prior, box, gaussian

CORRELATED = np.array([[1.0, 1.9], [1.9, 4.0]])  # correlation 0.95


def uniform_from(theta_1):
    return dist.Uniform(theta_1, theta_1 + 10)


def queue():
    """The prior of the M/G/1 queue: service times in [theta_1, theta_2], arrivals theta_3."""
    return Prior(theta_1=dist.Uniform(0, 10), theta_2=uniform_from, theta_3=dist.Uniform(0.0, 1.0 / 3.0))


# theta_1 = sinh(z_1) and theta_2 = z_2 + theta_1^2: dtheta/dz is triangular with diagonal
# (cosh z_1, 1), so log p = log N(z; 0, I) - log cosh z_1.
def banana_forward(z):
    first = np.sinh(z[:, 0])
    return np.stack([first, z[:, 1] + first**2], axis=1)


def banana_inverse(theta):
    return np.stack([np.arcsinh(theta[:, 0]), theta[:, 1] - theta[:, 0] ** 2], axis=1)


def banana_log_prob(theta):
    z = banana_inverse(theta)
    return st.norm.logpdf(z).sum(axis=1) - np.log(np.cosh(z[:, 0]))


def banana_sample(rng, n):
    first = np.sinh(rng.standard_normal(n))
    return np.stack([first, rng.normal(first**2, 1.0)], axis=1)


def banana(**changes):
    parts = {
        "forward": banana_forward,
        "inverse": banana_inverse,
        "log_prob": banana_log_prob,
        "names": ("a", "b"),
        "sample": banana_sample,
    }
    return BijectivePrior(**{**parts, **changes})


def triangle_forward(z):
    """Uniform on 0 < theta_2 < theta_1 < 1, saturating at the edges for large |z|."""
    first = np.sqrt(ndtr(z[:, 0]))
    return np.stack([first, first * ndtr(z[:, 1])], axis=1)


def triangle():
    return BijectivePrior(
        triangle_forward,
        lambda t: st.norm.ppf(np.stack([t[:, 0] ** 2, t[:, 1] / t[:, 0]], axis=1)),
        lambda t: np.where((t[:, 1] > 0) & (t[:, 1] < t[:, 0]) & (t[:, 0] < 1), np.log(2), -np.inf),
        ("a", "b"),
    )


PRIORS = {
    "independent": lambda: Prior(growth=dist.LogNormal(0, 1), death=dist.Uniform(0, 5)),
    "normals": lambda: Prior(a=dist.Normal(1, 2), b=st.norm(3, 4)),
    "box": lambda: box([-1, 1000], [1, 1001]),
    "gaussian": lambda: gaussian([1.0, -2.0], CORRELATED),
    "queue": queue,
    "conditional scale": lambda: Prior(a=st.gamma(2.0), b=lambda a: st.t(4, loc=a, scale=1 + a)),
    "chain": lambda: Prior(
        a=dist.Normal(0, 1), b=lambda a: dist.Normal(a, 1.0), c=lambda b, a: st.norm(a + b, 2.0)
    ),
    "bijection": banana,
}

every = pytest.mark.parametrize("name", PRIORS)


@pytest.fixture(scope="module")
def priors():
    return {name: build() for name, build in PRIORS.items()}


@every
def test_inverts(priors, name):
    prior = priors[name]
    z = np.random.default_rng(0).uniform(-6, 6, (2000, prior.dim))
    z[0], z[1] = -6, 6
    theta = prior.forward(z)
    assert theta.dtype == np.float64
    assert theta.shape == z.shape
    np.testing.assert_allclose(prior.inverse(theta), z, rtol=0, atol=1e-5)


@every
def test_obeys_the_change_of_variables(priors, name):
    prior, h = priors[name], 1e-3
    z = np.random.default_rng(1).uniform(-4, 4, (200, prior.dim))
    columns = []
    for step in h * np.eye(prior.dim):
        near = prior.forward(z + step) - prior.forward(z - step)
        far = prior.forward(z + 2 * step) - prior.forward(z - 2 * step)
        columns.append((8 * near - far) / (12 * h))
    log_det = np.linalg.slogdet(np.stack(columns, axis=-1))[1]
    left = prior.log_prob(prior.forward(z)) + log_det
    np.testing.assert_allclose(left, st.norm.logpdf(z).sum(axis=1), rtol=0, atol=1e-5)


@every
def test_samples_map_to_the_standard_normal(priors, name):
    prior, n = priors[name], 4000
    z = prior.inverse(prior.sample(np.random.default_rng(2), n))
    for column in z.T:
        distance = np.abs(ndtr(np.sort(column)) - (np.arange(n) + 0.5) / n).max() + 0.5 / n
        assert kolmogorov(np.sqrt(n) * distance) > 1e-6
    gap = np.abs(z.T @ z / n - np.eye(prior.dim)).max()
    assert gap < 6 * np.sqrt(2 / n)


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws_stay_strictly_inside(priors, name, dtype):
    prior = priors[name]
    z = np.random.default_rng(3).standard_normal((100_000, prior.dim))
    if name != "bijection":  # sinh(9)^2 swallows z_2 in float64
        z[0], z[1] = -9, 9
    theta = prior.forward(z, dtype=dtype)
    assert np.array_equal(theta, theta.astype(dtype))
    assert prior.contains(theta).all()
    low, high = prior.support
    assert ((theta > low) & (theta < high)).all()
    assert np.isfinite(prior.log_prob(theta)).all()


@every
def test_is_empty_outside(priors, name):
    prior = priors[name]
    theta = np.tile(prior.forward(np.zeros((1, prior.dim))), (3, 1))
    theta[1, -1], theta[2, 0] = np.nan, np.inf
    assert prior.contains(theta).tolist() == [True, False, False]
    assert np.all(prior.log_prob(theta)[1:] == -np.inf)
    assert np.isnan(prior.inverse(theta)[1:]).all()


@every
def test_describes_itself_in_json(priors, name):
    prior = priors[name]
    text = json.dumps(prior.to_dict(), allow_nan=False)
    assert all(parameter in text for parameter in prior.names)
    assert len(repr(prior)) < 200


@every
def test_holds_no_rows_too(priors, name):
    prior = priors[name]
    empty = np.zeros((0, prior.dim))
    assert prior.forward(empty).shape == prior.inverse(empty).shape == empty.shape
    assert prior.log_prob(empty).shape == prior.contains(empty).shape == (0,)
    assert prior.sample(np.random.default_rng(0), 0).shape == empty.shape


def test_names_support_and_kind():
    prior = PRIORS["independent"]()
    assert prior.names == ("growth", "death")
    assert prior.dim == 2
    assert prior.latent
    assert not prior.flat
    assert prior.gaussian_moments is None
    np.testing.assert_array_equal(prior.support, [[0, 0], [np.inf, 5]])
    assert repr(prior) == "Prior(growth=log_normal(loc=0, scale=1), death=uniform(low=0, high=5))"
    assert box([0, 0], [1, 2]).names == ("theta_1", "theta_2")
    assert box([0, 0], [1, 2]).flat
    assert Prior(a=dist.Uniform(0, 1)).flat
    assert not queue().flat
    np.testing.assert_array_equal(queue().support[0], [0, -np.inf, 0])


def test_queue_density_is_constant():
    prior = queue()
    theta = prior.sample(np.random.default_rng(0), 1000)
    np.testing.assert_allclose(np.exp(prior.log_prob(theta)), 0.03, rtol=1e-6)
    outside = [[3.0, 2.9, 0.1], [3.0, 13.1, 0.1], [-1.0, 5.0, 0.1], [3.0, 5.0, 0.4]]
    assert np.all(prior.log_prob(outside) == -np.inf)


def test_functions_only_see_values_inside_the_support():
    # Outside, the scale would be negative and the distribution refused.
    prior = Prior(a=dist.Uniform(1, 2), b=lambda a: st.norm(0, a))
    assert prior.log_prob([[-1.0, 0.0], [1.5, 0.0]])[0] == -np.inf


def test_conditionals_in_float32_still_invert():
    jnp = pytest.importorskip("jax.numpy")
    prior = Prior(
        a=dist.Uniform(0, 10),
        b=lambda a: dist.Uniform(jnp.asarray(a, jnp.float32), jnp.asarray(a, jnp.float32) + 10),
    )
    z = np.random.default_rng(0).uniform(-6, 6, (500, 2))
    np.testing.assert_allclose(prior.inverse(prior.forward(z)), z, rtol=0, atol=1e-5)


def test_gaussian_matches_scipy():
    mean = np.array([1.0, -2.0])
    prior, reference = gaussian(mean, CORRELATED), st.multivariate_normal(mean, CORRELATED)  # pyright: ignore[reportArgumentType]
    theta = reference.rvs(200, random_state=np.random.default_rng(0))
    np.testing.assert_allclose(prior.log_prob(theta), reference.logpdf(theta), atol=1e-10)
    draws = prior.sample(np.random.default_rng(1), 100_000)
    np.testing.assert_allclose(np.cov(draws.T), CORRELATED, atol=6 * 4 * np.sqrt(2 / 100_000))
    np.testing.assert_array_equal(prior.gaussian_moments[1], CORRELATED)


def test_normal_marginals_know_their_moments():
    moments = PRIORS["normals"]().gaussian_moments
    assert moments is not None
    np.testing.assert_array_equal(moments[0], [1, 3])
    np.testing.assert_array_equal(moments[1], [[4, 0], [0, 16]])


def test_a_bijection_that_saturates_is_kept_inside():
    prior = triangle()
    z = np.array([[9.0, 9.0], [-9.0, -9.0], [0.0, 9.0], [12.0, -12.0], [0.3, -0.2]])
    for dtype in (np.float64, np.float32):
        theta = prior.forward(z, dtype=dtype)
        assert prior.contains(theta).all()
        np.testing.assert_allclose(theta[4], triangle_forward(z)[4], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inverse": lambda t: banana_inverse(t) * 1.01},
            r"inverse\(forward\(z\)\) differs from z",
        ),
        ({"log_prob": lambda t: banana_log_prob(t) + 0.5}, "by up to 0.5, on average 0.5"),
        ({"log_prob": lambda t: -0.5 * (t**2).sum(axis=1)}, "normalised density of forward"),
        ({"log_prob": lambda t: banana_log_prob(t)[:, None]}, r"log_prob must return an array of"),
        ({"forward": lambda z: z[:, :1]}, "forward must return an array of shape"),
        (
            {"sample": lambda rng, n: banana_sample(rng, n) + np.array([0, 0.2])},
            "its mean is 0.*'b'",
        ),
        (
            {"sample": lambda rng, n: banana_forward(rng.normal(0, 1.2, (n, 2)))},
            "its covariance is off by 0.4",
        ),
        (
            {"sample": lambda rng, n: banana_forward(rng.uniform(-(3**0.5), 3**0.5, (n, 2)))},
            "the distribution function of 'a' is off by up to 0.0",
        ),
        ({"sample": lambda rng, n: np.full((n, 2), np.inf)}, "have no finite z"),
        ({"names": ("a", "a")}, "'a' twice"),
    ],
)
def test_refuses_a_wrong_bijection(changes, message):
    with pytest.raises(ValueError, match=message):
        banana(**changes)


class Ring:
    """A user's prior: uniform on the unit disc, with nothing but sample and log_prob."""

    def sample(self, rng, n):
        radius, angle = np.sqrt(rng.random(n)), rng.uniform(0, 2 * np.pi, n)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    def log_prob(self, theta):
        return np.where((theta**2).sum(axis=1) < 1, -np.log(np.pi), -np.inf)


def test_custom_prior():
    prior = as_prior(Ring())
    assert isinstance(prior, CustomPrior)
    assert prior.names == ("theta_1", "theta_2")
    assert not prior.latent
    assert prior.sample(np.random.default_rng(0), 7).shape == (7, 2)
    assert prior.contains([[0, 0], [1, 1], [np.nan, 0]]).tolist() == [True, False, False]
    assert prior.log_prob([[0, 0], [1, 1]])[1] == -np.inf
    assert "Ring.sample" in json.dumps(prior.to_dict())
    assert repr(prior) == "CustomPrior(theta_1, theta_2)"
    for call in (prior.forward, prior.inverse):
        with pytest.raises(TypeError, match="only sample and log_prob"):
            call([[0.0, 0.0]])


def test_as_prior_takes_what_it_says():
    prior = box([0], [1])
    assert as_prior(prior) is prior
    assert as_prior({"a": dist.Normal(0, 1), "b": lambda a: st.norm(a)}).names == ("a", "b")
    ring = Ring()
    ring.names = ["x", "y"]  # pyright: ignore[reportAttributeAccessIssue]
    assert as_prior(ring).names == ("x", "y")


unit = dist.Uniform(0, 1)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Prior(), ValueError, "at least one parameter"),
        (lambda: Prior(a=unit, b=3.0), TypeError, "'b': got the number 3.0"),
        (lambda: Prior(a=dist.Normal(np.zeros(2), 1)), ValueError, "one marginal per parameter"),
        (lambda: Prior(growth=unit, b=lambda grwth: unit), ValueError, "Did you mean 'growth'"),
        (lambda: Prior(b=lambda c: unit, c=unit), ValueError, "'c', which is not an earlier"),
        (lambda: Prior(a=unit, b=lambda: unit), ValueError, "depends on no earlier parameter"),
        (lambda: Prior(a=unit, b=lambda *a: unit), TypeError, "must be an ordinary one"),
        (lambda: Prior(a=unit, b=lambda a: 1.0), TypeError, "'b': got the number 1.0"),
        (lambda: Prior(a=unit, b=lambda a: st.poisson(a)), TypeError, "'b': scipy's poisson is d"),
        (
            lambda: Prior(a=unit, b=lambda a: st.norm(0, a - 1)),
            ValueError,
            r"'b': scale must be finite and above 0, got -.* \(row 0 of 64\)",
        ),
        (
            lambda: Prior(a=unit, b=lambda a: dist.Normal(0, 1 if a > 0 else 2)),
            ValueError,
            "'b': its function failed on arrays of 64 values.*numpy.where",
        ),
        (
            lambda: Prior(a=unit, b=lambda a: st.norm(a.mean())),
            ValueError,
            "'b': its function gives a row another distribution",
        ),
        (
            lambda: Prior(a=unit, b=lambda a: st.norm(np.zeros(3))),
            ValueError,
            "must have one value for each of the 64 rows",
        ),
        (lambda: box([0, 0], [1, 0]), ValueError, "'theta_2': low must be below high"),
        (lambda: box([0, 0], [1]), ValueError, r"got shapes \(2,\) and \(1,\)"),
        (lambda: box([0, np.nan], [1, 1]), ValueError, "low must be finite"),
        (lambda: box([0, 0], [1, 1], names=("a",)), ValueError, "one entry for each of 2"),
        (lambda: box([0, 0], [1, 1], names="ab"), TypeError, "got the string 'ab'"),
        (lambda: box([0], [1], names=cast(Any, [3])), TypeError, "non-empty strings, got 3"),
        (lambda: gaussian([0, 0], [[1, 2], [2, 1]]), ValueError, "smallest eigenvalue is -1"),
        (lambda: gaussian([0, 0], [[1, 0.5], [0.2, 1]]), ValueError, "symmetric.*by up to 0.3"),
        (lambda: gaussian([0, 0], [1, 1]), ValueError, r"shape \(2, 2\).*numpy.diag"),
        (lambda: gaussian([[0]], [[1]]), ValueError, r"mean must have shape \(dim,\)"),
        (lambda: CustomPrior(Ring().sample, Ring().log_prob, "abc"), TypeError, "the string 'abc'"),
        (
            lambda: CustomPrior(Ring().sample, Ring().log_prob, ["a"]),
            ValueError,
            r"sample must return an array of shape \(64, 1\), got \(64, 2\)",
        ),
        (lambda: CustomPrior(Ring().sample, Ring().log_prob, []), ValueError, "at least one entry"),
        (
            lambda: CustomPrior(lambda rng, n: 2 * Ring().sample(rng, n), Ring().log_prob, ["a", "b"]),
            ValueError,
            "of the prior's own draws",
        ),
        (lambda: as_prior(unit), TypeError, r"prior must be .* Prior\(theta=...\)"),
        (lambda: as_prior([unit]), TypeError, "prior must be an aptinfer.Prior.*got list"),
        (lambda: as_prior(Ring), TypeError, "got type"),
        (lambda: queue().log_prob([1.0, 2.0, 0.1]), ValueError, r"theta must have shape \(n, 3\)"),
        (lambda: queue().forward(np.zeros((2, 2))), ValueError, r"z must have shape \(n, 3\)"),
        (lambda: queue().sample(cast(Any, 0), 3), TypeError, "numpy.random.Generator, got int"),
        (lambda: queue().sample(np.random.default_rng(0), -1), ValueError, "n must be a whole"),
    ],
)
def test_refuses(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_importing_priors_does_not_import_jax():
    code = (
        "import sys, aptinfer.priors as p; p.box([0], [1]).forward([[0.0]]); "
        "print([m for m in ('jax', 'numpyro') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
