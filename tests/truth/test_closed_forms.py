"""Every loss and estimator against exact posteriors after three rounds; one wrong method must fail."""

from dataclasses import dataclass

import pytest
from closed_forms import IMPOSSIBLE, METHODS, PROBLEMS, measure

import aptinfer as apt
from aptinfer.methods.losses import MaximumLikelihood

pytestmark = pytest.mark.optimised
# The fast suite: each loss of the sequential methods meets one problem.
FAST = [
    ("mixture proposal", "correlated"),
    ("one gaussian, one round", "sum"),
    ("defaults", "sum"),
    ("gaussian proposal", "log-normal"),
    ("combined", "1-d"),
    ("snpe-a", "correlated"),
    ("snpe-b", "log-normal"),
    ("snl", "box"),
    ("snre", "1-d"),
    ("smc-abc", "correlated"),
    ("smc-abc, theta space", "box"),
    ("rejection abc", "correlated"),
]


@pytest.mark.parametrize(("method", "problem"), FAST)
def test_each_loss_meets_a_closed_form(method, problem):
    assert measure(PROBLEMS[problem], METHODS[method]).excess < 1


def test_chains_meet_a_closed_form():
    method = METHODS["synthetic likelihood"]
    assert measure(PROBLEMS["1-d"], method, rounds=300).excess < 1


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_table(method, problem):
    if (method, problem) in IMPOSSIBLE:
        pytest.skip("not in the family of this method")
    assert measure(PROBLEMS[problem], METHODS[method]).excess < 1


@dataclass(frozen=True)
class Uncorrected(apt.MixtureProposal):
    """Wrong on purpose: maximum likelihood on proposal draws learns the proposal posterior."""

    def __call__(self, estimator, batch):
        return MaximumLikelihood()(estimator, batch)


@pytest.mark.parametrize("problem", ["correlated", "log-normal"])
def test_an_uncorrected_method_fails(problem):
    wrong = apt.APT(loss=Uncorrected(), estimator=apt.MDN(2))
    assert measure(PROBLEMS[problem], wrong).excess > 1.5
