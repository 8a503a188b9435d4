"""Simulations made elsewhere: they are learned from, bias nothing, and are refused where they cannot be."""

import numpy as np
import pytest

import aptinfer as apt
from aptinfer import given
from aptinfer.storage.runfile import RunFile

NOISE, X_O = 0.4, np.array([0.9, -0.3])
PRIOR = apt.gaussian([0.0, 0.0], np.eye(2))
EXACT_MEAN, EXACT_STD = X_O / (1 + NOISE**2), NOISE / np.sqrt(1 + NOISE**2)
TRAINER = apt.Trainer(epochs=150, learning_rate=3e-3)
CALLS = []


def simulator(rng, theta):
    CALLS.append(theta)
    return theta + NOISE * rng.standard_normal(2)


def made_elsewhere(n, seed=0):
    """Parameters on no law at all: evenly spread around the posterior, far from the prior's density."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform([-0.6, -1.8], [2.2, 1.2], (n, 2))
    return theta, theta + NOISE * rng.standard_normal((n, 2))


def infer(method, **settings):
    return apt.infer(simulator, PRIOR, X_O, method=method, progress=False, **settings)


def errors(run):
    theta = run.posterior.sample(10_000, seed=1)
    return np.abs(theta.mean(axis=0) - EXACT_MEAN).max() / EXACT_STD, np.abs(
        theta.std(axis=0) / EXACT_STD - 1
    ).max()


def test_rows_of_unknown_origin_improve_a_run_and_bias_nothing():
    method = apt.APT(loss=apt.Atomic(20), estimator=apt.MDN(1), trainer=TRAINER)
    CALLS.clear()
    run = infer(method, rounds=1, simulations=100, simulations_done=made_elsewhere(3000))
    assert len(CALLS) == 100
    assert len(run.simulations.theta) == 3100
    assert (run.simulations.source[:3000] == -1).all()
    mean, spread = errors(run)
    # 3 coefficients of x per parameter, learned from some 1500 rows' worth of answers; three standard errors.
    assert mean < 3 * np.sqrt(2 * 3 / 1500)
    assert spread < 3 * np.sqrt(3 / 1500)
    # Taken for draws of the prior, they would move the posterior to where they lie.
    pretended = infer(
        apt.NPE(estimator=apt.MDN(1), trainer=TRAINER),
        simulations=100,
        simulations_done=apt.Done(*made_elsewhere(3000), from_prior=True),
    )
    assert errors(pretended)[0] > 3 * np.sqrt(2 * 3 / 1500)


def test_draws_of_the_prior_are_a_first_round():
    rng = np.random.default_rng(1)
    theta = rng.standard_normal((2000, 2))
    x = theta + NOISE * rng.standard_normal((2000, 2))
    x[::10] = np.nan
    CALLS.clear()
    done = apt.Done(theta, x, from_prior=True)
    run = infer(apt.NPE(estimator=apt.MDN(1), trainer=TRAINER), simulations=0, simulations_done=done)
    assert CALLS == []
    assert run.rounds[0].failed == 200
    assert (run.simulations.source == 0).all()
    assert len(run.failures) == 200
    mean, spread = errors(run)
    assert mean < 3 * np.sqrt(2 * 3 / 900)
    assert spread < 3 * np.sqrt(3 / 900)


def test_a_run_with_a_file_keeps_them(tmp_path):
    method = apt.APT(loss=apt.Atomic(5), estimator=apt.MDN(1), trainer=apt.Trainer(epochs=5))
    settings = {"rounds": 2, "simulations": 50, "simulations_done": made_elsewhere(60)}
    plain = infer(method, **settings)
    kept = infer(method, file=tmp_path / "given.apt", **settings)
    np.testing.assert_array_equal(plain.posterior.sample(20), kept.posterior.sample(20))
    again = apt.open(tmp_path / "given.apt")
    for a, b in zip(plain.simulations, again.simulations, strict=True):
        np.testing.assert_array_equal(a, b)


def test_taking_them_over_can_be_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(given, "AT_ONCE", 20)
    method = apt.APT(loss=apt.Atomic(5), estimator=apt.MDN(1), trainer=apt.Trainer(epochs=2))
    settings = {"rounds": 1, "simulations": 20, "simulations_done": made_elsewhere(60)}
    path, record, calls = tmp_path / "given.apt", RunFile.record, []

    def interrupted(self, outcomes):
        calls.append(len(outcomes))
        if len(calls) == 2:
            raise KeyboardInterrupt
        record(self, outcomes)

    monkeypatch.setattr(RunFile, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        infer(method, file=path, **settings)
    CALLS.clear()
    run = infer(method, file=path, **settings)
    assert calls[:4] == [20, 20, 20, 20]
    assert len(CALLS) == 20
    for a, b in zip(infer(method, **settings).simulations, run.simulations, strict=True):
        np.testing.assert_array_equal(a, b)


THETA, X = made_elsewhere(30)


@pytest.mark.parametrize(
    ("done", "method", "complaint"),
    [
        ((THETA, X), apt.NPE(), r"NPE needs to know where parameters came from.*from_prior=True.*apt.APT"),
        ((THETA, X), apt.SNPEB(), "SNPEB needs to know where parameters came from"),
        ((THETA, X), apt.APT(estimator=apt.MDN(2)), "APT needs to know where parameters came from"),
        (apt.Done(THETA, X, from_prior=True), apt.SyntheticLikelihood(), "has no use for others"),
        ((THETA, X[:-1]), apt.APT(), "30 rows of theta and 29 of x"),
        ((THETA[:, :1], X), apt.APT(), r"must have shape \(n, 2\).*got \(30, 1\)"),
        ((THETA, X[:, :1]), apt.APT(), r"x_o has shape \(2,\), but the simulator returns x of shape \(1,\)"),
        ((np.full((30, 2), np.nan), X), apt.APT(), "theta of simulations_done must be finite"),
        ("rows", apt.APT(), r"simulations_done must be a pair \(theta, x\)"),
    ],
)
def test_what_cannot_be_right_is_refused(done, method, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        infer(method, simulations_done=done)


def test_rows_outside_the_prior_are_refused():
    box, theta = apt.box([-1, -1], [1, 1]), np.concatenate([np.zeros((29, 2)), [[1.5, 0.0]]])
    with pytest.raises(ValueError, match="1 of 30 theta of simulations_done lie outside the prior's"):
        apt.infer(simulator, box, X_O, simulations_done=(theta, X), progress=False)


def test_nothing_to_simulate_takes_one_round():
    with pytest.raises(ValueError, match="simulations=0 leaves nothing to simulate in 10 rounds"):
        infer(apt.APT(), simulations=0, simulations_done=(THETA, X))
