"""SLCP at the paper's observation, whose posterior leans against an edge of the prior: nothing may leak."""

import numpy as np
import pytest

import aptinfer as apt

SEEDS = (0, 1, 2)
PROBLEM = apt.problems.get("slcp")
# A single network comes out too sure of itself from 6,000 simulations. Members of an ensemble err.
CAREFUL = apt.APT(
    estimator=apt.Ensemble(apt.NSF(), 5),
    embedding=apt.ResidualMLP(),
    trainer=apt.Trainer(weight_decay=0.3),
)


@pytest.fixture(scope="module")
def exact():
    return PROBLEM.reference_posterior(PROBLEM.observation, 10_000, seed=0)


def far(theta):
    return (np.abs(PROBLEM.prior.inverse(theta)) > 3).any(axis=1).mean()


def at_edge(theta):
    return (theta[:, 1] < -2.9).mean()


def samples(method, seed):
    run = apt.infer(
        PROBLEM.simulator,
        PROBLEM.prior,
        PROBLEM.observation,
        method=method,
        rounds=6,
        seed=seed,
        progress=False,
    )
    return run.posterior.sample(10_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_mass_leaves_the_prior_or_drifts_into_its_far_tails(seed, exact):
    theta = samples(apt.APT(), seed)
    assert PROBLEM.prior.contains(theta).all()
    assert abs(far(theta) - far(exact)) < 0.05


@pytest.mark.slow
@pytest.mark.xfail(
    strict=False,
    reason="networks trained on 6,000 simulations put too much next to the edge: by seed 0.23 to 0.41 of the "
    "posterior was measured there, 0.30 on average, and 0.36 with the default; exact is 0.245",
)
def test_the_share_next_to_the_edge_is_right(exact):
    shares = [at_edge(samples(CAREFUL, seed)) for seed in SEEDS]
    assert abs(np.mean(shares) - at_edge(exact)) < 0.05, shares
