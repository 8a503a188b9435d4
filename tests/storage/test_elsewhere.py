"""Run files of simulations that ran in other processes: whatever the order of arrival, the same file."""

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from runs import SIMULATIONS, Interrupted, assert_same_bits, infer, interrupt, simulate

import aptinfer as apt
from aptinfer.protocols import Rows


class Shuffled(apt.Inline):
    """Simulations that begin and end in an order of their own."""

    def __call__(self, simulator, seed, rows):
        order = np.random.default_rng(len(rows.index)).permutation(len(rows.index))
        outcomes = list(super().__call__(simulator, seed, Rows(rows.index[order], rows.theta[order])))
        np.random.default_rng(1).shuffle(outcomes)
        yield from outcomes


def contents(path):
    """What must not depend on who simulated: parameters, and all arrays that rounds refer to."""
    with closing(sqlite3.connect(path)) as db:
        draws = db.execute("SELECT * FROM draws ORDER BY first").fetchall()
        arrays = db.execute("SELECT digest, data FROM arrays ORDER BY digest").fetchall()
    return draws, arrays


@pytest.mark.parametrize("executor", [apt.Processes(2), Shuffled()], ids=["Processes", "shuffled"])
def test_the_file_has_the_bits_of_inline(executor, plain, finished, tmp_path):
    path = tmp_path / "run.apt"
    with pytest.raises(Interrupted):
        infer(path, executor=executor, listen=interrupt("Simulated", 1))
    assert apt.open(path).simulations.done.sum() > SIMULATIONS
    assert_same_bits(plain, apt.resume(path, simulate, executor=executor, progress=False))
    assert_same_bits(plain, apt.open(path))
    assert contents(path) == contents(finished)


def slowly(rng, theta):
    time.sleep(0.05)
    return theta + 0.2 * rng.standard_normal(2)


def test_ctrl_c_while_processes_work(plain, tmp_path):
    path, pool = tmp_path / "run.apt", apt.Processes(2)

    def press_soon(event):
        if isinstance(event, apt.RoundStarted) and event.number == 1:
            threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.warns(UserWarning, match=r"interrupted in round 2.*apt\.resume\('.*run\.apt', simulator\)"):
        run = infer(path, simulator=slowly, executor=pool, listen=press_soon)
    assert len(run.rounds) == 1
    assert not pool._pool.workers
    assert run.simulations.done.sum() < 2 * SIMULATIONS
    assert_same_bits(plain, apt.resume(path, simulate, progress=False))
