"""Lotka-Volterra: the jump process against one written in NumPy, its statistics, failures and queue."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kurtosis

from aptinfer import problems
from aptinfer.problems.jump_process import LANES, jump_process
from aptinfer.problems.lotka_volterra import statistics
from aptinfer.protocols import Rows, Status

TIMES = [1, 5, 40, 75, 150]
THETAS = {
    "the truth": (-4.605, -0.693, 0.0, -4.605),
    "predators die out, prey may grow": (-5.0, 1.0, -3.5, -4.5),
    "both die out, and nothing happens any more": (-4.5, 1.2, -4.0, -1.0),
    "few and slow events": (-5.0, -4.0, -5.0, -5.0),
    "deaths of predators only": (-30.0, -8.0, -30.0, -30.0),
}
# From 1,000 simulations that did not fail (Papamakarios, Sterratt & Murray 2019, code).
PILOT = 1000
PILOT_MEAN = np.array([219.802, 5.8308, 6.6366, 4.4447, 0.84088, 0.73799, 0.13502, 0.074747, 0.12484])
PILOT_STD = np.array([592.326, 54.665, 2.9694, 0.90187, 0.17981, 0.25679, 0.26621, 0.20300, 0.37575])
FAILED, FAILED_ERROR = 0.123, 0.004  # share of the prior's draws, and the standard error of that number


def in_numpy(rng, theta, n, limit=10_000):
    """Gillespie's algorithm, n draws side by side: (n, 151, 2), NaN after too many events."""
    rate = np.exp(np.asarray(theta, np.float64))
    x, y, time = np.full(n, 50.0), np.full(n, 100.0), np.zeros(n)
    out, recorded = np.full((n, 151, 2), np.nan), np.zeros(n, int)
    lanes = np.arange(n)
    for _ in range(limit + 2):
        while len(now := lanes[(recorded < 151) & (recorded * 0.2 <= time)]):
            out[now, recorded[now]] = np.stack([x[now], y[now]], axis=1)
            recorded[now] += 1
        if np.all(recorded == 151):
            return out
        rates = np.stack([rate[0] * x * y, rate[1] * x, rate[2] * y, rate[3] * x * y])
        total = rates.sum(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            time = np.where(total > 0, time + rng.exponential(size=n) / total, np.inf)
            share = np.cumsum(rates / total, axis=0)
        which = (rng.uniform(size=n) >= share[:3]).sum(0)
        change = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[which] * (total > 0)[:, None]
        x, y = x + change[:, 0], y + change[:, 1]
    out[recorded < 151] = np.nan
    return out


def statistics_in_numpy(series):
    x, y = np.asarray(series, np.float64).T
    n = len(x)

    def correlation(a, b):
        return np.sum((a - a.mean()) * (b - b.mean())) / (n - 1) / np.sqrt(a.var(ddof=1) * b.var(ddof=1))

    def lagged(a, lag):
        centred = a - a.mean()
        return centred[lag:] @ centred[:-lag] / (n - 1) / a.var(ddof=1)

    lags = [lagged(x, 1), lagged(x, 2), lagged(y, 1), lagged(y, 2)]
    return np.array(
        [x.mean(), y.mean(), *np.log([x.var(ddof=1) + 1, y.var(ddof=1) + 1]), *lags, correlation(x, y)]
    )


@functools.cache
def from_prior(name: str, n: int):
    """Parameters from the prior and the outcomes of the problem's own simulator."""
    problem = problems.get(name)
    theta = problem.prior.sample(np.random.default_rng(5), n)
    return theta, problem.simulator(11, Rows(np.arange(n), theta))


@pytest.fixture(scope="module")
def series():
    """400 series at each of THETAS, all in one batch."""
    n = 400
    theta = np.repeat(np.array(list(THETAS.values()), np.float32), n, axis=0)
    keys = jax.random.split(jax.random.key(0), len(theta))
    found = np.asarray(jax.jit(jax.vmap(jump_process(10_000)))(keys, theta), np.float64)
    return dict(zip(THETAS, found.reshape(len(THETAS), n, 151, 2), strict=True))


@pytest.mark.parametrize("case", THETAS)
def test_the_jump_process_agrees_with_numpy(series, case, same_mean, same_law):
    ours = series[case]
    theirs = in_numpy(np.random.default_rng(1), THETAS[case], len(ours))
    failed = [np.isnan(x).any(axis=(1, 2)) for x in (ours, theirs)]
    same_mean(*(x.astype(float) for x in failed))
    ours, theirs = (x[~bad] for x, bad in zip((ours, theirs), failed, strict=True))
    np.testing.assert_array_equal(ours[:, 0], np.tile([50.0, 100.0], (len(ours), 1)))
    ours, theirs = (x[:, TIMES].reshape(len(x), -1) for x in (ours, theirs))
    same_mean(ours, theirs)
    centre = theirs.mean(0)
    same_mean((ours - centre) ** 2, (theirs - centre) ** 2)
    same_mean(*((x - centre)[:, ::2] * (x - centre)[:, 1::2] for x in (ours, theirs)))
    same_law(ours, theirs)


def test_where_nothing_can_happen_the_state_stays(series):
    ended = series["both die out, and nothing happens any more"]
    empty = np.all(ended[:, 100] == 0, axis=1)
    assert empty.mean() > 0.5
    assert np.all(ended[empty, 100:] == 0)


def test_a_recorded_state_is_that_after_the_next_event(series):
    # Of 50 predators, each lives for an exponential time. The next one to die counts as dead already.
    ours = series["deaths of predators only"]
    n, rate = len(ours), np.exp(-8.0)
    assert np.all(ours[:, :, 1] == 100)
    assert np.all(ours[:, 1, 0] <= 49)
    for k in (50, 150):
        died = 1 - np.exp(-rate * 0.2 * k)
        error = np.sqrt(50 * died * (1 - died) / n)
        assert abs(ours[:, k, 0].mean() - (49 - 50 * died)) < 5 * error


def test_statistics_agree_with_numpy(series):
    some = np.concatenate([series[case][:20] for case in ("the truth", "few and slow events")])
    some = some[np.isfinite(some).all(axis=(1, 2))]
    assert len(some) > 30
    ours = jax.vmap(statistics)(jnp.asarray(some, jnp.float32))
    np.testing.assert_allclose(ours, [statistics_in_numpy(s) for s in some], rtol=1e-4, atol=1e-5)


def test_statistics_of_the_published_series():
    exact = statistics(jnp.asarray(problems.get("lotka_volterra_raw").observation))
    expected = [118.78145695364239, 52.0728476821192, 8.236579038853373, 7.508093211609088]
    expected += [0.9775583650046548, 0.9270453599423284, 0.9709766277798811, 0.914716812793255]
    np.testing.assert_allclose(exact, [*expected, -0.0763678793922977], rtol=1e-5)
    observation = problems.get("lotka_volterra_noisy").observation
    np.testing.assert_allclose(observation.ravel()[:4], [-20.858, 57.305, 24.833, 130.719], atol=6e-4)
    noisy = statistics(jnp.asarray(observation))
    expected = [113.647, 48.180, 8.721, 8.334, 0.609, 0.557, 0.350, 0.259, 0.105]
    np.testing.assert_allclose(noisy, expected, atol=6e-4)


def test_the_observation_is_the_published_one(paper_observations):
    problem = problems.get("lotka_volterra")
    np.testing.assert_allclose(problem.observation, paper_observations["lv_observed_stats"], rtol=1e-12)
    assert problem.truth is not None
    np.testing.assert_allclose(problem.truth, paper_observations["lv_true_parameters"], rtol=1e-12)


@pytest.mark.parametrize("species", [0, 1])
def test_a_constant_series_has_no_statistics(species):
    series = np.random.default_rng(0).poisson(50, (151, 2)).astype(np.float32)
    assert np.isfinite(statistics(jnp.asarray(series))).all()
    series[:, species] = 123.4
    assert np.isnan(statistics(jnp.asarray(series))).all()


def test_one_in_eight_simulations_from_the_prior_fails():
    n = 6000
    _, outcomes = from_prior("lotka_volterra", n)
    share = np.mean([outcome.status is Status.INVALID for outcome in outcomes])
    assert abs(share - FAILED) < 5 * np.hypot(np.sqrt(FAILED * (1 - FAILED) / n), FAILED_ERROR)


def test_moments_from_the_prior_are_those_of_the_published_pilot_run():
    _, outcomes = from_prior("lotka_volterra", 6000)
    x = np.stack([outcome.x for outcome in outcomes if outcome.x is not None]).astype(np.float64)
    sizes = np.sqrt(1 / len(x) + 1 / PILOT)
    np.testing.assert_array_less(np.abs(x.mean(0) - PILOT_MEAN), 5 * x.std(0) * sizes)
    # A standard deviation has the standard error s sqrt((kurtosis - 1) / 4n).
    error = x.std(0) * np.sqrt((kurtosis(x, fisher=False) - 1) / 4) * sizes
    np.testing.assert_array_less(np.abs(x.std(0) - PILOT_STD), 5 * error)


def test_a_draw_does_not_depend_on_its_neighbours():
    theta, outcomes = from_prior("lotka_volterra", 6000)
    problem, rng = problems.get("lotka_volterra"), np.random.default_rng(0)
    index = np.sort(rng.choice(1000, 5, replace=False))
    for outcome in problem.simulator(11, Rows(index, theta[index])):
        expected = outcomes[outcome.index]
        assert outcome.status is expected.status
        np.testing.assert_array_equal(outcome.x, expected.x)


@functools.cache
def mixed(limit: int):
    """More rows than lanes, of very different lengths: keys, theta and series."""
    n = LANES + 50
    theta = np.random.default_rng(3).uniform(-5, 1, (n, 4)).astype(np.float32)
    keys = jax.random.split(jax.random.key(1), n)
    return keys, theta, np.asarray(jax.jit(jax.vmap(jump_process(limit)))(keys, theta))


def test_rows_come_out_of_the_queue_at_their_own_places():
    keys, theta, together = mixed(2000)
    alone = jax.jit(jump_process(2000))
    for i in [0, 1, LANES, len(theta) - 1]:
        np.testing.assert_array_equal(alone(keys[i], theta[i]), together[i])


def test_a_higher_limit_only_adds_successes():
    low, high = (mixed(limit)[2] for limit in (300, 2000))
    done, also = (np.isfinite(series).all(axis=(1, 2)) for series in (low, high))
    assert 0.1 < done.mean() < also.mean() < 0.9
    np.testing.assert_array_equal(low[done], high[done])
    assert np.isnan(high[~also]).all()
    # A series with more changes than events allowed must have failed.
    changes = np.abs(np.diff(low, axis=1)).sum(axis=(1, 2))
    assert changes[done].max() <= 300


def test_the_noise_has_the_stated_size():
    problem = problems.get("lotka_volterra_noisy", limit=1000)
    theta = problem.prior.sample(np.random.default_rng(6), 1000)
    outcomes = problem.simulator(7, Rows(np.arange(1000), theta))
    noise = np.stack([outcome.x[0] for outcome in outcomes if outcome.x is not None]) - [50, 100]
    assert noise.size > 1000
    assert abs(noise.std() - 50) < 5 * 50 / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 5 * 50 / np.sqrt(noise.size)
    quiet = problems.get("lotka_volterra_noisy", noise=0.0)
    np.testing.assert_array_equal(quiet.observation, problems.get("lotka_volterra_raw").observation)


@pytest.mark.parametrize("name", ["lotka_volterra", "lotka_volterra_raw", "lotka_volterra_noisy"])
def test_options_are_checked(name):
    assert problems.get(name, limit=100).name == name
    with pytest.raises(ValueError, match="limit must be a whole number of at least 1, got 0"):
        problems.get(name, limit=0)
    with pytest.raises(TypeError, match=r"unknown argument 'limits'. Did you mean 'limit'"):
        problems.get(name, limits=3)
