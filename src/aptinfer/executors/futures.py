"""Any pool with the interface of `concurrent.futures.Executor`: threads, processes, loky, MPI, ..."""

import concurrent.futures
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aptinfer.blas import one_thread
from aptinfer.errors import SimulationError
from aptinfer.executors import luggage, packing
from aptinfer.executors.work import Work
from aptinfer.protocols import Outcome, Rows, Simulator


@dataclass(frozen=True)
class Futures:
    """In a pool of `concurrent.futures`, which stays open: whoever made it closes it.

    Args:
        pool: threads share this process and its simulator; to any other pool the simulator is sent.
    """

    pool: concurrent.futures.Executor

    def __call__(self, simulator: Simulator, seed: int, rows: Rows) -> Iterator[Outcome]:
        shared = isinstance(self.pool, concurrent.futures.ThreadPoolExecutor)
        how: tuple[Any, ...] = (_run_here, simulator) if shared else (run_packed, luggage.packed(simulator))
        work = Work(rows, simulator.chunk)
        workers = getattr(self.pool, "_max_workers", None) or os.cpu_count() or 1
        running: dict[concurrent.futures.Future, range] = {}
        try:
            with one_thread():  # for threads
                while work.unfinished:
                    while len(running) < 2 * workers and (chunks := work.take(workers)) is not None:
                        running[self.pool.submit(*how, seed, work.rows(chunks))] = chunks
                    ended, _ = concurrent.futures.wait(running, return_when="FIRST_COMPLETED")
                    for future in ended:
                        columns, seconds = self._result(future)
                        work.done(len(running.pop(future)), seconds)
                        yield from packing.unpacked(columns)
        finally:
            for future in running:
                future.cancel()

    def _result(self, future: concurrent.futures.Future) -> tuple[packing.Columns, float]:
        try:
            return future.result()
        except concurrent.futures.BrokenExecutor as error:
            raise SimulationError(
                f"a worker of {type(self.pool).__name__} died, and the pool with it: {error} "
                f"apt.Processes() survives simulations that crash, and can limit their time and memory."
            ) from error


def _run_here(simulator: Simulator, seed: int, rows: Rows) -> tuple[packing.Columns, float]:
    """Outcomes and the seconds they took together."""
    started = time.perf_counter()
    outcomes = simulator(seed, rows)
    return packing.packed(outcomes), time.perf_counter() - started


def run_packed(bag: bytes, seed: int, rows: Rows) -> tuple[packing.Columns, float]:
    """The same in another process, to which the simulator was sent."""
    simulator = luggage.unpacked(bag)
    with one_thread():
        return _run_here(simulator, seed, rows)
