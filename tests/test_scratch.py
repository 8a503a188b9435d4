"""Data larger than memory lie in scratch files beside the run file, and give the same bits."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

import aptinfer as apt
from aptinfer import scratch
from aptinfer.errors import RunFileError
from aptinfer.protocols import Draws, Outcome, Status, Tally
from aptinfer.scaling import fit_scaling
from aptinfer.storage.runfile import RunFileReader
from aptinfer.store import MemoryStore

EVENT, BATCH = (3, 2), 20
ROW = 4 * 6  # bytes of x in float32


@pytest.fixture
def small_machine(monkeypatch):
    """A machine in whose memory no array of data has room."""
    monkeypatch.setattr(scratch, "memory_of_this_process", lambda: 4.0 * ROW)


def simulate(rng, theta):
    return None if theta[0] > 0.8 else theta + 0.1 * rng.standard_normal(EVENT)


def infer(file=None):
    trainer = apt.Trainer(epochs=4, batch=BATCH, warmup=5, device_memory=1)
    method = apt.APT(apt.Atomic(5), apt.MDN(1), embedding=apt.MLP((6,)), trainer=trainer)
    settings = {"method": method, "rounds": 2, "simulations": 150, "progress": False}
    return apt.infer(simulate, apt.box([-1, -1], [1, 1]), np.zeros(EVENT), file=file, **settings)


def test_training_from_a_file_larger_than_memory_has_the_bits_of_training_in_memory(
    monkeypatch, small_machine, tmp_path
):
    """Two rounds with failed rows, one minibatch at a time."""
    on_disk, found = [], scratch.zeros_beside
    monkeypatch.setattr(
        scratch, "zeros_beside", lambda *arguments: on_disk.append(found(*arguments)) or on_disk[-1]
    )
    durable = infer(tmp_path / "run.apt")
    assert [array.shape for array in on_disk] == 2 * [(300, *EVENT)]  # the scaled data of each round
    plain = infer()
    assert len(on_disk) == 2
    rows = durable.simulations
    assert isinstance(rows.x, np.memmap)
    for a, b in zip(plain.simulations, rows, strict=True):
        np.testing.assert_array_equal(a, b, strict=False)
    for a, b in zip(plain.rounds, durable.rounds, strict=True):
        assert a.history is not None
        assert b.history is not None
        np.testing.assert_array_equal(a.history.training_loss, b.history.training_loss)
        np.testing.assert_array_equal(a.posterior.sample(50), b.posterior.sample(50))
    assert os.listdir(tmp_path) == ["run.apt"]


def test_small_arrays_stay_in_memory_and_large_ones_leave_no_file(small_machine, tmp_path):
    assert not scratch.is_on_disk(scratch.zeros((4,), np.float32, tmp_path))
    large = scratch.zeros((100, 3), np.float64, tmp_path)
    assert scratch.is_on_disk(large)
    large[7] = 1.5
    assert large.sum() == 4.5
    assert os.listdir(tmp_path) == []
    scaled = fit_scaling(np.arange(12.0).reshape(4, 3))
    beside = scaled(large, 120)
    assert scratch.is_on_disk(beside)
    assert beside.shape == (120, 3)
    np.testing.assert_array_equal(beside[:100], scaled(np.array(large)))
    assert os.listdir(tmp_path) == []


def test_types_are_joined_on_disk_too(small_machine, tmp_path):
    """Some rows in float32, some in float64."""

    def mixed(rng, theta):
        return np.full(2, theta[0], np.float32 if theta[0] < 0 else np.float64)

    path = tmp_path / "run.apt"
    method = apt.RejectionABC(accept=10)
    settings = {"method": method, "simulations": 100, "progress": False}
    apt.infer(mixed, apt.box([-1.0], [1.0]), [0.1, 0.1], file=path, **settings)
    rows = RunFileReader(path).simulations()
    single = rows.theta.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(rows.x, np.repeat(np.where(rows.theta < 0, single, rows.theta), 2, axis=1))


def test_a_full_disk_is_an_error_that_says_what_is_safe(monkeypatch, small_machine, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunFileError, match=r"scratch file of 2400 bytes cannot be made in .*Everything rec"):
        scratch.zeros((100, 3), np.float64, tmp_path)
    assert os.listdir(tmp_path) == []


def test_limits_of_the_process_count():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))\n"
        "from aptinfer import scratch; print(scratch.memory_of_this_process())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(found.stdout) == 2**30
    assert 2**20 < scratch.memory_of_this_process() < 2**50


def test_outcomes_in_memory_are_columns_and_read_like_those_that_came():
    rng = np.random.default_rng(0)
    store, n = MemoryStore(), 50
    draws = Draws(np.zeros((n, 1), np.float32), rng.standard_normal((n, 1)), np.zeros(n, np.int32))
    store.plan(0, lambda: draws)
    statuses = [(Status.DONE, Status.RAISED, Status.TIMEOUT)[i] for i in rng.integers(0, 3, n)]
    outcomes = [
        Outcome(i, np.full(2, float(i)), s, "", 0.5) if s is Status.DONE else Outcome(i, None, s, str(i), 0.5)
        for i, s in enumerate(statuses)
    ]
    came = [outcomes[i] for i in rng.permutation(n)[:40]]
    store.record(came[:7])
    store.record(came[7:])
    expected = Tally()
    for outcome in sorted(came):
        expected.add(outcome)
    assert store.tally(0) == expected
    rows, index = store.simulations(), np.array([outcome.index for outcome in came])
    waiting = np.setdiff1d(np.arange(n), index)
    again = store.plan(0, lambda: pytest.fail("drawn twice"))
    np.testing.assert_array_equal(again.index, waiting)
    np.testing.assert_array_equal(again.theta, draws.theta[waiting])
    done = np.isin(np.arange(n), index) & [status is Status.DONE for status in statuses]
    np.testing.assert_array_equal(rows.done, done)
    np.testing.assert_array_equal(rows.x, np.where(done, np.arange(n), 0.0)[:, None] * np.ones(2))
    assert store.failures() == tuple(o for o in sorted(came) if o.status is not Status.DONE)
