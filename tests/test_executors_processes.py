"""Worker processes: simulations that hang, crash, raise or eat memory; reuse; no orphans."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import aptinfer as apt
import worker_models
from aptinfer.errors import SimulationError
from aptinfer.executors.channel import IDLE
from aptinfer.executors.worker_process import WorkerProcess
from aptinfer.interrupts import noted_ctrl_c
from aptinfer.protocols import Rows, Status
from aptinfer.simulators import as_simulator

SEED = 5
EXPECTED = {
    0: (Status.TIMEOUT, r"still running after 0.\d+ s; timeout=0.4"),
    1: (Status.CRASHED, "was killed by SIGSEGV"),
    2: (Status.RAISED, "ValueError: no equilibrium"),
    3: (Status.INVALID, "returned NaN or infinity"),
}


@pytest.fixture(scope="module")
def pool():
    with apt.Processes(2) as pool:
        yield pool


def check_misbehaving(executor, n):
    """Every row once, each failure with its status and reason, the others with the bits of Inline."""
    theta = np.random.default_rng(2).uniform(0, 1, (n, 2))
    theta[:4, 0] = [0.01, 0.06, 0.11, 0.16]  # at least one of each
    some = Rows(np.arange(n), theta)
    outcomes = {o.index: o for o in executor(as_simulator(worker_models.misbehaving), SEED, some)}
    assert sorted(outcomes) == list(range(n))
    well = [i for i in range(n) if theta[i, 0] >= 0.2]
    inline = apt.Inline()(as_simulator(worker_models.misbehaving), SEED, Rows(some.index[well], theta[well]))
    for expected in inline:
        np.testing.assert_array_equal(outcomes[expected.index].x, expected.x, strict=True)
    for i in set(range(n)) - set(well):
        status, reason = EXPECTED[int(theta[i, 0] * 20)]
        assert outcomes[i].status is status
        assert re.search(reason, outcomes[i].reason)
        assert outcomes[i].x is None
    crash = outcomes[1].reason
    assert "in misbehaving" in crash, "the stack must lead to the user's line"
    assert "This was attempt 2 of 2." in crash
    return outcomes


def test_hanging_crashing_raising_and_nan_together():
    outcomes = check_misbehaving(apt.Processes(2, timeout=0.4), 40)
    assert 0.4 < outcomes[0].seconds < 10


@pytest.mark.slow
def test_hanging_crashing_raising_and_nan_together_at_length():
    check_misbehaving(apt.Processes(4, timeout=0.4), 1000)


def test_only_the_culprit_runs_again(tmp_path):
    # Longer than the time after which outcomes are sent: nothing that was finished is repeated.
    theta = np.stack([np.arange(12.0), np.zeros(12)], axis=1)
    theta[3, 1], theta[7, 1] = 1, 99  # crashes once; crashes always
    simulator, some = as_simulator(worker_models.Diary(tmp_path, seconds=0.03)), Rows(np.arange(12), theta)
    outcomes = {o.index: o for o in apt.Processes(1, retries=2)(simulator, SEED, some)}
    calls = Counter(int(name.split("-")[0]) for name in os.listdir(tmp_path))
    assert calls == dict.fromkeys(range(12), 1) | {3: 2, 7: 3}
    assert {i for i, o in outcomes.items() if o.status is not Status.DONE} == {7}
    assert outcomes[7].status is Status.CRASHED
    assert "killed by SIGKILL" in outcomes[7].reason
    expected = apt.Inline()(as_simulator(lambda rng, theta: theta + rng.standard_normal(2)), SEED, some)
    for one in expected:
        if one.index != 7:
            np.testing.assert_array_equal(outcomes[one.index].x, one.x)


def test_a_batch_that_hangs_fails_its_chunk_and_no_other():
    def function(rng, thetas):
        import time

        if thetas[0, 0] == 1:
            time.sleep(1000)
        return thetas

    theta = np.repeat([[0.0], [1.0], [0.0]], 4, axis=0)
    outcomes = apt.Processes(1, timeout=0.4)(
        apt.BatchSimulator(function, chunk=4), SEED, Rows(np.arange(12), theta)
    )
    statuses = {o.index: o.status for o in outcomes}
    assert [i for i in range(12) if statuses[i] is Status.TIMEOUT] == [4, 5, 6, 7]
    assert [i for i in range(12) if statuses[i] is Status.DONE] == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space")
def test_memory_has_a_limit():
    def hungry(rng, theta):
        return np.ones(int(theta[0])).sum()

    theta = np.array([[10.0], [3e8], [10.0]])
    outcomes = apt.Processes(1, memory=1e9)(as_simulator(hungry), SEED, Rows(np.arange(3), theta))
    found = {o.index: o for o in outcomes}
    assert [found[i].status for i in range(3)] == [Status.DONE, Status.MEMORY, Status.DONE]
    assert "MemoryError" in found[1].reason or "Unable to allocate" in found[1].reason


def test_sys_exit_in_a_simulator_is_a_failure(pool):
    def leaving(rng, theta):
        sys.exit("bad parameters")

    for executor in (apt.Inline(), pool):
        (outcome,) = executor(as_simulator(leaving), SEED, Rows(np.arange(1), np.zeros((1, 1))))
        assert outcome.status is Status.RAISED
        assert "SystemExit: bad parameters" in outcome.reason


def test_what_ends_a_run_in_this_process_ends_it_in_workers(pool):
    with pytest.raises(SimulationError, match=r"returned str 'abc' for row 0; it must return numbers"):
        list(pool(as_simulator(lambda rng, theta: "abc"), SEED, Rows(np.arange(1), np.zeros((1, 1)))))


def test_a_simulator_that_prints_and_reads_disturbs_nothing(pool, capfd):
    def talkative(rng, theta):
        print("hello from row", int(theta[0]))
        os.write(1, b"\x00raw\n")
        return [float(len(sys.stdin.read()))]

    outcomes = list(pool(as_simulator(talkative), SEED, Rows(np.arange(3), np.arange(3.0)[:, None])))
    assert [o.status for o in outcomes] == [Status.DONE] * 3
    captured = capfd.readouterr()
    assert "hello from row 2" in captured.err
    assert captured.out == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_a_simulator_that_comes_back_too_sends_nothing(pool):
    def forked(rng, theta):
        os.fork()
        return theta + rng.standard_normal(2)

    some = Rows(np.arange(30), np.zeros((30, 2)))
    outcomes = list(pool(as_simulator(forked), SEED, some))
    assert sorted(o.index for o in outcomes) == list(range(30)), "every row once"
    for one, other in zip(
        sorted(outcomes, key=lambda outcome: outcome.index),
        apt.Inline()(as_simulator(worker_models.noisy), SEED, some),
        strict=True,
    ):
        np.testing.assert_array_equal(one.x, other.x)


def test_a_simulator_that_tidies_up_the_temporary_folder_disturbs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def tidy(rng, theta):
        import shutil

        for name in os.listdir(tmp_path):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        if theta[0] == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        return theta

    some = Rows(np.arange(8), np.arange(8.0)[:, None])
    outcomes = apt.Processes(2, timeout=20)(as_simulator(tidy), SEED, some)
    assert [o.index for o in outcomes if o.status is not Status.DONE] == [3]


def test_of_an_endless_traceback_both_ends_are_kept(pool):
    def verbose(rng, theta):
        raise ValueError("x" * 1_000_000 + " at the end")

    for executor in (apt.Inline(), pool):
        (outcome,) = executor(as_simulator(verbose), SEED, Rows(np.arange(1), np.zeros((1, 1))))
        assert len(outcome.reason) < 11_000
        assert outcome.reason.startswith("Traceback")
        assert outcome.reason.endswith("at the end\n")


def pids(executor, n=8):
    def where(rng, theta):
        time.sleep(0.03)
        return [float(os.getpid())]

    outcomes = executor(as_simulator(where), SEED, Rows(np.arange(n), np.zeros((n, 1))))
    return {int(o.x[0]) for o in outcomes}


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    except OSError:
        if sys.platform.startswith("linux"):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_are_kept_within_the_block_and_end_with_it():
    pool = apt.Processes(2)
    assert not pool._pool.workers, "started before they are needed"
    with pool:
        pids(pool)
        first = {worker.process.pid for worker in pool._pool.workers}
        assert len(first) == 2
        assert pids(pool) <= first
        assert all(map(alive, first))
    assert not any(map(alive, first))
    again = pids(pool)  # without a block: for one call
    assert again.isdisjoint(first)
    assert not any(map(alive, again))


def test_a_worker_that_was_killed_between_two_calls_is_replaced():
    with apt.Processes(1) as pool:
        (first,) = pids(pool, 1)
        os.kill(first, signal.SIGKILL)
        assert pids(pool, 1) != {first}


def test_the_time_between_two_calls_is_nobodys():
    with apt.Processes(1, timeout=0.3) as pool:
        for _ in range(2):
            outcomes = pool(as_simulator(worker_models.noisy), SEED, Rows(np.arange(50), np.zeros((50, 2))))
            assert {o.status for o in outcomes} == {Status.DONE}
            (worker,) = pool._pool.workers
            assert worker.board.read()[1] == IDLE
            time.sleep(0.4)


def test_nothing_goes_on_when_nobody_wants_the_rest(pool):
    outcomes = pool(as_simulator(worker_models.noisy), SEED, Rows(np.arange(10_000), np.zeros((10_000, 2))))
    next(outcomes)
    running = [worker.process.pid for worker in pool._pool.workers]
    with pytest.raises(RuntimeError, match=r"already running simulations"):
        pids(pool)
    outcomes.close()
    assert not any(map(alive, running))
    assert pids(pool), "the pool is still good"


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


HEAD = """
    import os, subprocess, sys, time
    import numpy as np
    import aptinfer as apt
    from aptinfer.protocols import Rows
    from aptinfer.simulators import as_simulator
    print("main")
"""


def test_a_script_needs_no_guard_and_workers_load_no_jax(tmp_path):
    path = script(
        tmp_path,
        HEAD
        + """
    shift = 3.0
    def helper(theta):
        return theta + shift
    def look(rng, theta):
        main = sys.modules["__main__"]
        one_thread = os.environ["OMP_NUM_THREADS"] == "1"
        return [helper(theta)[0], "jax" in sys.modules, hasattr(main, "shift"), one_thread]
    rows = Rows(np.arange(4), np.zeros((4, 1)))
    for outcome in apt.Processes(2)(as_simulator(look), 0, rows):
        print(outcome.x, outcome.reason)
    for outcome in apt.Processes(1)(as_simulator(lambda theta: theta + shift), 0, rows):
        print(outcome.x)
    """,
    )
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["main"] + 4 * ["[3. 0. 0. 1.] "] + 4 * ["[3.]"]


SLEEPING = (
    HEAD
    + """
    folder, kind = sys.argv[1:]
    def function(rng, theta):
        child = subprocess.Popen(["sleep", "1000"])
        open(f"{folder}/{os.getpid()}-{child.pid}", "w").close()
        time.sleep(1000)
    if kind == "function":
        simulator = as_simulator(function)
    else:
        simulator = apt.CommandSimulator(["sh", "-c", f"echo > {folder}/$$-$PPID; sleep 1000; echo 1"])
    list(apt.Processes(2)(simulator, 0, Rows(np.arange(4), np.zeros((4, 1)))))
    """
)


@pytest.mark.parametrize(
    ("kind", "number"), [("function", signal.SIGINT), ("command", signal.SIGINT), ("command", signal.SIGKILL)]
)
def test_no_orphans_when_the_parent_is_interrupted_or_killed(tmp_path, kind, number):
    folder = tmp_path / "pids"
    temporary = tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, script(tmp_path, SLEEPING), folder, kind],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    until = time.monotonic() + 30
    while len(os.listdir(folder)) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    known = {int(pid) for name in os.listdir(folder) for pid in name.split("-")}
    assert len(os.listdir(folder)) == 2
    assert all(map(alive, known))
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode != 0
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    until = time.monotonic() + (
        0 if number == signal.SIGINT else 20
    )  # workers see by themselves that it is gone
    while any(map(alive, known)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, known))
    assert os.listdir(temporary) == [], "folders are removed"


def test_ctrl_c_waits_for_what_the_pool_is_doing(monkeypatch):
    """It may not strike where a lock has been taken: whoever ends the workers would wait for it for ever."""
    pool, watch, finished = apt.Processes(1), WorkerProcess.watch, []

    def pressed(worker):
        if worker.available and not finished:
            with worker.process._waitpid_lock:
                signal.raise_signal(signal.SIGINT)
            finished.append(worker.process)
        watch(worker)

    monkeypatch.setattr(WorkerProcess, "watch", pressed)
    rows = Rows(np.arange(40), np.zeros((40, 2)))
    slow = as_simulator(lambda rng, theta: time.sleep(0.1) or theta)
    outcomes = []
    with pytest.raises(KeyboardInterrupt):
        outcomes.extend(pool(slow, SEED, rows))
    assert len(finished) == 1, "struck while the lock was held"
    assert len(outcomes) < 40, "went on"
    assert not alive(finished[0].pid)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_ends_the_wait_for_a_message(monkeypatch):
    """Workers that simulate for long say nothing, and without a timeout they are looked at now and then."""
    monkeypatch.setattr("aptinfer.executors.pool.LOOK_EVERY", 50.0)
    pool, main = apt.Processes(1), threading.main_thread().ident or 0

    def press_when_busy():
        while not any(worker.busy for worker in list(pool._pool.workers)):
            time.sleep(0.02)
        time.sleep(0.5)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press_when_busy, daemon=True).start()
    endless, started = as_simulator(lambda rng, theta: time.sleep(1000)), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(pool(endless, SEED, Rows(np.arange(2), np.zeros((2, 1)))))
    assert time.monotonic() - started < 40
    assert not pool._pool.workers


def test_ctrl_c_pressed_twice_strikes_at_once():
    with noted_ctrl_c() as pressed:
        signal.raise_signal(signal.SIGINT)
        assert len(pressed) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_worker_that_cannot_load_the_simulator_says_why(tmp_path, monkeypatch):
    (tmp_path / "shortlived.py").write_text("def simulate(rng, theta):\n    return theta\n")
    monkeypatch.syspath_prepend(tmp_path)
    from shortlived import simulate  # pyright: ignore[reportMissingImports]

    (tmp_path / "shortlived.py").unlink()
    with pytest.raises(SimulationError, match=r"cannot load the simulator: ModuleNotFoundError.*shortlived"):
        list(apt.Processes(1)(as_simulator(simulate), SEED, Rows(np.arange(1), np.zeros((1, 1)))))


# Within a run


def infer(simulator, **settings):
    return apt.infer(simulator, apt.box([0, 0], [1, 1]), [0.5, 0.5], progress=False, **settings)


def test_too_many_failures_end_the_run_and_its_workers():
    pool = apt.Processes(2)
    with pytest.raises(
        SimulationError, match=r"(?s)(4\d|50) of the 200 .* \(\1 raised\), more than max_failed=0.2"
    ) as caught:
        infer(
            lambda rng, theta: [][0] if theta[0] < 0.5 else theta,
            simulations=200,
            max_failed=0.2,
            executor=pool,
        )
    assert "IndexError" in str(caught.value)
    assert not pool._pool.workers


@pytest.mark.parametrize("share", [-0.1, 1.5, "half", True])
def test_max_failed_is_a_share(share):
    with pytest.raises(ValueError, match="max_failed must be a share from 0 to 1"):
        infer(worker_models.noisy, max_failed=share)


@pytest.mark.slow
def test_a_run_with_trouble_equals_itself_and_tells_its_failures():
    method = apt.NPE(estimator=apt.MDN(components=1), trainer=apt.Trainer(epochs=5))
    runs = [
        infer(
            worker_models.misbehaving, simulations=200, method=method, executor=apt.Processes(n, timeout=0.4)
        )
        for n in (1, 3)
    ]
    one, two = runs
    for a, b in zip(one.simulations, two.simulations, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.posterior.sample(100), two.posterior.sample(100))
    kinds = np.floor(one.simulations.theta[:, 0] * 20).astype(int)
    assert [o.index for o in one.failures] == np.flatnonzero(kinds < 4).tolist()
    for kind, (status, _) in EXPECTED.items():
        assert one.rounds[0].notes.get(f"share_{status.value}", 0) == np.mean(kinds == kind)
