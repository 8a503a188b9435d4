"""Laws of the one-dimensional maps: constructors × properties, and the refusals."""

from itertools import pairwise

import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from scipy.integrate import quad
from scipy.special import kolmogorov, ndtr

from aptinfer.priors.marginals import TruncatedNormal, as_marginal

MARGINALS = {
    "uniform": dist.Uniform(0, 5),
    "uniform far from zero": dist.Uniform(1000, 1001),
    "normal": dist.Normal(-3, 2),
    "log-normal": dist.LogNormal(0, 1),
    "log-uniform": dist.LogUniform(1e-3, 10.0),
    "log-uniform narrow": dist.LogUniform(1000.0, 1001.0),
    "half-normal": dist.HalfNormal(2.0),
    "exponential": dist.Exponential(3.0),
    "laplace": dist.Laplace(1.0, 2.0),
    "truncated normal": dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
    "truncated normal, left": dist.TruncatedNormal(0.0, 1.0, low=-1.0),
    "truncated normal, right": dist.TruncatedNormal(0.0, 1.0, high=1.0),
    "truncated normal, wide": dist.TruncatedNormal(0.0, 1.0, low=-30.0, high=30.0),
    "truncated normal, nearly flat": dist.TruncatedNormal(0.0, 10.0, low=0.0, high=1.0),
    "truncated normal, far tail": dist.TruncatedNormal(5.0, 0.1, low=0.0, high=1.0),
    "truncated normal, lopsided": dist.TruncatedNormal(0.0, 1.0, low=-5.0, high=50.0),
    "gamma": dist.Gamma(2.0, 3.0),
    "gamma with a pole": dist.Gamma(0.5, 3.0),
    "beta": dist.Beta(2.0, 3.0),
    "inverse gamma": dist.InverseGamma(3.0, 2.0),
    "student-t": dist.StudentT(3.0, 1.0, 2.0),
    "student-t, nearly normal": dist.StudentT(200.0, 0.0, 1.0),
    "cauchy": dist.Cauchy(0.0, 1.0),
    "half-cauchy": dist.HalfCauchy(1.0),
    "logistic": dist.Logistic(0.0, 1.0),
    "gumbel": dist.Gumbel(0.0, 1.0),
    "weibull": dist.Weibull(1.0, 1.5),
    "chi-squared": dist.Chi2(3.0),
    "pareto": dist.Pareto(2.0, 3.0),
    "scipy norm": st.norm(1, 2),
    "scipy uniform": st.uniform(1000, 1),
    "scipy lognorm": st.lognorm(0.5, scale=2),
    "scipy lognorm, shifted": st.lognorm(0.5, loc=1),
    "scipy loguniform": st.loguniform(0.1, 10),
    "scipy truncnorm": st.truncnorm(-1, 2, loc=3, scale=2),
    "scipy expon": st.expon(loc=1, scale=2),
    "scipy gamma": st.gamma(2.5, scale=0.2),
    "scipy beta": st.beta(2, 3, loc=1, scale=4),
    "scipy t": st.t(df=4),
    "scipy chi2": st.chi2(4, loc=1),
    "scipy triang": st.triang(0.3),
    "scipy genextreme": st.genextreme(0.1),
    "scipy invgauss": st.invgauss(0.5),
}
if hasattr(st, "make_distribution"):
    MARGINALS["scipy make_distribution"] = st.make_distribution(st.gamma)(a=2.0)

# The same laws said in scipy's words: they settle the meaning of numpyro's parameters, and their
# draws do not pass through our maps.
REFERENCES = {
    "uniform": st.uniform(0, 5),
    "normal": st.norm(-3, 2),
    "log-normal": st.lognorm(1.0),
    "log-uniform": st.loguniform(1e-3, 10.0),
    "half-normal": st.halfnorm(scale=2.0),
    "exponential": st.expon(scale=1 / 3),
    "laplace": st.laplace(1.0, 2.0),
    "truncated normal": st.truncnorm(-1.0, 2.0),
    "truncated normal, left": st.truncnorm(-1.0, np.inf),
    "truncated normal, right": st.truncnorm(-np.inf, 1.0),
    "gamma": st.gamma(2.0, scale=1 / 3),
    "beta": st.beta(2.0, 3.0),
    "inverse gamma": st.invgamma(3.0, scale=2.0),
    "student-t": st.t(3.0, 1.0, 2.0),
    "cauchy": st.cauchy(0.0, 1.0),
    "half-cauchy": st.halfcauchy(),
    "logistic": st.logistic(),
    "gumbel": st.gumbel_r(),
    "weibull": st.weibull_min(1.5),
    "chi-squared": st.chi2(3.0),
    "pareto": st.pareto(3.0, scale=2.0),
    **{name: given for name, given in MARGINALS.items() if hasattr(given, "rvs")},
}

every = pytest.mark.parametrize("name", MARGINALS)


def marginal(name):
    return as_marginal(MARGINALS[name], name)


@every
def test_inverts(name):
    m, z = marginal(name), np.linspace(-6, 6, 1001)
    theta = m.forward(z)
    assert np.all(np.diff(theta) > 0)
    np.testing.assert_allclose(m.inverse(theta), z, rtol=0, atol=1e-5)


@every
def test_obeys_the_change_of_variables(name):
    # 40 points, so that none is the kink of Laplace's density at z = 0.
    m, z, h = marginal(name), np.linspace(-4, 4, 40), 1e-3
    slope = (8 * (m.forward(z + h) - m.forward(z - h)) - m.forward(z + 2 * h)) / (12 * h)
    slope += m.forward(z - 2 * h) / (12 * h)
    np.testing.assert_allclose(m.log_prob(m.forward(z)) + np.log(slope), st.norm.logpdf(z), rtol=0, atol=1e-5)


@every
def test_density_integrates_to_one(name):
    # Over theta, piece by piece between quantiles, so that no tail or pole is missed by quadrature.
    m = marginal(name)
    knots = m.forward(np.linspace(-5, 5, 11))
    mass = sum(quad(lambda t: np.exp(float(m.log_prob(t))), a, b)[0] for a, b in pairwise(knots))
    assert mass == pytest.approx(ndtr(5) - ndtr(-5), abs=1e-6)


@pytest.mark.parametrize("name", REFERENCES)
def test_agrees_with_scipy(name):
    m, reference = marginal(name), REFERENCES[name]
    theta = m.forward(np.linspace(-5, 5, 21))
    np.testing.assert_allclose(m.log_prob(theta), reference.logpdf(theta), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(reference.cdf(theta[:11]), ndtr(np.linspace(-5, 0, 11)), rtol=1e-5)


@every
@pytest.mark.parametrize(("dtype", "draws"), [(np.float64, 100_000), (np.float32, 10_000)])
def test_draws_stay_strictly_inside(name, dtype, draws):
    m = marginal(name)
    z = np.random.default_rng(0).standard_normal(draws)
    z[:8] = [-40, -9, -8.2, -6, 6, 8.2, 9, 40]
    theta = m.forward(z, dtype)
    assert theta.dtype == np.float64
    assert np.array_equal(theta, theta.astype(dtype))
    assert np.all((theta > m.low) & (theta < m.high) & np.isfinite(theta))
    assert np.isfinite(m.inverse(theta[:1000])).all()


@every
def test_is_empty_outside(name):
    m = marginal(name)
    outside = [e for e in (m.low, m.low - 1, m.high, m.high + 1) if np.isfinite(e)]
    outside = np.array([*outside, -np.inf, np.inf, np.nan])
    assert np.all(m.log_prob(outside) == -np.inf)
    assert np.isnan(m.inverse(outside)).all()
    assert not m.contains(outside).any()


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_draws_become_standard_normal(name):
    n = 2000
    theta = REFERENCES[name].rvs(n, random_state=np.random.default_rng(1))
    z = np.sort(marginal(name).inverse(theta))
    distance = np.abs(ndtr(z) - (np.arange(n) + 0.5) / n).max() + 0.5 / n
    assert kolmogorov(np.sqrt(n) * distance) > 1e-6


def test_truncation_far_in_the_tail_is_nearly_exponential():
    # P(T > a + s / a | T > a) -> exp(-s) (1 + O(s^2 / a^2)), where Phi itself underflows.
    m = TruncatedNormal(0.0, 1.0, low=1000.0)
    s = np.array([0.1, 1.0, 5.0])
    below = ndtr(m.inverse(1000.0 + s / 1000.0))
    np.testing.assert_allclose(below, -np.expm1(-s), rtol=1e-4)


def test_parameters_may_be_one_per_row():
    low = np.array([0.0, 10.0, 100.0])
    m = as_marginal(dist.Uniform(low, low + 1), "a", rows=3)
    theta = m.forward(np.zeros(3))
    np.testing.assert_allclose(theta, low + 0.5)
    np.testing.assert_allclose(m.log_prob(theta), 0.0, atol=1e-12)
    m = as_marginal(st.truncnorm(-1, low + 1, loc=low), "a", rows=3)
    np.testing.assert_allclose(m.inverse(m.forward(np.array([-5.0, 1.0, 5.0]))), [-5, 1, 5])


def test_a_users_scipy_distribution_is_not_taken_for_its_namesake():
    class Mine(st.rv_continuous):
        def _cdf(self, x):
            return x**2

        def _ppf(self, q):
            return np.sqrt(q)

    m = as_marginal(Mine(a=0, b=1, name="norm")(), "a")
    assert m.forward(np.zeros(1))[0] == pytest.approx(np.sqrt(0.5))


def test_describes_itself():
    m = as_marginal(dist.TruncatedNormal(0.0, 1.0, low=-1.0), "a")
    expected = {"family": "truncated_normal", "loc": 0.0, "scale": 1.0, "low": -1.0, "high": None}
    assert m.to_dict() == expected
    assert repr(as_marginal(dist.Uniform(0, 5), "a")) == "uniform(low=0, high=5)"


unchecked = {"validate_args": False}  # numpyro's own check can be off; ours is not


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            dist.Normal(0, 0, **unchecked),
            ValueError,
            "'growth': scale must be finite and above 0, got 0.0",
        ),
        (
            dist.Normal(0, -1, **unchecked),
            ValueError,
            "'growth': scale must be finite and above 0, got -1.0",
        ),
        (dist.Normal(np.nan, 1, **unchecked), ValueError, "'growth': loc must be finite, got nan"),
        (
            dist.Uniform(2, 1, **unchecked),
            ValueError,
            "'growth': low must be below high, got low=2.0",
        ),
        (
            dist.Uniform(0, np.inf, **unchecked),
            ValueError,
            "'growth': high must be finite, got inf",
        ),
        (
            dist.LogUniform(0.0, 1.0, **unchecked),
            ValueError,
            "'growth': low must be finite and above 0",
        ),
        (
            dist.Gamma(-1.0, 1.0, **unchecked),
            ValueError,
            "concentration must be finite and above 0",
        ),
        (dist.Gamma(1.0, 0.0, **unchecked), ValueError, "rate must be finite and above 0, got 0.0"),
        (
            dist.TruncatedNormal(0.0, 1.0, low=2.0, high=1.0, **unchecked),
            ValueError,
            "low must be below high",
        ),
        (st.norm(0, -1), ValueError, "scale must be finite and above 0, got -1.0"),
        (st.triang(3), ValueError, "'growth': the distribution 'triang' has no finite median"),
        (dist.Normal(np.zeros(3), 1), ValueError, r"batch shape \(3,\).*one marginal per param"),
        (dist.Normal(0, 1).expand([3]), ValueError, "one marginal per parameter"),
        (dist.Poisson(3.0), TypeError, "'growth': numpyro's Poisson is discrete.*marginalise"),
        (dist.Bernoulli(0.5), TypeError, "is discrete"),
        (st.poisson(3), TypeError, "'growth': scipy's poisson is discrete.*one inference per"),
        (dist.MultivariateNormal(np.zeros(2), np.eye(2)), TypeError, r"multivariate.*gaussian\("),
        (st.multivariate_normal([0, 0]), TypeError, r"multivariate.*gaussian\("),
        (dist.Normal(0, 1).expand([2]).to_event(1), TypeError, "multivariate"),
        (dist.SoftLaplace(0.0, 1.0), TypeError, "Did you mean 'Laplace'"),
        (
            dist.TruncatedCauchy(0.0, 1.0, low=0.0),
            TypeError,
            "truncated Cauchy; of numpyro's truncated distributions only the normal",
        ),
        (st.norm, TypeError, "scipy's norm has no parameters yet"),
        (dist.Normal, TypeError, r"got the class Normal. Call it"),
        (3.0, TypeError, "got the number 3.0.*inside the simulator"),
        ("normal", TypeError, "got str, expected a numpyro"),
    ],
)
def test_refuses(value, error, message):
    with pytest.raises(error, match=message):
        as_marginal(value, "growth")


def test_refuses_an_interval_without_float32_numbers():
    m = as_marginal(dist.Uniform(1000.0, 1000.00001), "a")
    assert m.forward(np.zeros(1)) > 1000
    with pytest.raises(ValueError, match="no float32 number lies strictly between"):
        m.forward(np.zeros(1), np.float32)
