"""Two moons, the paper's first figure: 10 rounds of 1000 simulations with the defaults, three seeds."""

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.diagnostics.two_sample import c2st


@pytest.mark.slow
def test_both_moons_are_found_and_the_posterior_is_close():
    problem = apt.problems.get("two_moons")
    exact = problem.reference_posterior(problem.observation, 10_000, seed=0)
    scores = []
    for seed in range(3):
        run = apt.infer(problem.simulator, problem.prior, problem.observation, seed=seed, progress=False)
        samples = run.posterior.sample(10_000, seed=1)
        assert 0.4 < (samples.sum(axis=1) > 0).mean() < 0.6, f"a moon is missing with seed {seed}"
        scores.append(c2st(samples, exact))
    assert np.mean(scores) <= 0.55, f"C2ST {scores}"
