"""Simulators behind one call: rows in, outcomes out, the row's number alone deciding its random numbers.

This module is imported by worker processes: it must not import JAX until a JAX simulator runs.
"""

import copy
import inspect
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from aptinfer.checks import numeric_array, positive_int, suggests_keywords
from aptinfer.errors import SimulationError
from aptinfer.precision import precise
from aptinfer.protocols import Outcome, Rows, Status

REASON_END = 5000  # characters that are kept of either end of a traceback
_GLOBAL_STATE = threading.RLock()  # NumPy's global generator is one for all threads


class BaseSimulator(ABC):
    """A user's function and how it is to be called.

    Attributes:
        chunk: rows simulated in one call. Chunks start at multiples of `chunk` in the run's numbering,
            so results do not depend on how executors group them.
        dtype: floating type in which the function gets theta.
        missing: whether NaN among the data is an entry that is missing; otherwise it is a failure.
    """

    chunk: int
    dtype: type = np.float64
    missing: bool = False

    def __init__(self, function: Callable):
        if not callable(function):
            raise TypeError(
                f"simulator must be a function f(rng, theta) or f(theta), or one of apt.JaxSimulator, "
                f"apt.BatchSimulator, apt.CommandSimulator; got {type(function).__name__}."
            )
        self.function = function

    @abstractmethod
    def one_by_one(self, seed: int, rows: Rows) -> Iterator[list[Outcome]]:
        """The outcomes, chunk by chunk, each simulated when it is asked for."""

    def __call__(self, seed: int, rows: Rows) -> list[Outcome]:
        return [outcome for outcomes in self.one_by_one(seed, rows) for outcome in outcomes]

    def prepare(self, rows: Rows) -> None:  # noqa: B027  # most have nothing to prepare
        """Do what is done once per process, such as compiling, so that no simulation is charged for it."""

    def named(self, names: tuple[str, ...]) -> "BaseSimulator":
        """The simulator, told how the parameters are called."""
        return self


class FunctionSimulator(BaseSimulator):
    """One draw per call: f(rng, theta), or f(theta) with NumPy's global generator seeded for each row."""

    chunk = 1

    def __init__(self, function: Callable):
        super().__init__(function)
        self.takes_rng = takes_two("simulator", function)

    def one_by_one(self, seed, rows):
        generators = RowGenerators(seed)
        for index, theta in zip(rows.index.tolist(), rows.theta, strict=True):
            yield [self._one(generators(index), index, theta)]

    def _one(self, rng, index, theta):
        started = time.perf_counter()
        try:
            x = _called(self, rng, theta.copy())
        except (Exception, SystemExit) as error:
            return failed(index, error, time.perf_counter() - started)
        return judged(index, x, time.perf_counter() - started, missing=self.missing)


@suggests_keywords
class BatchSimulator(BaseSimulator):
    """Many draws per call: f(rng, thetas) or f(thetas), thetas (rows, dim), returning x along a first axis.

    Args:
        function: the user's function. It must treat rows independently, and draw its random numbers in
            arrays with one entry per row, so that a row's numbers do not depend on other rows.
        chunk: rows per call. The last chunk is padded, so every call has this many.
    """

    def __init__(self, function: Callable, chunk: int = 100):
        super().__init__(function)
        self.chunk = positive_int("BatchSimulator chunk", chunk)
        self.takes_rng = takes_two("BatchSimulator function", function)

    def one_by_one(self, seed, rows):
        for part in in_chunks(rows, self.chunk):
            yield self._chunk(seed, part)

    def _chunk(self, seed, rows):
        slots, theta = padded(rows, self.chunk)
        rng = RowGenerators(seed)(int(rows.index[0]) // self.chunk * self.chunk)
        started = time.perf_counter()
        try:
            x = _called(self, rng, theta)
        except (Exception, SystemExit) as error:
            seconds = (time.perf_counter() - started) / len(rows.index)
            return [failed(int(i), error, seconds) for i in rows.index]
        seconds = (time.perf_counter() - started) / len(rows.index)
        if not isinstance(x, list | tuple):  # those may hold None for rows that failed
            x = np.asanyarray(x)
        came = x.shape if isinstance(x, np.ndarray) else (len(x),)
        if came[:1] != (self.chunk,):
            raise SimulationError(
                f"BatchSimulator's function got theta of shape {theta.shape} and must return x with "
                f"{self.chunk} rows along the first axis; it returned shape {came}."
            )
        pairs = zip(rows.index, slots, strict=True)
        return [judged(int(i), x[slot], seconds, missing=self.missing) for i, slot in pairs]


@suggests_keywords
class JaxSimulator(BaseSimulator):
    """A JAX function f(key, theta) of one draw, vectorised and compiled here.

    Args:
        function: f(key, theta) -> x, pure and traceable.
        chunk: rows per compiled call.
    """

    dtype = np.float32

    def __init__(self, function: Callable, chunk: int = 250):
        super().__init__(function)
        self.chunk = positive_int("JaxSimulator chunk", chunk)
        if not takes_two("JaxSimulator function", function):
            raise TypeError("JaxSimulator needs a function f(key, theta): JAX has no global random state.")
        self._compiled = None

    def __getstate__(self):
        return self.__dict__ | {"_compiled": None}  # another process compiles for itself

    def __call__(self, seed, rows):
        # All chunks are started before the first is waited for: they overlap.
        parts = [(part, *self._start(seed, part)) for part in in_chunks(rows, self.chunk)]
        outcomes, free = [], 0.0
        for part, slots, x, started in parts:
            outcomes += self._finish(part, slots, x, max(started, free))  # not the wait for those before it
            free = time.perf_counter()
        return outcomes

    def one_by_one(self, seed, rows):
        for part in in_chunks(rows, self.chunk):
            yield self._finish(part, *self._start(seed, part))

    def prepare(self, rows):
        first = Rows(rows.index[:1], rows.theta[:1])
        self._finish(first, *self._start(0, first))

    def _start(self, seed, rows):
        import jax

        from aptinfer.threefry import THREEFRY

        if self._compiled is None:

            def simulate(root, index, theta):
                keys = jax.vmap(lambda i: jax.random.fold_in(root, i))(index)
                return jax.vmap(self.function)(keys, theta)

            self._compiled = jax.jit(precise(simulate))
        slots, theta = padded(rows, self.chunk)
        first = int(rows.index[0]) // self.chunk * self.chunk
        index = np.arange(first, first + self.chunk, dtype=np.uint32)
        started = time.perf_counter()
        root = jax.random.key(seed, impl=THREEFRY)
        try:
            x = self._compiled(root, index, theta.astype(np.float32))
        except Exception as error:
            raise SimulationError(
                f"JAX cannot run JaxSimulator's function on theta of shape {theta.shape[1:]}: "
                f"{type(error).__name__}: {error}\nA function of NumPy can be given as it is, without "
                f"JaxSimulator."
            ) from error
        if not hasattr(x, "shape"):
            raise SimulationError(
                f"JaxSimulator's function must return one array; it returned {type(x).__name__}."
            )
        return slots, x, started

    def _finish(self, rows, slots, x, started):
        x = np.asarray(x)[slots]
        seconds = (time.perf_counter() - started) / len(rows.index)
        pairs = zip(rows.index, x, strict=True)
        return [judged(int(i), value, seconds, missing=self.missing) for i, value in pairs]


def as_simulator(simulator: object, *, missing: bool = False) -> BaseSimulator:
    """The simulator itself, or a user's plain function wrapped for one draw per call."""
    known = simulator if isinstance(simulator, BaseSimulator) else FunctionSimulator(simulator)  # pyright: ignore
    if missing:
        known = copy.copy(known)
        known.missing = True
    return known


def in_order(rows: Rows) -> Rows:
    """The rows in the order of their numbers."""
    order = np.argsort(rows.index, kind="stable")
    return Rows(rows.index[order], rows.theta[order])


def chunk_edges(index: np.ndarray, chunk: int) -> np.ndarray:
    """Where sorted row numbers are cut into chunks: the first entry is 0, the last one their count."""
    cuts = np.flatnonzero(np.diff(index // chunk)) + 1
    return np.concatenate([[0], cuts, [len(index)]]) if len(index) else np.zeros(1, int)


def in_chunks(rows: Rows, chunk: int) -> Iterator[Rows]:
    """The rows, cut where the run's numbering reaches a multiple of the chunk."""
    index, theta = in_order(rows)
    edges = chunk_edges(index, chunk)
    return (Rows(index[a:b], theta[a:b]) for a, b in pairwise(edges))


class RowGenerators:
    """The generators of rows: counter-based streams, so rows can be simulated in any order.

    One generator is given another key for each row, which costs a tenth of building a new one: use it up
    before the next row.
    """

    def __init__(self, seed: int):
        self._bits = np.random.Philox(key=np.array([seed, 0], np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._start = self._bits.state  # of a stream from which nothing has been drawn

    def __call__(self, index: int) -> np.random.Generator:
        self._start["state"]["key"][1] = index
        self._bits.state = self._start
        return self._generator


def padded(rows: Rows, chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows' places in their chunk, and theta of a whole chunk, gaps filled with a copy of a row."""
    slots = rows.index % chunk
    theta = np.repeat(rows.theta[:1], chunk, axis=0)
    theta[slots] = rows.theta
    return slots, theta


def failed(index: int, error: BaseException, seconds: float) -> Outcome:
    """An outcome from what a simulator raised."""
    status = Status.MEMORY if isinstance(error, MemoryError) else Status.RAISED
    reason = "".join(traceback.format_exception(error))
    if len(reason) > 2 * REASON_END:  # somebody's whole array, in words
        reason = f"{reason[:REASON_END]}\n[...]\n{reason[-REASON_END:]}"
    return Outcome(index, None, status, reason, seconds)


def judged(index: int, x: object, seconds: float, *, missing: bool = False) -> Outcome:
    """An outcome from what a simulator returned; with `missing`, some of its entries may be NaN."""
    if x is None:
        return Outcome(index, None, Status.INVALID, "returned None", seconds)
    if type(x) is np.ndarray and x.dtype.char in "fd":
        array = x  # what most simulators return needs no other look
    else:
        try:
            array = numeric_array("x", x)
        except TypeError:
            raise SimulationError(
                f"the simulator returned {type(x).__name__} {str(x)[:60]!r} for row {index}; it must return "
                f"numbers: an array (vector, series or image) or a scalar, or None for a failed simulation."
            ) from None
    if fault := _fault(array, missing):
        return Outcome(index, None, Status.INVALID, fault, seconds)
    # Images of float32 stay float32: float64 would double their memory for nothing.
    single = getattr(x, "dtype", None) == np.float32
    kept = np.array(array, np.float32 if single else np.float64, ndmin=1)
    return Outcome(index, kept, Status.DONE, "", seconds)


def _fault(x: np.ndarray, missing: bool) -> str:
    """Why these are no data; nothing if they are."""
    if x.size == 0:
        return f"returned an array without entries, of shape {x.shape}"
    if np.isfinite(x).all():
        return ""
    if not missing:
        return "returned NaN or infinity"
    if np.isinf(x).any():
        return "returned infinity"
    return "returned nothing but NaN" if np.isnan(x).all() else ""


def takes_two(what: str, function: Callable) -> bool:
    """Whether the function takes (rng, theta) rather than (theta)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # some built-in functions hide their signature: they take one argument
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    missing = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY and p.default is p.empty]
    if missing:
        raise TypeError(
            f"{what} must take (rng, theta) or (theta); {getattr(function, '__name__', function)!r} also "
            f"needs the keyword {missing[0]!r}. Fix it with functools.partial(function, {missing[0]}=...)."
        )
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return True
    if len(positional) not in (1, 2):
        raise TypeError(
            f"{what} must take (rng, theta) or (theta); {getattr(function, '__name__', function)!r} has "
            f"{len(positional)} required positional arguments."
        )
    return len(positional) == 2


def _called(simulator: "FunctionSimulator | BatchSimulator", rng: np.random.Generator, theta: np.ndarray):
    """f(rng, theta), or f(theta) with NumPy's global generator seeded for the call and then put back."""
    if simulator.takes_rng:
        return simulator.function(rng, theta)
    with _GLOBAL_STATE:
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(int(rng.integers(2**32, dtype=np.uint64)))  # noqa: NPY002
        try:
            return simulator.function(theta)
        finally:
            np.random.set_state(state)  # noqa: NPY002
