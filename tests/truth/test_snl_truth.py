"""SNL where the paper measures it: two moons and SLCP, and simulators that fail more often than not."""

import numpy as np
import pytest
from slcp_likelihood import PUBLISHED_SCORE, measured

import aptinfer as apt
from aptinfer.diagnostics import c2st
from comparisons import published

MOONS = apt.problems.get("two_moons")
# As the paper ran it: its flow, its optimiser, one chain that goes on from round to round, in theta.
PAPER = apt.SNL(
    estimator=apt.MAF(),
    embedding=apt.Flatten(),
    space=apt.Theta(),
    trainer=apt.Trainer(
        learning_rate=1e-4,
        weight_decay=0.0,
        validation=0.05,
        average=0.0,
        warmup=0,
        drops=0,
        early_patience=None,
    ),
    sampler=apt.samplers.SingleSlice(),
)


def share_of_the_upper_moon(theta):
    return (theta.sum(axis=1) > 0).mean()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_both_moons_are_found(seed):
    run = apt.infer(
        MOONS.simulator, MOONS.prior, MOONS.observation, method=apt.SNL(), seed=seed, progress=False
    )
    theta = run.posterior.sample(10_000, seed=1)
    # Three standard errors of the tempered particles, of which a moon's share cannot be better than that of
    # 1000 draws.
    assert abs(share_of_the_upper_moon(theta) - 0.5) < 3 * 0.5 / np.sqrt(1000)
    assert c2st(theta, MOONS.reference_posterior(MOONS.observation, 10_000, seed=0)) < 0.55


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::aptinfer.SamplingWarning")
def test_the_paper_s_single_chain_misses_a_moon_in_most_runs():
    missed = 0
    for seed in range(3):
        run = apt.infer(
            MOONS.simulator, MOONS.prior, MOONS.observation, method=PAPER, seed=seed, progress=False
        )
        share = share_of_the_upper_moon(run.posterior.sample(2000, seed=1))
        missed += share < 0.01 or share > 0.99
    assert missed >= 2


@pytest.mark.slow
def test_slcp_is_more_accurate_than_published():
    known = published("slcp")
    scores = [measured(known, observation)["c2st"] for observation in range(1, 6)]
    assert np.mean(scores) < PUBLISHED_SCORE, scores
