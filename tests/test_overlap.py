"""Training that begins while simulations still arrive."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import aptinfer as apt
from aptinfer import overlap
from aptinfer.overlap import WarmedUp, WarmUp
from aptinfer.protocols import GROUP_SECONDS, Simulations
from aptinfer.rows import training_rows
from storage.runs import assert_same_bits

N, BATCH = 120, 20
TRAINER = apt.Trainer(epochs=12, batch=BATCH, patience=5, learning_rate=5e-3, warmup=10)
PRIOR, OBSERVED = apt.box([-1, -1], [1, 1]), [0.2, 0.3]


def simulate(rng, theta):
    return None if theta[0] > 0.8 else theta + 0.2 * rng.standard_normal(2)


class Patient:
    """An executor whose last simulations of a round end only when a warm-up has learned something."""

    def __init__(self, monkeypatch):
        self.learned = threading.Event()

        def noted(*arguments):
            self.learned.set()
            return WarmedUp(*arguments)

        monkeypatch.setattr(overlap, "WarmedUp", noted)

    def __call__(self, simulator, seed, rows):
        self.learned.clear()
        for place, outcomes in enumerate(simulator.one_by_one(seed, rows)):
            if place == len(rows.index) - 10:
                time.sleep(2 * GROUP_SECONDS)  # so that this one and all before it are recorded
            elif place == len(rows.index) - 9:
                assert self.learned.wait(100), "nothing was learned while simulations ran"
            yield from outcomes


def infer(simulator, method=None, **settings):
    method = method or apt.APT(apt.Atomic(5), apt.MDN(1), embedding=apt.MLP((6,)), trainer=TRAINER)
    settings = {"rounds": 2, "simulations": N, "progress": False} | settings
    return apt.infer(simulator, PRIOR, OBSERVED, method=method, **settings)


def test_training_begins_before_the_last_simulation_ends(monkeypatch, tmp_path):
    """Or the last simulations would wait for ever. A run with a file, which is read while it is written."""
    patient, events, trainings, train = Patient(monkeypatch), [], [], apt.Trainer.__call__

    def noted(self, key, estimator, *arguments, **settings):
        trained, history = train(self, key, estimator, *arguments, **settings)
        trainings.append((threading.current_thread() is threading.main_thread(), estimator, trained))
        return trained, history

    monkeypatch.setattr(apt.Trainer, "__call__", noted)
    settings = {"executor": patient, "overlap": True, "listen": events.append}
    run = infer(simulate, file=tmp_path / "a.apt", **settings)
    of_rounds = [place for place, (in_main, *_) in enumerate(trainings) if in_main]
    assert len(of_rounds) == 2
    for place in of_rounds:  # the round's training begins with what the warm-up before it has learned
        assert not trainings[place - 1][0]
        assert trainings[place][1] is trainings[place - 1][2]
    plain = infer(simulate)
    for column in ("theta", "x", "done"):  # of the first round; the second has another proposal
        a, b = (getattr(each.simulations, column)[:N] for each in (plain, run))
        np.testing.assert_array_equal(a, b)
    warm = [e for e in events if isinstance(e, WarmedUp)]
    assert {e.number for e in warm} == {0, 1}
    for e in warm:  # of the rows of this round some, but not all
        assert e.number * N < e.rows < (e.number + 1) * N
    assert apt.open(tmp_path / "a.apt").posterior.sample(5).shape == (5, 2)


METHODS = {
    "NPE": apt.NPE(estimator=apt.MDN(1), embedding=apt.MLP((6,)), trainer=TRAINER),
    "SNL": apt.SNL(estimator=apt.MDN(1), trainer=TRAINER),
    "SNRE": apt.SNRE(embedding=apt.MLP((6,)), trainer=TRAINER),
    "SNPE-A": apt.SNPEA(estimator=apt.MDN(2), embedding=apt.MLP((6,)), trainer=TRAINER),
    "uncertain": apt.SNPEB(
        estimator=apt.MDN(1), embedding=apt.MLP((6,)), trainer=TRAINER, uncertainty=apt.WeightUncertainty()
    ),
    "stack": apt.APT(estimator=apt.Stack((apt.MDN(1), apt.MDN(2))), embedding=apt.MLP((6,)), trainer=TRAINER),
    "ensemble": apt.APT(estimator=apt.Ensemble(apt.MDN(1), 2), embedding=apt.MLP((6,)), trainer=TRAINER),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::aptinfer.errors.SamplingWarning")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_trains_can_begin_early(method, monkeypatch):
    rounds, started = 1 if method == "NPE" else 2, []
    found = WarmUp._train
    monkeypatch.setattr(
        WarmUp, "_train", lambda self: found(self) or started.append(self.weights is not None)
    )
    run = infer(simulate, METHODS[method], executor=Patient(monkeypatch), overlap=True, rounds=rounds)
    assert len(started) >= rounds
    assert all(weights is not None for weights in started)
    assert np.isfinite(run.posterior.sample(50)).all()


def test_without_overlap_and_with_too_few_rows_the_bits_are_the_usual_ones():
    """A warm-up that cannot fill a batch, in a single round, learns nothing: then nothing may differ."""
    method = apt.NPE(estimator=apt.MDN(1), embedding=apt.MLP((6,)), trainer=TRAINER)
    settings = {"method": method, "rounds": 1, "simulations": BATCH}
    plain = infer(lambda theta: theta + 0.1, **settings)
    with ThreadPoolExecutor(1) as pool:
        assert_same_bits(plain, infer(lambda theta: theta + 0.1, executor=pool, **settings))
        assert_same_bits(plain, infer(lambda theta: theta + 0.1, executor=pool, overlap=True, **settings))


def test_rows_that_have_not_arrived_are_no_contrasts_and_stay_on_their_side_of_the_validation():
    rng, n = np.random.default_rng(0), 50
    ended = rng.uniform(size=n) < 0.6
    done = ended & (rng.uniform(size=n) < 0.8)
    zeros = np.zeros((n, 1), np.float32)
    rows = Simulations(zeros, zeros, np.zeros(n, np.int32), np.zeros(n, int), zeros, done)
    for contrasts, usable in ((True, ended), (False, done)):
        made = training_rows(
            rows,
            np.zeros(n),
            None,
            capacity=n,
            validates=TRAINER.validates,
            contrasts=contrasts,
            ended=ended,
            rng=rng,
        )
        train, held_back = (
            np.asarray(made.train)[: int(made.n_train)],
            np.sort(np.asarray(made.validation)[: int(made.n_validation)]),
        )
        expected = np.flatnonzero(usable)
        np.testing.assert_array_equal(train, expected[~TRAINER.validates(expected)])
        np.testing.assert_array_equal(held_back, expected[TRAINER.validates(expected)])


def test_an_error_of_the_simulations_ends_the_warm_up(monkeypatch):
    patient, before = Patient(monkeypatch), threading.active_count()

    def broken(simulator, seed, rows):
        yield from itertools.islice(patient(simulator, seed, rows), N - 5)
        raise apt.SimulationError("the cluster is gone")

    with pytest.raises(apt.SimulationError, match="the cluster is gone"):
        infer(simulate, executor=broken, overlap=True)
    assert patient.learned.is_set()
    assert threading.active_count() == before


def test_what_cannot_overlap_is_refused():
    with pytest.raises(ValueError, match=r"overlap=True: apt\.Inline\(\) simulates in this very process"):
        infer(simulate, overlap=True)
    with pytest.raises(TypeError, match="overlap must be True or False, got 'yes'"):
        infer(simulate, overlap="yes")
    with pytest.raises(ValueError, match="RejectionABC trains nothing that could begin"):
        infer(simulate, apt.RejectionABC(), rounds=1, overlap=True, executor=apt.Processes(1))
