"""Executors: the same bits wherever simulations run, every row once, and what travels between processes."""

import concurrent.futures
import hashlib
import multiprocessing
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
import worker_models
from aptinfer.blas import one_thread
from aptinfer.errors import SimulationError
from aptinfer.executors import Futures, as_executor, luggage, packing
from aptinfer.executors.work import TARGET_SECONDS, Work
from aptinfer.protocols import Outcome, Rows, Status
from aptinfer.simulators import as_simulator

SEED = 5


def rows(n=57, first=0):
    return Rows(np.arange(first, first + n), np.random.default_rng(0).uniform(0, 1, (n, 2)))


def bits(outcomes):
    """Everything that must be equal, by row; seconds are no part of it."""
    return {
        o.index: (o.status, None if o.x is None else (o.x.dtype, o.x.shape, o.x.tobytes())) for o in outcomes
    }


def shuffled(some):
    order = np.random.default_rng(1).permutation(len(some.index))
    return Rows(some.index[order], some.theta[order])


def reductions(chunk=10):
    def simulate(key, theta):
        noise = jax.random.normal(key, (300, 30))
        products = jnp.tanh(noise @ noise.T)
        return jnp.stack([products.sum(), jax.nn.logsumexp(products)]) * theta

    return apt.JaxSimulator(simulate, chunk)


def jax_gammas():
    return apt.JaxSimulator(lambda key, theta: jax.random.gamma(key, theta + 0.1, (5, 2)).sum(0), chunk=10)


LIGHT = {
    "f(rng, theta)": lambda: as_simulator(worker_models.noisy),
    "f(theta)": lambda: as_simulator(worker_models.with_global_state),
    "gamma": lambda: as_simulator(worker_models.gammas),
    "BLAS": lambda: as_simulator(worker_models.linear_algebra),
    "lambda": lambda: as_simulator(lambda rng, theta: theta * rng.uniform()),
    "batch": lambda: apt.BatchSimulator(worker_models.many, chunk=10),
}
COMPILED = {"reductions": reductions, "JAX gamma": jax_gammas}


@pytest.fixture(scope="module")
def pool():
    with apt.Processes(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def threads():
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        yield Futures(threads)


@pytest.mark.parametrize("kind", LIGHT)
@pytest.mark.parametrize("where", ["pool", "threads"])
def test_same_bits_wherever_a_simulation_runs(request, where, kind):
    simulator, some = LIGHT[kind](), rows(57, first=3)  # chunks of 10: cut off at both ends
    outcomes = list(request.getfixturevalue(where)(simulator, SEED, shuffled(some)))
    assert sorted(o.index for o in outcomes) == list(range(3, 60))
    assert bits(outcomes) == bits(apt.Inline()(simulator, SEED, some))


def test_same_bits_of_a_compiled_simulator(pool, threads):
    simulator, some = reductions(), rows(37, first=3)
    inline = bits(apt.Inline()(simulator, SEED, some))
    assert bits(pool(simulator, SEED, shuffled(some))) == inline
    assert bits(threads(simulator, SEED, some)) == inline
    again = luggage.unpacked(luggage.packed(simulator))  # what was compiled stays behind
    assert again._compiled is None  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def other_settings():
    before = jax.config.jax_default_prng_impl, jax.config.jax_enable_x64  # pyright: ignore
    jax.config.update("jax_default_prng_impl", "rbg")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_default_prng_impl", before[0])
    jax.config.update("jax_enable_x64", before[1])


def test_workers_follow_the_settings_of_jax(pool, other_settings):
    def simulate(key, theta):
        return theta + jax.random.normal(key, (2,)) + jax.random.normal(jax.random.key(0), (2,))

    some = rows(13)
    simulator = apt.JaxSimulator(simulate, chunk=10)
    assert bits(pool(simulator, SEED, some)) == bits(apt.Inline()(simulator, SEED, some))


def test_the_default_generator_of_jax_does_not_change_a_row(other_settings):
    function, some = lambda key, theta: theta + jax.random.normal(key, (2,)), rows(13)
    with_rbg = [o.x for o in apt.JaxSimulator(function, chunk=10)(SEED, some)]
    jax.config.update("jax_default_prng_impl", "threefry2x32")
    without = [o.x for o in apt.JaxSimulator(function, chunk=10)(SEED, some)]
    np.testing.assert_array_equal(with_rbg, without)


SCRIPT = """
import hashlib, sys
sys.path.insert(0, {tests!r})
import worker_models, numpy as np, aptinfer as apt
from aptinfer.protocols import Rows
from aptinfer.simulators import as_simulator
some = Rows(np.arange(4), np.zeros((4, 2)))
for executor in (apt.Inline(), apt.Processes(1)):
    outcomes = executor(as_simulator(worker_models.linear_algebra), 5, some)
    found = sorted((o.index, o.x.tobytes()) for o in outcomes)
    print(hashlib.sha256(repr(found).encode()).hexdigest())
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_the_users_number_of_blas_threads(threads):
    script = SCRIPT.format(tests=os.path.dirname(__file__))
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    some = Rows(np.arange(4), np.zeros((4, 2)))
    found = sorted(
        (o.index, o.x.tobytes())
        for o in apt.Inline()(as_simulator(worker_models.linear_algebra), 5, some)
        if o.x is not None
    )
    assert set(done.stdout.split()) == {hashlib.sha256(repr(found).encode()).hexdigest()}


def test_one_thread_holds_until_the_last_leaves():
    from threadpoolctl import threadpool_info

    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before = threads()
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    assert threads() == {1}
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == before


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 4])
def test_same_bits_with_any_number_of_processes(n):
    with apt.Processes(n) as pool:
        for kind, make in (LIGHT | COMPILED).items():
            simulator, some = make(), rows(503, first=7)
            found = bits(pool(simulator, SEED, shuffled(some)))
            assert found == bits(apt.Inline()(simulator, SEED, some)), kind


def test_a_process_pool_of_the_standard_library_is_adapted():
    context = multiprocessing.get_context("spawn")
    simulator, some = LIGHT["lambda"](), rows(20)
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as processes:
        executor = as_executor(processes)
        assert bits(executor(simulator, SEED, some)) == bits(apt.Inline()(simulator, SEED, some))
        crash = as_simulator(worker_models.misbehaving)
        with pytest.raises(SimulationError, match=r"ProcessPoolExecutor died.*apt.Processes\(\) survives"):
            list(executor(crash, SEED, Rows(np.arange(1), np.array([[0.07, 0.0]]))))


def test_a_pool_of_the_user_stays_open_when_nobody_wants_the_rest():
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        outcomes = Futures(threads)(as_simulator(worker_models.noisy), SEED, rows(200))
        next(outcomes)
        outcomes.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert threads.submit(lambda: 3).result() == 3


# What travels


def test_outcomes_survive_the_journey():
    outcomes = [
        Outcome(3, np.arange(2.0), Status.DONE, "", 0.5),
        Outcome(1, None, Status.RAISED, "ValueError: no", 0.25),
        Outcome(7, np.ones(2), Status.DONE, "", 0.0),
        Outcome(8, None, Status.TIMEOUT, "late", 9.0),
    ]
    differing = [*outcomes, Outcome(9, np.ones((2, 2), np.float32), Status.DONE, "", 0.0)]
    for some in (outcomes, differing, outcomes[1:2]):
        back = packing.unpacked(packing.packed(some))
        assert bits(back) == bits(some)
        assert [(o.index, o.reason, o.seconds) for o in back] == [
            (o.index, o.reason, o.seconds) for o in some
        ]


def test_what_cannot_travel_is_refused_with_advice(pool):
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be sent to worker processes: .*lock.*ThreadPoolExecutor"):
        list(pool(as_simulator(lambda rng, theta: lock and theta), SEED, rows(2)))


# How work is handed out


@pytest.mark.parametrize(("n", "chunk", "takers"), [(1, 1, 1), (1000, 1, 3), (1003, 10, 4), (5, 250, 2)])
def test_every_chunk_is_handed_out_once_and_never_cut(n, chunk, takers):
    work, handed = Work(shuffled(rows(n, first=4)), chunk), []
    while (chunks := work.take(takers)) is not None:
        handed.append(work.rows(chunks).index)
        work.done(len(chunks), 0.001 * len(chunks))
    assert work.unfinished == 0
    np.testing.assert_array_equal(np.concatenate(handed), np.arange(4, n + 4))
    assert all(part[0] % chunk == 0 for part in handed[1:])


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 0.5])
def test_tasks_take_about_as_long_whatever_a_simulation_takes(seconds):
    work, sizes = Work(rows(100_000), 1), []
    for _ in range(30):
        sizes.append(len(work.take(2) or ()))
        work.done(sizes[-1], seconds * sizes[-1])
    assert sizes[0] == 1, "a mistake shows before more is spent"
    assert max(sizes) * seconds <= max(TARGET_SECONDS, seconds) * 1.01
    if seconds * 100_000 > 100 * TARGET_SECONDS:
        assert sizes[-1] * seconds == pytest.approx(max(TARGET_SECONDS, seconds), rel=0.05)


def test_what_comes_back_unfinished_goes_first():
    work = Work(rows(10), 1)
    assert work.take(1) == range(1)
    work.put_back(range(1))
    assert work.take(1) == range(1)
    assert work.take(1) == range(1, 2)


# The door


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: apt.Processes(0), r"Processes n must be a whole number of at least 1, got 0"),
        (lambda: apt.Processes(timeout=-1), "Processes timeout must be a finite number above 0"),
        (lambda: apt.Processes(retries=-1), "Processes retries must be a whole number of at least 0"),
        (lambda: apt.Processes(memory=0), "Processes memory must be a finite number above 0"),
        (lambda: apt.Processes(timout=3), "unknown argument 'timout'. Did you mean 'timeout'"),  # pyright: ignore
        (lambda: apt.Dask(8786), r"Dask client must be .*'tcp://node1:8786'; got 8786"),
        (lambda: apt.Dask("tcp://a:1", retries=1.5), "Dask retries must be a whole number"),  # pyright: ignore
    ],
)
def test_settings_are_checked(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
