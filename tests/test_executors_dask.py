"""A real Dask cluster: workers are lost and join in the middle of a round; results are those of Inline."""

import contextlib
import os
import signal

import numpy as np
import pytest

import aptinfer as apt
import worker_models
from aptinfer.executors import as_executor
from aptinfer.protocols import Rows, Status
from aptinfer.simulators import as_simulator

distributed = pytest.importorskip("distributed")

# Dask's own processes leave sockets to the garbage collector when they are killed.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

SEED = 5


@pytest.fixture(scope="module")
def cluster():
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    yield cluster
    for _ in range(2):  # its watcher may stumble over a worker that was killed before it was listed
        with contextlib.suppress(KeyError):
            cluster.close()
    cluster.status = distributed.Status.closed  # or it complains in the middle of another test


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(3, timeout=60)
        yield client


def bits(outcomes):
    return {o.index: (o.status, None if o.x is None else o.x.tobytes()) for o in outcomes}


def rows(n):
    return Rows(np.arange(n), np.random.default_rng(0).uniform(0, 1, (n, 2)))


def test_a_worker_killed_and_one_joining_in_mid_round_change_nothing(cluster, client, tmp_path):
    some = rows(240)
    some.theta[:, 0], some.theta[:, 1] = np.arange(240), 0
    simulator = as_simulator(worker_models.Diary(tmp_path, seconds=0.02))
    outcomes = []

    def calls():
        found = sorted(os.scandir(tmp_path), key=lambda entry: entry.stat().st_mtime_ns)
        return [int(entry.name.split("-")[2]) for entry in found]

    for outcome in apt.Dask(client)(simulator, SEED, some):
        outcomes.append(outcome)
        if len(outcomes) == 60:
            os.kill(calls()[-1], signal.SIGKILL)  # the one that has just begun a simulation
            cluster.scale(4)
            client.wait_for_workers(4, timeout=60)
    seen = [outcome.index for outcome in outcomes]
    assert sorted(seen) == list(range(240)), "every row once"
    assert seen != sorted(seen), "they come as they arrive"
    assert len(set(calls())) >= 4, "some ran on workers that came later"
    expected = apt.Inline()(as_simulator(worker_models.noisy), SEED, some)
    assert bits(outcomes) == bits(expected)


def test_an_address_or_a_client_will_do(cluster, client):
    simulator, some = apt.BatchSimulator(worker_models.many, chunk=10), rows(57)
    inline = bits(apt.Inline()(simulator, SEED, some))
    assert bits(as_executor(client)(simulator, SEED, some)) == inline
    with apt.Dask(cluster.scheduler_address) as executor:
        assert bits(executor(simulator, SEED, some)) == inline
        assert bits(executor(simulator, SEED, some)) == inline
    assert client.status == "running", "the user's client stays open"


def test_a_guard_ends_what_hangs_or_crashes(client):
    theta = np.array([[0.5, 0], [0.01, 0], [0.06, 0], [0.11, 0], [0.9, 0]])
    outcomes = apt.Dask(client, timeout=0.5)(
        as_simulator(worker_models.misbehaving), SEED, Rows(np.arange(5), theta)
    )
    statuses = {o.index: o.status for o in outcomes}
    expected = [Status.DONE, Status.TIMEOUT, Status.CRASHED, Status.RAISED, Status.DONE]
    assert [statuses[i] for i in range(5)] == expected


class Cut(Exception):  # noqa: N818
    """Ends a run from a listener."""


@pytest.mark.parametrize(
    "method",
    [
        apt.SMCABC(particles=20),
        pytest.param(
            apt.APT(estimator=apt.MDN(2), trainer=apt.Trainer(epochs=20)), marks=pytest.mark.slow, id="APT"
        ),
    ],
)
def test_a_run_on_a_cluster_is_kept_as_one_here(client, tmp_path, method):
    settings = {"method": method, "rounds": 3, "simulations": 60, "progress": False}
    problem = worker_models.noisy, apt.box([0, 0], [1, 1]), [0.5, 0.5]
    plain, path = apt.infer(*problem, **settings), tmp_path / "run.apt"

    def cut(event):
        if isinstance(event, apt.Simulated) and event.number == 1:
            raise Cut

    with pytest.raises(Cut):
        apt.infer(*problem, file=path, executor=apt.Dask(client), listen=cut, **settings)
    for run in (
        apt.resume(path, worker_models.noisy, executor=apt.Dask(client), progress=False),
        apt.open(path),
    ):
        for a, b in zip(plain.simulations, run.simulations, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
        np.testing.assert_array_equal(plain.posterior.sample(50), run.posterior.sample(50))


@pytest.mark.slow
def test_same_bits_on_a_cluster(client):
    from test_executors import COMPILED, LIGHT

    for kind, make in (LIGHT | COMPILED).items():
        simulator, some = make(), rows(503)
        assert bits(apt.Dask(client)(simulator, SEED, some)) == bits(apt.Inline()(simulator, SEED, some)), (
            kind
        )


@pytest.mark.slow
def test_a_crash_without_a_guard_is_recorded_when_dask_gives_up(client):
    theta = np.full((6, 2), 0.5)
    theta[3, 0] = 0.06
    outcomes = apt.Dask(client)(as_simulator(worker_models.misbehaving), SEED, Rows(np.arange(6), theta))
    found = {o.index: o for o in outcomes}
    assert [i for i in range(6) if found[i].status is not Status.DONE] == [3]
    assert found[3].status is Status.CRASHED
    assert "Dask workers that ran this simulation were lost" in found[3].reason
