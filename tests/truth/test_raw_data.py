r"""Sets of any size, and data with gaps, against exact posteriors.

Sets. Observations x_i ~ N(mu, sigma^2) under the conjugate prior: with t = 1 / sigma^2 ~ Gamma(a, rate b) and
mu | t ~ N(0, 1 / (k t)), n observations of mean m and sum of squares s about it leave

    t ~ Gamma(a + n / 2, rate b + s / 2 + k n m^2 / (2 (k + n))),
    mu | t ~ N(n m / (k + n), 1 / ((k + n) t)).

Gaps. x = A theta + N(0, s^2 I), entries missing at random: the rows of A that are left give the posterior.

Tolerances: three standard errors of a regression, with half of the simulations counted as in `closed_forms`,
plus the error of the draws. For sets its features are the terms up to second order in (m, log s, log n);
for gaps it is a linear map of what is left, from the rows with the same pattern of gaps.
"""

import numpy as np
import pytest
from scipy import stats

import aptinfer as apt

SHAPE, RATE, STRENGTH = 3.0, 3.0, 1.0
LARGEST = 100
NEVER = (7, 33, 71)  # sizes that are left out of training
DRAWS = 10_000

sets_prior = apt.Prior(
    precision=stats.gamma(SHAPE, scale=1 / RATE),
    mean=lambda precision: stats.norm(0, 1 / np.sqrt(STRENGTH * precision)),
)


def simulate_sets(rng, thetas, largest):
    """Sets of 1 to `largest` numbers, padded with NaN."""
    x = thetas[:, 1, None] + rng.standard_normal((len(thetas), largest)) / np.sqrt(thetas[:, :1])
    size = rng.choice(np.setdiff1d(np.arange(1, largest + 1), NEVER), len(thetas))
    x[np.arange(largest) >= size[:, None]] = np.nan
    return x[:, :, None]


def exact_set(x):
    """Means and standard deviations of (log precision, mean), from exact draws."""
    rng, n, m = np.random.default_rng(0), len(x), x.mean()
    rate = RATE + np.sum((x - m) ** 2) / 2 + STRENGTH * n * m**2 / (2 * (STRENGTH + n))
    precision = rng.gamma(SHAPE + n / 2, 1 / rate, 10 * DRAWS)
    mean = rng.normal(n * m / (STRENGTH + n), 1 / np.sqrt((STRENGTH + n) * precision))
    return moments(np.stack([precision, mean], axis=1))


def moments(theta):
    values = np.stack([np.log(theta[:, 0]), theta[:, 1]], axis=1)
    return values.mean(0), values.std(0)


def errors_of_sets(posterior, sizes):
    """The largest errors of a mean, in exact standard deviations, and of a standard deviation, relative."""
    rng, worst = np.random.default_rng(5), np.zeros(2)
    for n in sizes:
        x = rng.normal(0.4, 0.8, (n, 1))
        found, exact = moments(posterior.given(x).sample(DRAWS)), exact_set(x)
        error = np.abs(found[0] - exact[0]) / exact[1], np.abs(found[1] / exact[1] - 1)
        worst = np.maximum(worst, [e.max() for e in error])
    return worst


def infer_sets(simulations, largest, trainer):
    simulator = apt.BatchSimulator(lambda rng, thetas: simulate_sets(rng, thetas, largest), chunk=100)
    method = apt.NPE(estimator=apt.MDN(2), embedding=apt.DeepSet(element=(32, 32)), trainer=trainer)
    x_o = np.zeros((3, 1))
    run = apt.infer(
        simulator, sets_prior, x_o, method=method, simulations=simulations, progress=False, missing=True
    )
    return run.posterior


@pytest.mark.slow
def test_sets_of_sizes_never_trained_on():
    simulations, features = 10_000, 10
    posterior = infer_sets(simulations, LARGEST, apt.Trainer(batch=200, epochs=100))
    bound = 3 * (np.sqrt(features / (simulations / 2)) + 1 / np.sqrt(DRAWS))
    mean, spread = errors_of_sets(posterior, NEVER)
    assert mean < bound
    assert spread < bound


def test_few_sets_teach_that_larger_ones_say_more():
    posterior = infer_sets(1000, 12, apt.Trainer(epochs=40, batch=50, learning_rate=3e-3, average=0.9))
    x = np.random.default_rng(1).normal(0.4, 0.8, (12, 1))
    widths = [posterior.given(x[:n]).sample(2000)[:, 1].std() for n in (1, 7, 12)]
    assert widths[0] > 1.5 * widths[1]
    np.testing.assert_allclose(
        posterior.given(x).log_prob([1.0, 0.4]), posterior.given(x[::-1]).log_prob([1.0, 0.4]), atol=1e-4
    )


DESIGN = np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 1.0], [0.0, 2.0]])
NOISE = 0.5


def simulate_gaps(rng, thetas):
    x = thetas @ DESIGN.T + NOISE * rng.standard_normal((len(thetas), 4))
    gaps = rng.random(x.shape) < 0.3
    gaps[gaps.all(axis=1), 0] = False
    return np.where(gaps, np.nan, x)


def exact_gaps(x):
    seen = ~np.isnan(x)
    precision = np.eye(2) + DESIGN[seen].T @ DESIGN[seen] / NOISE**2
    covariance = np.linalg.inv(precision)
    return covariance @ DESIGN[seen].T @ x[seen] / NOISE**2, covariance


@pytest.mark.slow
def test_the_posterior_of_data_with_gaps_is_that_of_what_is_left():
    simulations = 10_000
    method = apt.NPE(estimator=apt.MDN(1), embedding=apt.MLP((128, 128)))
    prior, x_o = apt.gaussian(np.zeros(2), np.eye(2)), np.array([0.3, np.nan, -0.8, 1.0])
    run = apt.infer(
        apt.BatchSimulator(simulate_gaps),
        prior,
        x_o,
        method=method,
        simulations=simulations,
        progress=False,
        missing=True,
    )
    whole = np.array([0.3, 0.5, -0.8, 1.0])
    for missing in ([], [1], [0, 3], [0, 1, 2]):
        x = whole.copy()
        x[missing] = np.nan
        # A linear map of what is left, learned from the rows with this pattern of gaps.
        rows = simulations * 0.3 ** len(missing) * 0.7 ** (4 - len(missing))
        bound = 3 * (np.sqrt((5 - len(missing)) / rows) + 1 / np.sqrt(DRAWS))
        mean, covariance = exact_gaps(x)
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        whitened = (run.posterior.given(x).sample(DRAWS) - mean) @ root.T
        assert np.linalg.norm(whitened.mean(0)) < bound
        assert np.abs(np.sqrt(np.linalg.eigvalsh(np.cov(whitened.T))) - 1).max() < bound
