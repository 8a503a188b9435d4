"""Runs side by side give what they give alone, and no run disturbs another."""

import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import aptinfer as apt

PRIOR = apt.gaussian(np.zeros(2), np.eye(2))
SMALL = apt.Trainer(epochs=8, batch=50)


@apt.BatchSimulator
def simulator(rng, theta):
    return theta + 0.3 * rng.standard_normal(theta.shape)


def run_of(seed, *, x_o=(0.5, -0.5), rounds=2, trainer=SMALL, model: Any = simulator):
    method = apt.APT(loss=apt.Atomic(), estimator=apt.MDN(1), embedding=apt.MLP((8,)), trainer=trainer)
    return apt.infer(
        model, PRIOR, x_o, method=method, rounds=rounds, simulations=100, seed=seed, progress=False
    )


def histories(run) -> list[Any]:
    return [finished.history for finished in run.rounds]


def test_runs_side_by_side_equal_runs_alone():
    # The third has fewer rounds, hence another capacity, and a program of its own.
    calls = [partial(run_of, 0), partial(run_of, 1, x_o=(1.0, 1.0)), partial(run_of, 2, rounds=1)]
    for together, alone in zip(apt.side_by_side(calls), [call() for call in calls], strict=True):
        assert len(together.rounds) == len(alone.rounds)
        for one, other in zip(histories(together), histories(alone), strict=True):
            assert one.epochs == other.epochs
            np.testing.assert_allclose(one.training_loss, other.training_loss, atol=2e-4)
            np.testing.assert_allclose(one.validation_loss, other.validation_loss, atol=2e-4)
        draws = together.posterior.sample(50, seed=0), alone.posterior.sample(50, seed=0)
        np.testing.assert_allclose(*draws, atol=5e-3)


@pytest.mark.slow
def test_runs_that_stop_at_different_epochs_do_not_disturb_each_other():
    patient = [partial(run_of, seed, rounds=1, trainer=apt.Trainer(batch=50, patience=3)) for seed in (3, 4)]
    together, alone = apt.side_by_side(patient), [call() for call in patient]
    epochs = [[histories(run)[0].epochs for run in runs] for runs in (together, alone)]
    assert epochs[0][0] != epochs[0][1], "the test needs runs of unequal length"
    np.testing.assert_allclose(epochs[0], epochs[1], rtol=0.2)  # rounding may move a stop by a few epochs


def test_runs_that_stop_at_different_epochs_wait_for_each_other_before_the_next_program(monkeypatch):
    from aptinfer import convoy as module

    original, calls = module.Program.__call__, []

    def noted(self, group):
        calls.append((self, [one.number for one in group]))
        return original(self, group)

    monkeypatch.setattr(module.Program, "__call__", noted)
    patient = apt.Trainer(batch=50, patience=3)

    def both(seed):
        return run_of(seed, rounds=1, trainer=patient), run_of(seed, rounds=1, trainer=SMALL)

    runs = apt.side_by_side([partial(both, seed) for seed in (3, 4)])
    epochs = [histories(first)[0].epochs for first, _ in runs]
    assert epochs[0] != epochs[1], "the test needs runs of unequal length"
    assert any(len(group) == 1 for _, group in calls), "and one that waits"
    last = calls[-1][0]
    assert all(group == [0, 1] for program, group in calls if program is last)


def test_an_error_of_one_run_leaves_the_others():
    def broken(rng, theta):
        raise ZeroDivisionError("no model")

    calls = [partial(run_of, 0, rounds=1), partial(run_of, 1, model=broken), partial(run_of, 2, rounds=1)]
    first, error, last = apt.side_by_side(calls, return_exceptions=True)
    assert len(first.rounds) == len(last.rounds) == 1
    assert isinstance(error, apt.SimulationError)
    with pytest.raises(apt.SimulationError, match="no model"):
        apt.side_by_side(calls)


def test_ctrl_c_leaves_every_run_with_its_finished_rounds(monkeypatch):
    from aptinfer import convoy as module

    original, second_rounds = module.Program.__call__, 0

    def interrupted(self, group):
        nonlocal second_rounds
        if any(one.wish.fixed[2].n_train > 90 for one in group):  # rows of the second round
            second_rounds += 1
            if second_rounds == 2:
                raise KeyboardInterrupt
        return original(self, group)

    monkeypatch.setattr(module.Program, "__call__", interrupted)
    with pytest.warns(UserWarning, match="interrupted in round 2"):
        runs = apt.side_by_side([partial(run_of, 0), partial(run_of, 1)])
    assert [len(run.rounds) for run in runs] == [1, 1]
    assert all(run.interrupted for run in runs)


def test_ctrl_c_while_a_run_simulates_ends_all_of_them():
    calls = []

    def interrupted(rng, theta):
        calls.append(1)
        if len(calls) == 120:  # in the second round
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return theta + 0.3 * rng.standard_normal(2)

    with pytest.warns(UserWarning, match="interrupted in round 2"):
        runs = apt.side_by_side([partial(run_of, 0, model=interrupted), partial(run_of, 1)])
    assert [len(run.rounds) for run in runs] == [1, 1]
    assert all(run.interrupted for run in runs)


def test_calls_must_be_functions():
    with pytest.raises(TypeError, match="functions without arguments"):
        apt.side_by_side([3])  # pyright: ignore[reportArgumentType]


def test_side_by_side_within_side_by_side_is_refused():
    with pytest.raises(RuntimeError, match="one of its own calls"):
        apt.side_by_side([lambda: apt.side_by_side([lambda: 1])])


def test_no_calls_and_calls_without_training():
    assert apt.side_by_side([]) == []
    assert apt.side_by_side([lambda: 1, lambda: 2]) == [1, 2]
