"""Proposals that keep tails, or the whole of a region, cost hardly any accuracy: 10 x 1000 simulations."""

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.diagnostics.two_sample import c2st

SEEDS = (0, 1, 2)
OTHERS = {"defensive": apt.APT(proposal=apt.Defensive()), "truncated": apt.TSNPE()}


def scores(problem, method):
    x_o = problem.observations[0]
    exact = problem.reference_posterior(x_o, 10_000, seed=0)
    settings = {"method": method, "rounds": 10, "simulations": 1000, "progress": False}
    runs = [apt.infer(problem.simulator, problem.prior, x_o, seed=seed, **settings) for seed in SEEDS]
    return [c2st(run.posterior.sample(10_000, seed=1), exact) for run in runs]


@pytest.fixture(scope="module")
def plain():
    """Of each problem, the mean C2ST of APT as it is."""
    return {name: np.mean(scores(apt.problems.get(name), apt.APT())) for name in ("two_moons", "slcp")}


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["two_moons", "slcp"])
@pytest.mark.parametrize("proposal", OTHERS)
def test_the_posterior_is_as_close_as_with_the_last_one_as_proposal(problem, proposal, plain):
    found = scores(apt.problems.get(problem), OTHERS[proposal])
    assert np.mean(found) < plain[problem] + 0.03, found
