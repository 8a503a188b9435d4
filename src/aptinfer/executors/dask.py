"""Simulations on a cluster, with `dask.distributed`.

Tasks are groups of chunks that take about two seconds. Dask moves those of a lost worker to others; outcomes
are yielded as they arrive, in any order, each once. The simulator is a task of its own that the others depend
on: Dask sends it to each worker once, and makes it anew where it was lost.
"""

import contextlib
import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aptinfer.checks import positive_float, positive_int, suggests_keywords
from aptinfer.executors import luggage, packing
from aptinfer.executors.futures import run_packed
from aptinfer.executors.work import Work
from aptinfer.protocols import Outcome, Rows, Simulator, Status

TARGET_SECONDS = 2.0  # the scheduler spends milliseconds on a task, and guarded ones start a process
TASKS_AHEAD = 2  # per thread of the cluster, so that none waits for the next
COUNT_EVERY = 1.0  # seconds between looks at the size of the cluster, which may grow


@suggests_keywords
@dataclass(frozen=True, eq=False)
class Dask:
    """On a cluster of `dask.distributed` (`pip install "aptinfer[dask]"`, on its workers too).

    Workers may be lost or join at any time: results are those of `Inline`.

    Args:
        client: a `distributed.Client`, which stays open, or a scheduler's address, such as
            "tcp://node1:8786".
        timeout, memory: as for `apt.Processes`. Dask cannot end a task that hangs, so with either of them
            each task runs its simulations in a process of its own next to the Dask worker, which is ended in
            its place.
        retries: how often a simulation that takes down such a process is run again. Without one, a simulation
            that crashes takes down its Dask worker, which Dask allows three times
            (`distributed.scheduler.allowed-failures`).
    """

    client: Any
    timeout: float | None = None
    retries: int = 1
    memory: float | None = None
    _held: list = field(init=False, repr=False, default_factory=list)  # (client, what closes it)

    def __post_init__(self):
        if not isinstance(self.client, str) and not hasattr(self.client, "submit"):
            raise TypeError(
                f"Dask client must be a distributed.Client or a scheduler's address such as "
                f"'tcp://node1:8786'; got {self.client!r}."
            )
        if self.timeout is not None:
            positive_float("Dask timeout", self.timeout)
        if self.memory is not None:
            positive_float("Dask memory", self.memory)
        positive_int("Dask retries", self.retries, minimum=0)

    def __enter__(self):
        client, opened = self.client, None
        if self._held:
            client = self._held[0][0]
        elif isinstance(client, str):
            client = opened = _distributed().Client(client, set_as_default=False)
        self._held.append((client, opened))
        return self

    def __exit__(self, *_):
        _, opened = self._held.pop()
        if opened is not None:
            opened.close()

    def __call__(self, simulator: Simulator, seed: int, rows: Rows) -> Iterator[Outcome]:
        with self:
            yield from self._run(self._held[0][0], simulator, seed, rows)

    def _run(self, client: Any, simulator: Simulator, seed: int, rows: Rows) -> Iterator[Outcome]:
        distributed = _distributed()
        work = Work(rows, simulator.chunk, TARGET_SECONDS)
        guard = (self.timeout, self.retries, self.memory) if self.timeout or self.memory else None
        bag = client.submit(bytes, luggage.packed(simulator), pure=False)
        running: dict[Any, range] = {}
        arriving = distributed.as_completed(loop=client.loop)
        cores, counted = 1, -COUNT_EVERY
        try:
            while work.unfinished:
                if time.monotonic() - counted > COUNT_EVERY:
                    cores, counted = max(sum(client.nthreads().values()), 1), time.monotonic()
                while len(running) < TASKS_AHEAD * cores and (chunks := work.take(cores)) is not None:
                    rows = work.rows(chunks)
                    future = client.submit(run_guarded, bag, seed, rows.index, rows.theta, guard, pure=False)
                    running[future] = chunks
                    arriving.add(future)
                future = next(arriving)
                yield from self._arrived(work, running.pop(future), future, distributed)
        finally:
            for future in running:
                with contextlib.suppress(Exception):  # the cluster may be gone
                    future.cancel()

    def _arrived(self, work: Work, chunks: range, future: Any, distributed: Any) -> Iterator[Outcome]:
        try:
            columns, seconds = future.result()
        except distributed.KilledWorker as error:
            if len(chunks) > 1:  # one of them did it: they are tried one by one
                for chunk in reversed(chunks):
                    work.put_back(range(chunk, chunk + 1))
                return
            work.unfinished -= 1
            reason = f"the Dask workers that ran this simulation were lost: {error}"
            for index in work.rows(chunks).index.tolist():
                yield Outcome(index, None, Status.CRASHED, reason, 0.0)
            return
        work.done(len(chunks), seconds)
        yield from packing.unpacked(columns)


def run_guarded(bag: bytes, seed: int, index, theta, guard: tuple | None) -> tuple[packing.Columns, float]:
    """A task: here, or under a guard in a process of its own."""
    rows = Rows(index, theta)
    if guard is None:
        return run_packed(bag, seed, rows)
    from aptinfer.executors.processes import Processes

    timeout, retries, memory = guard
    simulator = luggage.unpacked(bag)
    started = time.perf_counter()
    outcomes = list(Processes(1, timeout=timeout, retries=retries, memory=memory)(simulator, seed, rows))
    return packing.packed(outcomes), time.perf_counter() - started


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise ImportError('apt.Dask needs dask.distributed: pip install "aptinfer[dask]"') from None
