"""Simulators: what is accepted, what becomes of failures, and the same bits however rows are grouped."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.errors import SimulationError
from aptinfer.protocols import Rows, Status
from aptinfer.simulators import FunctionSimulator, as_simulator
from aptinfer.store import MemoryStore

SEED = 7


def with_rng(rng, theta):
    return theta + rng.standard_normal(2)


def with_global(theta):
    return theta + np.random.standard_normal(2)  # noqa: NPY002


def batch_with_rng(rng, thetas):
    return thetas + rng.standard_normal((len(thetas), 2))


def batch_with_global(thetas):
    return thetas + np.random.standard_normal((len(thetas), 2))  # noqa: NPY002


def with_key(key, theta):
    return theta + jax.random.normal(key, (2,))


SIMULATORS = {
    "f(rng, theta)": lambda: as_simulator(with_rng),
    "f(theta)": lambda: as_simulator(with_global),
    "BatchSimulator(rng, thetas)": lambda: apt.BatchSimulator(batch_with_rng, chunk=10),
    "BatchSimulator(thetas)": lambda: apt.BatchSimulator(batch_with_global, chunk=10),
    "JaxSimulator": lambda: apt.JaxSimulator(with_key, chunk=10),
}


@pytest.fixture(scope="module", params=SIMULATORS)
def simulator(request):
    return SIMULATORS[request.param]()


def rows(*index):
    """Rows of a run of 57, whose theta depend on their number only."""
    theta = np.random.default_rng(0).uniform(-1, 1, (57, 2)).astype(np.float32).astype(np.float64)
    index = np.concatenate([np.atleast_1d(i) for i in index])
    return Rows(index, theta[index])


def outputs(outcomes):
    return {outcome.index: outcome.x for outcome in outcomes}


def assert_same(some, whole):
    for index, x in some.items():
        np.testing.assert_array_equal(x, whole[index], strict=True)


GROUPINGS = {
    "from the middle of a chunk": [rows(range(23, 57))],
    "one by one": [rows(i) for i in range(57)],
    "split off the chunks' edges": [rows(range(7)), rows(range(7, 31)), rows(range(31, 57))],
    "backwards": [rows(np.arange(57)[::-1])],
    "shuffled": [rows(np.random.default_rng(1).permutation(57))],
    "every third": [rows(np.arange(0, 57, 3))],
}


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_grouping_never_changes_a_bit(simulator, grouping):
    whole = outputs(simulator(SEED, rows(range(57))))
    parts = GROUPINGS[grouping]
    some = outputs(outcome for part in parts for outcome in simulator(SEED, part))
    assert sorted(some) == sorted(np.concatenate([part.index for part in parts]))
    assert_same(some, whole)


def test_inline_gives_every_row_once_and_the_same_bits(simulator):
    run = list(apt.Inline()(simulator, SEED, rows(range(5, 57))))
    assert sorted(outcome.index for outcome in run) == list(range(5, 57))
    assert all(outcome.status is Status.DONE and outcome.seconds >= 0 for outcome in run)
    assert_same(outputs(run), outputs(simulator(SEED, rows(range(57)))))


def test_chunks_that_overlap_do_not_count_each_others_seconds():
    def slow(key, theta):
        return jax.lax.fori_loop(0, 100_000, lambda _, x: jnp.sin(x), theta)

    simulator = apt.JaxSimulator(slow, chunk=1)
    simulator(SEED, rows(range(1)))  # compiles
    started = time.perf_counter()
    outcomes = simulator(SEED, rows(range(20)))
    assert sum(outcome.seconds for outcome in outcomes) <= time.perf_counter() - started


def test_seeds_and_rows_have_their_own_random_numbers(simulator):
    some = rows(range(57))
    noise = np.stack(list(outputs(simulator(SEED, some)).values())) - some.theta
    other = np.stack(list(outputs(simulator(SEED + 1, some)).values())) - some.theta
    assert len(np.unique(noise.round(6))) == noise.size
    assert np.abs(noise - other).min() > 0
    assert abs(noise.mean()) < 5 / np.sqrt(noise.size)


@pytest.mark.parametrize("kind", ["f(theta)", "BatchSimulator(thetas)"])
def test_numpy_global_state_is_put_back(kind):
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.standard_normal(4)  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    SIMULATORS[kind]()(SEED, rows(range(5)))
    np.testing.assert_array_equal(np.random.standard_normal(4), expected)  # noqa: NPY002


def test_numpy_global_state_is_put_back_after_an_exception():
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # pyright: ignore
    (outcome,) = as_simulator(lambda theta: 1 / 0)(SEED, rows(0))
    assert outcome.status is Status.RAISED
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002  # pyright: ignore


def test_a_simulator_that_writes_into_theta_does_not_change_ours():
    some = rows(range(20))
    before = some.theta.copy()

    def greedy(rng, theta):
        theta *= 0
        return theta

    as_simulator(greedy)(SEED, some)
    apt.BatchSimulator(greedy, chunk=10)(SEED, some)
    np.testing.assert_array_equal(some.theta, before)


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (1.5, (1,)),
        (np.float32(1.5), (1,)),
        (3, (1,)),
        (True, (1,)),
        ([1, 2, 3], (3,)),
        (np.ones((20, 2)), (20, 2)),
        (np.ones((1, 8, 8), np.float32), (1, 8, 8)),
        (jnp.ones(4), (4,)),
    ],
)
def test_scalars_vectors_series_and_images(x, shape):
    (alone,) = as_simulator(lambda rng, theta: x)(SEED, rows(0))
    (of_many,) = apt.BatchSimulator(lambda rng, thetas: np.stack([x] * len(thetas)), chunk=4)(SEED, rows(0))
    (compiled,) = apt.JaxSimulator(lambda key, theta: jnp.asarray(x), chunk=4)(SEED, rows(0))
    for outcome in (alone, of_many, compiled):
        assert outcome.status is Status.DONE
        assert outcome.x is not None
        assert outcome.x.shape == shape
        assert outcome.x.dtype in (np.float32, np.float64)


def test_images_of_float32_stay_float32_and_types_do_not_depend_on_the_order_of_arrival():
    single, double = np.ones(2, np.float32), np.array([1.0, 1 + 1e-12])
    first, second = as_simulator(lambda theta: single if theta[0] < 0 else double)(
        SEED, Rows(np.arange(2), np.array([[-1.0], [1.0]]))
    )
    assert first.x is not None
    assert first.x.dtype == np.float32
    for order in [(first, second), (second, first)]:
        store = MemoryStore()
        store.plan(0, lambda: _draws(2))
        store.record(order)
        assert store.simulations().x[1, 1] == 1 + 1e-12


def _draws(n):
    from aptinfer.protocols import Draws

    return Draws(np.zeros((n, 1)), np.zeros((n, 1)), np.zeros(n, np.int32))


class Object:
    def __init__(self, shift):
        self.shift = shift

    def __call__(self, rng, theta):
        return theta + self.shift

    def method(self, theta):
        return theta + self.shift


ACCEPTED = {
    "callable object": Object(1.0),
    "bound method": Object(1.0).method,
    "partial": functools.partial(lambda rng, theta, shift: theta + shift, shift=1.0),
    "positional partial": functools.partial(lambda shift, rng, theta: theta + shift, 1.0),
    "default arguments": lambda theta, shift=1.0: theta + shift,
    "keyword with default": lambda rng, theta, *, shift=1.0: theta + shift,
    "star arguments": lambda *arguments: arguments[1] + 1.0,
    "jitted": jax.jit(lambda theta: theta + 1.0),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_anything_callable_is_accepted(kind):
    some = rows(range(3))
    outcomes = as_simulator(ACCEPTED[kind])(SEED, some)
    np.testing.assert_allclose(np.array([o.x for o in outcomes]), some.theta + 1.0, rtol=1e-6)


@pytest.mark.parametrize("function", [np.sin, np.sum, np.mean, sum, max])
def test_builtins_and_ufuncs_are_accepted(function):
    some = rows(range(3))
    outcomes = as_simulator(function)(SEED, some)
    assert [o.status for o in outcomes] == [Status.DONE] * 3
    np.testing.assert_array_equal(outcomes[1].x, np.atleast_1d(function(some.theta[1])))


def test_a_simulator_is_left_as_it_is():
    simulator = apt.JaxSimulator(with_key)
    assert as_simulator(simulator) is simulator
    assert isinstance(as_simulator(with_rng), FunctionSimulator)


def failing(rng, theta):
    if theta[0] > 0.5:
        raise ValueError("no equilibrium")
    if theta[0] < -0.5:
        return np.array([np.nan, 0.0])
    if theta[1] > 0.5:
        return None
    return theta if theta[1] > -0.5 else np.array([np.inf, 0.0])


EXPECTED = [
    (Status.DONE, ""),
    (Status.RAISED, "ValueError: no equilibrium"),
    (Status.INVALID, "returned NaN or infinity"),
    (Status.INVALID, "returned None"),
    (Status.INVALID, "returned NaN or infinity"),
]
TROUBLE = Rows(np.arange(5), np.array([[0, 0], [0.9, 0], [-0.9, 0], [0, 0.9], [0, -0.9]], float))


def test_failures_have_a_status_and_a_reason():
    outcomes = as_simulator(failing)(SEED, TROUBLE)
    for outcome, (status, reason) in zip(outcomes, EXPECTED, strict=True):
        assert outcome.status is status
        assert reason in outcome.reason
        assert (outcome.x is None) == (status is not Status.DONE)
    assert "in failing" in outcomes[1].reason, "the traceback must lead to the user's line"


def test_failures_in_a_batch():
    def function(rng, thetas):
        return [None if t[0] > 0.5 else np.full(2, np.nan) if t[1] > 0.5 else t for t in thetas]

    outcomes = apt.BatchSimulator(function, chunk=5)(SEED, TROUBLE)
    assert [o.reason for o in outcomes] == ["", "returned None", "", "returned NaN or infinity", ""]


def test_a_batch_that_raises_fails_all_its_rows_and_no_others():
    def function(thetas):
        if (thetas[:, 0] > 0.5).any():
            raise ArithmeticError("overflow in the batch")
        return thetas

    some = Rows(np.arange(6), np.array([[0.9, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]))
    outcomes = apt.BatchSimulator(function, chunk=3)(SEED, some)
    assert [o.status for o in outcomes] == [Status.RAISED] * 3 + [Status.DONE] * 3
    assert "overflow in the batch" in outcomes[0].reason


def test_nan_rows_of_a_jax_simulator_fail_alone():
    simulator = apt.JaxSimulator(lambda key, theta: jnp.log(theta), chunk=4)
    outcomes = simulator(SEED, Rows(np.arange(3), np.array([[1.0, 1.0], [-1.0, 1.0], [2.0, 2.0]])))
    assert [o.status for o in outcomes] == [Status.DONE, Status.INVALID, Status.DONE]


def test_masked_entries_are_not_data():
    masked = np.ma.MaskedArray([1.0, 2.0], mask=[False, True])
    (outcome,) = as_simulator(lambda theta: masked)(SEED, rows(0))
    assert outcome.status is Status.INVALID


@pytest.mark.parametrize(
    "x", ["text", {"a": 1.0}, [1.0, [2.0, 3.0]], object(), 1 + 2j, [1.0, "a"], [None, 1.0]]
)
def test_what_is_not_numbers_stops_the_run(x):
    with pytest.raises(SimulationError, match=r"simulator returned .* for row 0; it must return numbers"):
        as_simulator(lambda theta: x)(SEED, rows(0))
    with pytest.raises(SimulationError, match=r"simulator returned .* for row 0; it must return numbers"):
        apt.BatchSimulator(lambda thetas: [x] * len(thetas), chunk=2)(SEED, rows(0))


@pytest.mark.parametrize("x", [1.0, np.zeros(3), np.zeros((9, 2)), [1.0], (np.zeros((10, 2)), "aux")])
def test_a_batch_of_another_length_is_refused(x):
    with pytest.raises(SimulationError, match=r"theta of shape \(10, 2\) and must return x with 10 rows"):
        apt.BatchSimulator(lambda thetas: x, chunk=10)(SEED, rows(range(4)))


def test_jax_mistakes_are_explained():
    with pytest.raises(
        SimulationError, match=r"(?s)JAX cannot run .*shape \(2,\).*without JaxSimulator"
    ) as caught:
        apt.JaxSimulator(lambda key, theta: 1.0 if theta[0] > 0 else 0.0)(SEED, rows(0))
    assert caught.value.__cause__ is not None
    with pytest.raises(SimulationError, match="must return one array; it returned dict"):
        apt.JaxSimulator(lambda key, theta: {"x": theta})(SEED, rows(0))
    with pytest.raises(TypeError, match=r"f\(key, theta\)"):
        apt.JaxSimulator(lambda theta: theta)
