"""Overlapped runs meet closed forms, though which rows come late depends on theta."""

import time

import numpy as np
import pytest
from closed_forms import DRAWS, METHODS, PROBLEMS, ROUNDS, SIMULATIONS, bounds, distance

import aptinfer as apt


def late_on_one_side(rng, theta):
    """The problem "correlated"; simulations with a positive first parameter take eight times as long."""
    time.sleep(0.008 if theta[0] > 0 else 0.001)
    return theta + 0.7 * rng.standard_normal(2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mixture proposal", "defaults", "snpe-b"])
def test_rows_that_come_late_do_not_bias_the_posterior(method):
    exact, warm = PROBLEMS["correlated"], []

    def listen(event):
        if isinstance(event, apt.WarmedUp):
            warm.append(event.number)

    run = apt.infer(
        late_on_one_side,
        exact.prior,
        exact.x_o,
        method=METHODS[method],
        rounds=ROUNDS,
        simulations=SIMULATIONS,
        executor=apt.Processes(2),
        overlap=True,
        listen=listen,
        progress=False,
    )
    assert set(warm) == set(range(ROUNDS))
    errors = distance(exact, run.posterior.sample(DRAWS, seed=1))
    rows = run.rounds[-1].notes.get("effective_rows", ROUNDS * SIMULATIONS) / 2
    np.testing.assert_array_less(errors, bounds(exact.prior.dim, exact.features, rows))
