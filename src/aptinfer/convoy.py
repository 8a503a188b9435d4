"""Several runs in lock step: their trainings are one program, with runs as a `vmap` axis.

    run 1  simulate ─┐            ┌─ simulate ─┐
    run 2  simulate ─┼─ epochs of ┼─ simulate ─┼─ epochs of ...
    run 3  simulate ─┘   all runs └─ (goes on) ┘   all runs

Each run has a thread, and one at a time is awake, so that nothing in the library needs to know of the others.
A run that wants epochs of training rests; when all rest, the epochs that they want are run together. On a GPU
ten small networks take about as long as one. Where runs want epochs of different programs, such as those of
the families of a stack, the ones that have begun the fewest trainings go first: the others wait until they
are together again, instead of going on in as many programs as there are runs.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from aptinfer.epochs import Epoch, Limits, State, epochs_in_memory
from aptinfer.interrupts import noted_ctrl_c
from aptinfer.programs import compiled
from aptinfer.rows import TrainingRows

_HERE = threading.local()


def lane() -> "Lane | None":
    """The lane of the run that this thread belongs to, if it is one of several."""
    return getattr(_HERE, "lane", None)


def side_by_side(calls: Sequence[Callable[[], Any]], *, return_exceptions: bool = False) -> list[Any]:
    """Call functions that each do one run, such as one for each of ten seeds, and train all runs together.

    Runs whose trainings have the same shapes and settings share one program, in which they are a `vmap`
    axis; others take turns. What they compute is what the functions would compute one after another, but for
    the rounding of sums; hundreds of epochs amplify that, until weights are others, as good, as from another
    seed. On a GPU ten runs take about as long as one; on a CPU nothing is gained. Simulations are not run
    together: use JAX simulators, or an executor.

    Args:
        calls: functions without arguments, such as `lambda: apt.infer(..., seed=3)`.
        return_exceptions: return the error of a call that fails in the place of its result. Otherwise the
            first error is raised when all calls have ended.

    Returns:
        What the functions return, in their order.

    Example:
        >>> from functools import partial
        >>> run_of_seed = partial(apt.infer, simulator, prior, x_o)
        >>> runs = apt.side_by_side([partial(run_of_seed, seed=seed) for seed in range(10)])
    """
    if not isinstance(calls, Iterable):
        raise TypeError(f"side_by_side takes a list of functions, one for each run; got {calls!r}.")
    calls = list(calls)
    wrong = [call for call in calls if not callable(call)]
    if wrong:
        raise TypeError(
            f"side_by_side calls must be functions without arguments, such as lambda: apt.infer(...); got "
            f"{wrong[0]!r}."
        )
    if lane() is not None:
        raise RuntimeError("side_by_side is called by one of its own calls: give all runs to one of the two.")
    lanes = [Lane(number, len(calls), call) for number, call in enumerate(calls)]
    _take_turns(lanes)
    errors = [one.error for one in lanes if one.error is not None]
    if errors and not return_exceptions:
        raise errors[0]
    return [one.result if one.error is None else one.error for one in lanes]


class Wish(NamedTuple):
    """Epochs that a run wants. `fixed` are what they do not change: (words, rest, rows)."""

    epoch: Epoch
    fixed: tuple
    state: State
    epochs: int
    limits: Limits


class Lane:
    """A run and its thread, which is awake only while `proceed` waits for it."""

    def __init__(self, number: int, lanes: int, call: Callable[[], Any]):
        self.number, self.lanes = number, lanes
        self.result: Any = None
        self.error: BaseException | None = None
        self.wish: Wish | None = None
        self.trainings = 0  # that it has begun
        self.ended = False
        self.interrupt: BaseException | None = None  # to be raised where the run rests
        self._call, self._granted = call, None
        self._awake, self._resting = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"run {number}", daemon=True)
        self._thread.start()

    def proceed(self, granted: Any = None) -> None:
        """Let the run go on with what it wished for, until it rests or ends."""
        self.wish, self._granted = None, granted
        self._awake.release()
        self._resting.acquire()

    def rest(self, wish: Wish) -> Any:
        """In the run's own thread: wait for what it wishes for."""
        self.wish = wish
        self._resting.release()
        self._awake.acquire()
        if self.interrupt is not None:
            error, self.interrupt = self.interrupt, None
            raise error
        return self._granted

    def _run(self) -> None:
        self._awake.acquire()
        _HERE.lane = self
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._resting.release()


class InLane:
    """Epochs of rows that lie on the device, together with those of other runs; see `InMemory`."""

    def __init__(self, lane: Lane, epoch: Epoch, words, rest, rows: TrainingRows):
        self._lane, self._epoch, self._fixed = lane, epoch, (words, rest, rows)
        self.compile_seconds = 0.0
        lane.trainings += 1

    def __call__(self, state: State, epochs: int, limits: Limits):
        """The state after at most so many epochs, their losses, and whether training has ended."""
        granted, seconds = self._lane.rest(Wish(self._epoch, self._fixed, state, epochs, limits))
        self.compile_seconds += seconds
        return granted


def _take_turns(lanes: list[Lane]) -> None:
    """Until every run has ended: let them go on until all rest, then grant some of them what they wish for.

    What goes wrong with that, or Ctrl-C, is raised in every run where it rests.
    """
    programs: dict[Any, Program] = {}
    awake: dict[Lane, Any] = dict.fromkeys(lanes)  # runs that may go on, and what they were granted
    with noted_ctrl_c() as pressed:  # as an error it would strike between two runs
        while awake:
            for one, granted in awake.items():
                one.proceed(granted)
            resting = [one for one in lanes if one.wish is not None]
            if pressed:
                _interrupt(resting, pressed[0])
            try:
                awake = _grant([one for one in resting if one.interrupt is None], programs)
            except BaseException as error:
                _interrupt(resting, error)
                awake = {}
            awake |= {one: None for one in resting if one.interrupt is not None}


def _interrupt(resting: list[Lane], error: BaseException) -> None:
    for one in resting:
        one.interrupt = error


def _grant(resting: list[Lane], programs: dict[Any, "Program"]) -> dict[Lane, Any]:
    """What runs wish for, of those whose program somebody wishes for who is furthest behind."""
    groups: dict[Any, list[Lane]] = {}
    for one in resting:
        groups.setdefault(_signature(one.wish), []).append(one)
    for forgotten in set(programs) - set(groups):
        del programs[forgotten]  # and the rows that it holds on the device
    fewest = min((one.trainings for one in resting), default=0)
    granted = {}
    for signature, group in groups.items():
        if min(one.trainings for one in group) > fewest:
            continue
        if signature not in programs:
            programs[signature] = Program(group[0])
        granted |= programs[signature](group)
    return granted


def _signature(wish: Wish | None) -> Any:
    """Equal for wishes that one program can grant."""
    assert wish is not None
    leaves, structure = jax.tree.flatten((wish.fixed, wish.state))
    return (
        wish.epoch,
        structure,
        tuple((a.shape, np.dtype(a.dtype)) if _is_array(a) else a for a in leaves),
    )


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype")


class Program:
    """The epochs of all runs that share it: arrays of every run in a place of its own along a first axis."""

    def __init__(self, first: Lane):
        wish = first.wish
        assert wish is not None
        self._lanes, self._epoch = first.lanes, wish.epoch
        arrays, self._static = eqx.partition(wish.fixed, _is_array)
        spread = lambda a: jnp.broadcast_to(jnp.asarray(a), (first.lanes, *np.shape(a)))  # noqa: E731
        self._fixed, self._state = jax.tree.map(spread, (arrays, wish.state))
        self._held: dict[int, tuple[Any, Any]] = {}  # what of each run is in its place: rows and last state

    def __call__(self, group: list[Lane]) -> dict[Lane, Any]:
        for one in group:
            self._place(one)
        epochs, most = np.zeros((2, self._lanes), np.int32)  # runs without a wish: no epochs
        patience, drops = np.zeros(self._lanes, np.float32), np.zeros(self._lanes, np.int32)
        for one in group:
            assert one.wish is not None
            epochs[one.number] = one.wish.epochs
            patience[one.number], drops[one.number], most[one.number] = one.wish.limits
        limits: Any = Limits(patience, drops, most)  # pyright: ignore[reportArgumentType]
        arguments = (
            eqx.combine(self._fixed, self._static),
            self._state,
            epochs,
            limits,
        )
        program, seconds = compiled("side by side", self._together, self._epoch, *arguments)
        self._state, losses, done = program(*arguments)
        answers = {}
        for one in group:
            answer = _taken((self._state, losses, done), one.number)
            self._held[one.number] = (self._held[one.number][0], answer[0])
            answers[one] = (answer, seconds / len(group))
        return answers

    def _together(self, fixed, state, epochs, limits):
        arrays, static = eqx.partition(fixed, _is_array)

        def run(arrays, state, epochs, limits):
            words, rest, rows = eqx.combine(arrays, static)
            return epochs_in_memory(self._epoch, words, state, rest, rows, epochs, limits)

        return jax.vmap(run)(arrays, state, epochs, limits)

    def _place(self, one: Lane) -> None:
        """Bring what a run wishes to train with into its place, unless it is there already."""
        wish = one.wish
        assert wish is not None
        fixed, state = self._held.get(one.number, (None, None))
        if fixed is not wish.fixed:
            arrays, _ = eqx.partition(wish.fixed, _is_array)
            self._fixed = _replaced(self._fixed, arrays, one.number)
        if state is not wish.state:
            self._state = _replaced(self._state, wish.state, one.number)
        self._held[one.number] = (wish.fixed, wish.state)


@partial(jax.jit, donate_argnums=0)
def _replaced(everyone, new, number):
    """Arrays of all runs, with those of run `number` replaced."""
    return jax.tree.map(lambda a, b: a.at[number].set(b), everyone, new)


@jax.jit
def _taken(everyone, number):
    """The arrays of run `number`."""
    return jax.tree.map(lambda a: a[number], everyone)
