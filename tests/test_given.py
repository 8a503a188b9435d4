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


SMALL = apt.APT(loss=apt.Atomic(5), estimator=apt.MDN(1), trainer=apt.Trainer(epochs=5))


def test_a_run_with_a_file_keeps_them(tmp_path):
    settings = {"rounds": 2, "simulations": 50, "simulations_done": made_elsewhere(60)}
    plain = infer(SMALL, **settings)
    kept = infer(SMALL, file=tmp_path / "given.apt", **settings)
    np.testing.assert_array_equal(plain.posterior.sample(20), kept.posterior.sample(20))
    again = apt.open(tmp_path / "given.apt")
    for a, b in zip(plain.simulations, again.simulations, strict=True):
        np.testing.assert_array_equal(a, b)


class Cut(Exception):  # noqa: N818
    """Ends a run from within."""


def with_x(theta, x, row, value):
    return theta, np.concatenate([x[:row], [value], x[row + 1 :]])


def test_a_run_that_was_begun_with_other_rows_is_refused(tmp_path):
    path, (theta, x) = tmp_path / "given.apt", with_x(*made_elsewhere(60), 7, [np.nan, 0])
    settings = {"rounds": 1, "simulations": 50}
    plain = infer(SMALL, simulations_done=(theta, x), **settings)

    def cut(event):
        if isinstance(event, apt.Trained):
            raise Cut

    with pytest.raises(Cut):
        infer(SMALL, file=path, simulations_done=(theta, x), listen=cut, **settings)
    others = {
        r"theta of row 0 is \[.*\] in the file, \[.*\] now": (theta[::-1], x),
        r"x of row 59 is \[.*\] in the file, \[0. 0.\] now": with_x(theta, x, 59, [0, 0]),
        r"x of row 7 is that of a failure in the file, \[1. 2.\] now": with_x(theta, x, 7, [1, 2]),
        r"x of row 3 is \[.*\] in the file, that of a failure now": with_x(theta, x, 3, [np.nan, 0]),
        r"simulations_done.rows: 60 in the file, 59 now": (theta[:-1], x[:-1]),
        r"simulations_done.from_prior: False in the file, True now": apt.Done(theta, x, from_prior=True),
        r"simulations_done.rows: 60 in the file, nothing now": None,
    }
    for difference, done in others.items():
        with pytest.raises(apt.RunFileError, match=difference):
            infer(SMALL, file=path, simulations_done=done, **settings)
    carried_on = infer(SMALL, file=path, simulations_done=(theta, x), **settings)
    np.testing.assert_array_equal(plain.posterior.sample(20), carried_on.posterior.sample(20))


@pytest.mark.parametrize("moment", ["plan", "record"])
def test_rows_that_a_crash_kept_out_of_the_file_are_not_simulated(tmp_path, monkeypatch, moment):
    path, done = tmp_path / "given.apt", with_x(*made_elsewhere(60), 7, [np.nan, 0])
    settings = {"rounds": 1, "simulations": 50, "simulations_done": done}
    plain = infer(SMALL, **settings)

    def cut(*_):
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(f"aptinfer.storage.runfile.RunFile.{moment}", cut)
        with pytest.raises(Cut):
            infer(SMALL, file=path, **settings)
    with pytest.raises(apt.RunFileError, match=r"before the 60 simulations made elsewhere were in its file"):
        apt.resume(path, simulator)
    kept = infer(SMALL, file=path, **settings)
    np.testing.assert_array_equal(plain.simulations.x, kept.simulations.x)
    np.testing.assert_array_equal(plain.posterior.sample(20), kept.posterior.sample(20))
    assert len(apt.resume(path, simulator, progress=False).rounds) == 1


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
