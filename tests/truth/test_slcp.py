"""SLCP at the paper's observation, whose posterior leans against an edge of the prior: nothing may leak."""

import numpy as np
import pytest

import aptinfer as apt


@pytest.mark.slow
def test_no_mass_leaves_the_prior_or_drifts_to_its_edges():
    problem = apt.problems.get("slcp")
    exact = problem.reference_posterior(problem.observation, 10_000, seed=0)
    run = apt.infer(problem.simulator, problem.prior, problem.observation, rounds=6, seed=0, progress=False)
    samples = run.posterior.sample(10_000, seed=1)
    assert problem.prior.contains(samples).all()

    def far(theta):
        return (np.abs(problem.prior.inverse(theta)) > 3).any(axis=1).mean()

    def at_edge(theta):
        return (theta[:, 1] < -2.9).mean()

    assert abs(far(samples) - far(exact)) < 0.05
    assert abs(at_edge(samples) - at_edge(exact)) < 0.05
