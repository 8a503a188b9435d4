"""Synthetic likelihood: the estimates of a Gaussian density, and chains that can be trusted or say so."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import aptinfer as apt
from aptinfer.posteriors import ParticlePosterior

BOX = apt.box([-1, -1], [1, 1])
X_O = np.array([0.2, -0.4])


def noisy(rng, theta):
    return theta + 0.3 * rng.standard_normal(theta.shape)


def infer(simulator: Any = noisy, **settings: Any) -> apt.Run:
    settings = {"rounds": 8, "simulations": 80, "progress": False} | settings
    method = settings.pop("method", apt.SyntheticLikelihood(replicates=10))
    return apt.infer(apt.BatchSimulator(simulator, chunk=80), BOX, [0.9, -0.9], method=method, **settings)


def replicates(parameters: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    root = np.array([[1.0, 0.0], [0.6, 0.5]])
    return rng.standard_normal((parameters, n, 2)) @ root.T


def test_plug_in_estimate():
    x, done = replicates(3, 12), np.ones((3, 12), bool)
    done[1, 4] = False  # x_o did not fail: the share of success counts
    found = apt.SyntheticLikelihood(unbiased=False).log_likelihood(x, done, X_O)
    for i, value in enumerate(found):
        kept = x[i][done[i]]
        covariance: Any = np.cov(kept.T)
        exact = stats.multivariate_normal(kept.mean(0), covariance).logpdf(X_O)
        assert value == pytest.approx(exact + np.log(done[i].mean()))


def test_shrunken_estimate():
    x, done = replicates(2, 5), np.ones((2, 5), bool)
    found = apt.SyntheticLikelihood(shrinkage=0.4).log_likelihood(x, done, X_O)
    for value, kept in zip(found, x, strict=True):
        covariance: Any = np.cov(kept.T) * np.array([[1, 0.6], [0.6, 1]])
        assert value == pytest.approx(stats.multivariate_normal(kept.mean(0), covariance).logpdf(X_O))


@pytest.mark.parametrize("n", [8, 20])
def test_unbiased_estimate_averages_to_the_density(n):
    x = replicates(40_000, n)
    found = np.exp(apt.SyntheticLikelihood().log_likelihood(x, np.ones(x.shape[:2], bool), X_O))
    covariance: Any = np.array([[1.0, 0.6], [0.6, 0.61]])
    exact = stats.multivariate_normal(np.zeros(2), covariance).pdf(X_O)
    assert abs(found.mean() - exact) < 5 * found.std() / np.sqrt(len(found))
    plug_in = np.exp(
        apt.SyntheticLikelihood(unbiased=False).log_likelihood(x, np.ones(x.shape[:2], bool), X_O)
    )
    assert abs(plug_in.mean() - exact) > 5 * plug_in.std() / np.sqrt(len(found))


def test_too_few_or_singular_replicates_are_impossible():
    method = apt.SyntheticLikelihood()
    x, done = replicates(3, 12), np.ones((3, 12), bool)
    done[0, 5:] = False
    x[1, :, 1] = 7.0
    x[2, :, 1] = 2 * x[2, :, 0] - 1
    assert np.isneginf(method.log_likelihood(x, done, X_O)).all()


@pytest.mark.filterwarnings("ignore::aptinfer.errors.SamplingWarning")
@pytest.mark.parametrize("space", [apt.Latent(), apt.Theta()])
def test_replicates_of_every_chain_stay_inside_the_prior(space):
    run = infer(method=apt.SyntheticLikelihood(replicates=10, space=space))
    rows = run.simulations
    assert BOX.contains(rows.theta).all()
    later = rows.theta[rows.round > 0].reshape(7, 8, 10, 2)
    assert (later == later[:, :, :1]).all()
    assert isinstance(run.posterior, ParticlePosterior)
    assert len(run.posterior.weights) == 4 * 8  # the second half of the rounds
    assert len(run.rounds[5].posterior.sample(5)) == 5
    again = infer(method=apt.SyntheticLikelihood(replicates=10, space=space))
    np.testing.assert_array_equal(run.posterior.sample(20), again.posterior.sample(20))


def test_chains_that_have_not_mixed_say_so():
    with pytest.warns(apt.SamplingWarning, match="Raise rounds="):
        infer()


@pytest.mark.filterwarnings("ignore::aptinfer.errors.SamplingWarning")
def test_a_summary_of_many_rounds_shows_the_first_and_the_last():
    run = infer(rounds=30)
    lines = run.summary().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("round ")) + 1
    assert [line.split()[0] for line in lines[start : start + 11]] == [
        *"12345",
        "...",
        *map(str, range(26, 31)),
    ]
    assert "R-hat" in lines[start - 1]
    assert "nan" not in "".join(lines[start:])


def test_data_without_a_gaussian_density_are_explained():
    def constant(rng, theta):
        return np.stack([theta[:, 0] + rng.standard_normal(len(theta)), np.ones(len(theta))], axis=1)

    with pytest.raises(apt.SamplingError, match="constant") as caught:
        infer(constant)
    assert len(caught.value.run.rounds) == 1


REFUSED = {
    "few replicates": (lambda: infer(method=apt.SyntheticLikelihood(replicates=5)), "at least 6"),
    "two replicates": (lambda: apt.SyntheticLikelihood(replicates=2), "at least 3"),
    "no multiple": (lambda: infer(simulations=85), "multiple of replicates=10"),
    "few chains": (lambda: infer(simulations=30), "at least 4 chains"),
    "few rounds": (lambda: infer(rounds=2), "hundreds"),
    "shrinkage": (lambda: apt.SyntheticLikelihood(shrinkage=2.0), "at most 1"),
    "settled": (lambda: infer(stop=apt.WhenSettled()), "have none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_simulated(case):
    call, says = REFUSED[case]
    with pytest.raises(ValueError, match=says):
        call()


def test_hundreds_of_rounds_by_default():
    with pytest.raises(RuntimeError, match="round 3 of 500"):
        infer(rounds=None, listen=stop_at_three)


def stop_at_three(event):
    if isinstance(event, apt.RoundStarted) and event.number == 2:
        raise RuntimeError("round 3 of 500")
