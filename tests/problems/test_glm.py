"""The Bernoulli GLMs: the paper's, made from a seed, and the benchmark's two."""

import itertools

import jax
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import bernoulli, multivariate_t

import aptinfer as apt
from aptinfer import problems
from aptinfer.problems import bernoulli_glm, glm
from aptinfer.problems.spiking import Neuron, prior_covariance
from comparisons import (
    assert_equal_means,
    assert_same_distribution,
    assert_weighted_moments,
    likelihood,
    published,
    simulations,
)

# The paper's ten seeds, and x_o made from each by the published recipe.
OBSERVATIONS = """
42  18  0.130941 5.747163 6.947634 0.991657 -0.451830 -0.210905 -1.675509 -2.660995 -2.815955
43  11  4.379393 0.940613 3.321168 5.133358 1.725116 0.710467 -1.835222 0.160873 -4.125897
44  34  14.151387 19.604455 18.928375 19.961354 10.976720 12.937622 10.308875 8.030683 -4.950729
45  27  2.118356 13.067979 20.264822 20.459168 2.342873 6.114060 2.489117 2.272099 0.668945
46  14  -0.042750 12.705511 5.788915 6.191272 6.511581 0.918457 -1.061550 -2.795416 -5.926416
47  23  4.146108 14.395547 15.591157 16.114982 5.741313 7.857199 2.371847 2.050530 5.920286
48  37  5.963898 17.644437 19.682319 14.271915 14.076812 14.469777 10.841072 -0.994720 8.638739
49  31  1.987853 14.248805 20.698561 11.662692 14.831393 8.134212 3.079479 7.021970 5.246727
50  45  15.015501 21.230180 28.769313 28.448417 26.408799 17.466500 16.786665 17.829351 16.056081
51  38  7.602338 20.930599 17.419362 22.109833 17.774375 10.077390 11.311397 12.636235 9.292308
"""


def spikes_in_numpy(rng, stimulus, theta, n):
    """Spike trains from the model's sum over lags, without a design matrix."""
    bins = len(stimulus)
    psi = np.full(bins, theta[0])
    for t, lag in itertools.product(range(bins), range(9)):
        if t >= lag:
            psi[t] += theta[1 + lag] * stimulus[t - lag]
    return (rng.uniform(size=(n, bins)) < expit(psi)).astype(float)


@pytest.mark.parametrize("line", OBSERVATIONS.split("\n")[1:-1])
def test_the_paper_s_observations_come_from_their_seeds(line):
    seed, *expected = line.split()
    observation = problems.get("glm", seed=int(seed)).observation
    np.testing.assert_allclose(observation, np.array(expected, float), atol=5.1e-7)


def test_the_plain_problem_is_the_paper_s_first_seed():
    np.testing.assert_array_equal(problems.get("glm").observation, problems.get("glm", seed=42).observation)
    filter_ = [0.36787944117144233, 1.0826822658929016, 1.3442508459323266, 1.1722008888789874]
    np.testing.assert_allclose(problems.get("glm").truth[:5], [-2, *filter_], rtol=1e-14)  # pyright: ignore


def test_prior_deviations():
    expected = [1.4142, 1.0, 1.6771, 1.8299, 1.5521, 1.2163, 1.1004, 1.0692, 0.9806, 0.8803]
    np.testing.assert_allclose(np.sqrt(np.diag(prior_covariance())), expected, atol=5.1e-5)
    moments = problems.get("glm").prior.gaussian_moments
    assert moments is not None
    np.testing.assert_allclose(moments[1], prior_covariance(), rtol=1e-10, atol=1e-13)


def test_the_simulators_agree_with_numpy():
    n = 20_000
    theta = np.array([-0.5, 0.4, 1.0, 1.2, 0.3, -0.6, -0.9, 0.2, 0.1, -0.3])
    stimulus = bernoulli_glm.neuron.design[:, 1]
    spikes = spikes_in_numpy(np.random.default_rng(1), stimulus, theta, n)
    ours = simulations(problems.get("bernoulli_glm_raw"), theta, n)
    assert set(np.unique(ours)) == {0, 1}
    assert_equal_means(ours, spikes)
    assert_equal_means(ours[:, 1:] * ours[:, :-1], spikes[:, 1:] * spikes[:, :-1])
    x = spikes @ bernoulli_glm.neuron.design
    assert_same_distribution(simulations(problems.get("bernoulli_glm"), theta, n), x)


def test_the_likelihood_is_a_product_of_bernoullis():
    problem, raw = problems.get("bernoulli_glm"), problems.get("bernoulli_glm_raw")
    theta = problem.prior.sample(np.random.default_rng(0), 20)
    y = raw.observation
    psi = theta @ bernoulli_glm.neuron.design.T
    exact = bernoulli.logpmf(y, expit(psi)).sum(1)
    np.testing.assert_allclose(likelihood(raw)(theta, y), exact, rtol=1e-5)
    statistics = y @ bernoulli_glm.neuron.design
    np.testing.assert_allclose(likelihood(problem)(theta, statistics), exact, rtol=1e-5)


def test_the_likelihood_sums_to_one_over_all_spike_trains():
    rng = np.random.default_rng(0)
    neuron = Neuron(rng.normal(size=12))
    theta = rng.normal(size=10)
    trains = np.array(list(itertools.product([0.0, 1.0], repeat=12)))
    for log_p in (
        neuron.log_likelihood_of_spikes(theta, trains),
        neuron.log_likelihood(theta, trains @ neuron.design),
    ):
        assert np.exp(np.asarray(log_p, np.float64)).sum() == pytest.approx(1, abs=1e-5)


def test_the_benchmark_s_stimulus_and_statistics():
    known = published("bernoulli_glm")
    np.testing.assert_array_equal(bernoulli_glm.neuron.design, known["design_matrix"])
    raw = problems.get("bernoulli_glm_raw").observations
    x = problems.get("bernoulli_glm").observations
    # The published statistics were summed in single precision.
    np.testing.assert_allclose(raw @ known["design_matrix"], x, atol=1e-5)  # pyright: ignore


def test_raw_spikes_have_the_posterior_of_their_statistics():
    problem, raw = problems.get("bernoulli_glm"), problems.get("bernoulli_glm_raw")
    first = problem.reference_posterior(problem.observation, 4000)
    assert_same_distribution(raw.reference_posterior(raw.observation, 4000, seed=1), first)


def test_the_paper_s_posterior_is_prior_times_likelihood():
    # Draws of a Student-t distribution about the posterior's moments, weighted, against the chains.
    problem = problems.get("glm")
    draws = problem.reference_posterior(problem.observation, 4000)
    law = multivariate_t(draws.mean(0), 1.2 * np.cov(draws.T), df=8, seed=4)  # pyright: ignore
    theta = law.rvs(20_000)
    log_weights = np.asarray(likelihood(problem)(theta, problem.observation), np.float64)
    log_weights = log_weights + problem.prior.log_prob(theta) - law.logpdf(theta)
    assert_weighted_moments(np.exp(log_weights - log_weights.max()), theta, draws)


def test_seeds_are_other_problems_and_are_checked():
    first, other = problems.get("glm", seed=43), problems.get("glm", seed=44)
    assert np.any(first.observation != other.observation)
    key, theta = jax.random.key(0), glm.TRUTH.astype(np.float32)
    x = [p.simulator.function(key, theta) for p in (first, other)]  # pyright: ignore
    assert np.any(np.asarray(x[0])[1:] != np.asarray(x[1])[1:])
    with pytest.raises(ValueError, match="seed must be a whole number from 0"):
        problems.get("glm", seed=-1)
    with pytest.raises(TypeError, match=r"unknown argument 'sed'\. Did you mean 'seed'"):
        problems.get("glm", sed=1)


def test_the_paper_s_network_is_one_that_apt_builds():
    network = problems.get("glm").network
    assert apt.APT(**network).loss == apt.Atomic(100)
    assert network["estimator"] == apt.MAF(layers=2, hidden=(10, 10))
