"""Simulators that hang, crash, raise and return NaN, with shares that depend on theta, in worker processes.

Every failure is in the run file with its reason, and the posterior is the one that `test_failures.py`
explains: p(theta | x_o) is proportional to p(theta) p(x_o | theta) P(success | theta).
"""

import re

import numpy as np
import pytest
from scipy import stats

import aptinfer as apt
from aptinfer.keys import Key
from aptinfer.protocols import Rows, Status
from aptinfer.sequential import _X
from aptinfer.simulators import as_simulator
from worker_models import EDGE, MOST, NOISE, kind_of_trouble, troubled

PRIOR = apt.gaussian(np.zeros(2), np.eye(2))
X_O = np.array([EDGE * (1 + NOISE**2), 0.4])  # so that the edge goes through the middle of the posterior
ENDINGS = [  # of each kind about 5 % of the prior's draws
    (Status.TIMEOUT, r"still running after .* s; timeout=1"),
    (Status.CRASHED, r"(?s)killed by SIGSEGV.*in troubled.*This was attempt 2 of 2"),
    (Status.RAISED, r"(?s)in troubled.*ValueError: no equilibrium at theta"),
    (Status.INVALID, "returned NaN or infinity"),
]


def infer(file, method, **settings):
    """In four processes: those that wait for a simulation that hangs cost nothing."""
    executor = apt.Processes(4, timeout=1.0)
    return apt.infer(
        troubled, PRIOR, X_O, method=method, file=file, executor=executor, progress=False, **settings
    )


def check_failures(run):
    """Every row ended as its random numbers say, and every failure has its reason."""
    theta = run.simulations.theta
    rows, seed = Rows(np.arange(len(theta)), theta), Key((0, _X)).integer()
    outcomes = apt.Inline()(as_simulator(kind_of_trouble), seed, rows)
    kinds = [int(outcome.x[0]) for outcome in outcomes if outcome.x is not None]
    failures = {outcome.index: outcome for outcome in run.failures}
    assert sorted(failures) == [row for row, kind in enumerate(kinds) if kind < 4]
    assert sorted(failures) == np.flatnonzero(~run.simulations.done).tolist()
    for row, outcome in failures.items():
        status, reason = ENDINGS[kinds[row]]
        assert outcome.status is status
        assert re.search(reason, outcome.reason)
        assert outcome.seconds >= (1 if status is Status.TIMEOUT else 0)
    return np.bincount(kinds, minlength=5)


def test_every_failure_is_in_the_file_with_its_reason(tmp_path):
    path = tmp_path / "trouble.apt"
    run = infer(path, apt.RejectionABC(quantile=0.5), simulations=60)
    assert (check_failures(apt.open(path))[:4] >= 1).all()
    again = apt.resume(path, lambda rng, theta: pytest.fail("nothing is run again"), progress=False)
    np.testing.assert_array_equal(again.posterior.sample(20), run.posterior.sample(20))
    np.testing.assert_array_equal(apt.open(path).posterior.sample(20), run.posterior.sample(20))


def exact():
    """Mean and standard deviation by quadrature; the second parameter has nothing to do with failures."""
    theta = np.linspace(-4, 4, 4001)
    narrow = NOISE / np.sqrt(1 + NOISE**2)
    success = 1 - 4 * MOST * stats.norm.cdf(8 * (theta - EDGE))
    weight = stats.norm.pdf(theta, X_O[0] / (1 + NOISE**2), narrow) * success
    weight /= weight.sum()
    mean = weight @ theta
    spread = np.sqrt(weight @ (theta - mean) ** 2)
    return np.array([mean, X_O[1] / (1 + NOISE**2)]), np.array([spread, narrow])


@pytest.mark.slow
@pytest.mark.parametrize("method", [apt.APT(), apt.NPE(estimator=apt.MDN(4))], ids=["APT", "NPE"])
def test_the_posterior_is_exact_in_spite_of_all(method, tmp_path):
    path, rounds, draws = tmp_path / "trouble.apt", 1 if method.one_round else 3, 20_000
    infer(path, method, rounds=rounds, simulations=2100 // rounds)
    run = apt.open(path)
    counts = check_failures(run)
    first = np.bincount([f.index < 2100 // rounds for f in run.failures], minlength=2)[1]
    share = first / (2100 // rounds)
    assert 0.15 < share < 0.25, "5 % of each kind in a round from the prior"
    assert (counts[:4] > 20).all()
    theta = run.posterior.sample(draws, seed=1)
    mean, std = exact()
    # As in test_failures.py: early stopping and failures leave a quarter of the information, for six terms.
    bound = 3 * np.sqrt(6 / (2100 / 4) + 1 / draws)
    assert (np.abs(theta.mean(axis=0) - mean) / std < bound).all()
    assert (np.abs(theta.std(axis=0) / std - 1) < bound).all()
    # The same test sees the difference to a posterior that takes no account of failures.
    assert (X_O[0] / (1 + NOISE**2) - mean[0]) / std[0] > bound
