"""Worker processes on this machine.

Why a pool of our own. A simulator of 0.1 ms needs many rows per task, one that hangs a timeout per row, and
one that crashes must not take the rows before it along: outcomes have to come back while a task runs, and the
parent must know which row a lost worker was at. The pools at hand answer a task when all of it is done.

- `concurrent.futures.ProcessPoolExecutor`: broken for good by one segmentation fault, no timeouts, imports
  the user's script (hence the `__main__` guard), no lambdas.
- loky: lambdas and no guard; but one lost worker fails every task in flight, and a running task cannot be
  ended.
- pebble: timeouts and lost workers per task; but standard pickle, the guard, and a task is lost with all its
  rows.

A worker is `python -c`, so it works the same on every system and never forks a process in which JAX has
threads. cloudpickle brings the simulator, and 16 bytes of shared memory tell the parent where the worker is
(`channel.py`). Measured with 10^5 rows of an empty simulator: benchmarks/README.md.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from aptinfer.checks import positive_float, positive_int, suggests_keywords
from aptinfer.executors.pool import Limits, Pool
from aptinfer.protocols import Outcome, Rows, Simulator


@suggests_keywords
@dataclass(frozen=True, eq=False)
class Processes:
    """In worker processes on this machine. Simulations may hang or crash: the others do not notice.

    Workers start at the first simulation. They end with the `with` block; without one, at the end of the run:

        with apt.Processes(4, timeout=60) as pool:
            first = apt.infer(simulator, prior, x_1, executor=pool)
            second = apt.infer(simulator, prior, x_2, executor=pool)

    Args:
        n: how many; by default one for each core that this process may use.
        timeout: seconds that one call of the simulator may take (one row, or a chunk of a batched or JAX
            simulator). Then it is ended, and its status is `Status.TIMEOUT`.
        retries: how often a simulation is run again, with the same random numbers, after it took its process
            down or ran out of memory. Exceptions, NaN and timeouts are not tried again: they would come out
            the same.
        memory: bytes that a worker may allocate for simulations. Beyond them it gets a MemoryError, and the
            status is `Status.MEMORY`. (On Linux; it limits address space, of which JAX and threads reserve a
            lot.)
    """

    n: int | None = None
    timeout: float | None = None
    retries: int = 1
    memory: float | None = None
    _pool: Pool = field(init=False, repr=False)
    _holders: list = field(init=False, repr=False, default_factory=list)

    def __post_init__(self):
        n = available_cores() if self.n is None else positive_int("Processes n", self.n)
        if self.timeout is not None:
            positive_float("Processes timeout", self.timeout)
        positive_int("Processes retries", self.retries, minimum=0)
        if self.memory is not None:
            positive_float("Processes memory", self.memory)
            _needs_limits(self.memory)
        limits = Limits(self.timeout, self.retries, self.memory)
        object.__setattr__(self, "_pool", Pool(n, limits))

    def __call__(self, simulator: Simulator, seed: int, rows: Rows) -> Iterator[Outcome]:
        with self:
            yield from self._pool.run(simulator, seed, rows)

    def __enter__(self):
        self._holders.append(None)
        return self

    def __exit__(self, *_):
        self._holders.pop()
        if not self._holders:
            self._pool.close()


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _needs_limits(memory: float) -> None:
    try:
        import resource  # noqa: F401
    except ImportError:
        raise ValueError(
            f"memory={memory!r}: this operating system has no memory limit for processes; leave memory out."
        ) from None
