"""Every loss and estimator against exact posteriors, after three rounds, and one wrong method that must fail.

Tolerances. Draws from the estimate add 1/sqrt(n) to the error of a mean in posterior units and 1/sqrt(2n) to
that of a standard deviation. The estimate itself comes from N simulations, about half of them near the
posterior; a regression of dim parameters on dim + 1 features has variance (dim + 1) / N per direction in
those units. The bounds are three standard errors of the two together.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from closed_forms import (
    Exact,
    correlated,
    cut_box,
    distance,
    log_normal,
    one_dimension,
    sum_in_box,
    ten_dimensions,
)

import aptinfer as apt
from aptinfer.methods.losses import MaximumLikelihood

ROUNDS, SIMULATIONS, DRAWS = 3, 1000, 20_000
SMALL = apt.MLP((32, 32))

METHODS = {
    "mixture proposal": apt.APT(estimator=apt.MDN(2), embedding=SMALL),
    "gaussian proposal": apt.APT(loss=apt.GaussianProposal(), estimator=apt.MDN(2), embedding=SMALL),
    "one gaussian": apt.APT(estimator=apt.MDN(1), embedding=SMALL),
    "atomic mdn": apt.APT(loss=apt.Atomic(20), estimator=apt.MDN(2), embedding=SMALL),
    "atomic maf": apt.APT(loss=apt.Atomic(10), estimator=apt.MAF(layers=3, hidden=(32, 32)), embedding=SMALL),
    "atomic nsf": apt.APT(loss=apt.Atomic(10), estimator=apt.NSF(layers=2, hidden=(32, 32)), embedding=SMALL),
    "atomic autoregressive": apt.APT(
        loss=apt.Atomic(10),
        estimator=apt.AutoregressiveMixture(components=3, hidden=(32, 32)),
        embedding=SMALL,
    ),
    "combined": apt.APT(loss=apt.Combined(10), estimator=apt.NSF(layers=2, hidden=(32, 32)), embedding=SMALL),
    "ensemble": apt.APT(estimator=apt.Ensemble(apt.MDN(2), 3), embedding=SMALL),
    "defaults": apt.APT(),
    "theta space, mixture": apt.APT(estimator=apt.MDN(2), embedding=SMALL, space=apt.Theta()),
    "theta space, atomic": apt.APT(
        loss=apt.Atomic(20), estimator=apt.MDN(2), embedding=SMALL, space=apt.Theta()
    ),
}
PROBLEMS = {p.name: p for p in (correlated(), log_normal(), cut_box(), one_dimension(), ten_dimensions())}
PROBLEMS["sum"] = sum_in_box()

# The fast suite: each loss meets one problem.
FAST = [
    ("mixture proposal", "correlated"),
    ("one gaussian", "sum"),
    ("gaussian proposal", "log-normal"),
    ("atomic nsf", "box"),
    ("combined", "1-d"),
]


def tolerance(exact: Exact) -> tuple[float, float]:
    """Bounds on the errors of mean and spread in units of the posterior."""
    dim = len(exact.mean)
    variance = dim * ((dim + 1) / (ROUNDS * SIMULATIONS / 2) + 1 / DRAWS)
    return float(3 * np.sqrt(variance)), float(3 * np.sqrt(variance / 2) + exact.misfit)


def estimate(exact: Exact, method, seed: int = 0) -> np.ndarray:
    run = apt.infer(
        exact.simulator,
        exact.prior,
        exact.x_o,
        method=method,
        rounds=ROUNDS,
        simulations=SIMULATIONS,
        seed=seed,
        progress=False,
    )
    return run.posterior.sample(DRAWS, seed=1)


def excess(exact: Exact, method, seed: int = 0) -> float:
    """The larger of the two errors, in units of its bound: at most one for a right method."""
    errors, limits = distance(exact, estimate(exact, method, seed)), tolerance(exact)
    return max(errors[0] / limits[0], errors[1] / limits[1])


@pytest.mark.parametrize(("method", "problem"), FAST)
def test_each_loss_meets_a_closed_form(method, problem):
    assert excess(PROBLEMS[problem], METHODS[method]) < 1


# What the table leaves out, because the method cannot do it: a single Gaussian (or two) is not the ridge of
# "sum" in theta space, and the paper's closed form in theta ignores the box.
IMPOSSIBLE = {
    ("theta space, mixture", "box"),
    ("theta space, mixture", "sum"),
    ("theta space, atomic", "sum"),
    ("theta space, mixture", "log-normal"),
    ("theta space, atomic", "log-normal"),
}


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_table(method, problem):
    if (method, problem) in IMPOSSIBLE:
        pytest.skip("not in the family of this method")
    assert excess(PROBLEMS[problem], METHODS[method]) < 1


@dataclass(frozen=True)
class Uncorrected(apt.MixtureProposal):
    """Wrong on purpose: maximum likelihood on proposal draws learns the proposal posterior."""

    def __call__(self, estimator, batch):
        return MaximumLikelihood()(estimator, batch)


@pytest.mark.parametrize("problem", ["correlated", "log-normal"])
def test_an_uncorrected_method_fails(problem):
    wrong = apt.APT(loss=Uncorrected(), estimator=apt.MDN(2), embedding=SMALL)
    assert excess(PROBLEMS[problem], wrong) > 1.5
