"""A round's chunks given to worker processes; what comes back, what is lost, and what is done about it.

Of a worker that hangs or dies, the outcomes that have arrived are kept, and the chunk that it was at bears
the blame: the board says which. Everything else that it was given goes to others.
"""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from aptinfer.errors import SimulationError
from aptinfer.executors import luggage, packing
from aptinfer.executors.work import Work
from aptinfer.executors.worker_process import WorkerProcess, end
from aptinfer.interrupts import noted_ctrl_c
from aptinfer.protocols import Outcome, Rows, Simulator, Status

LOOK_EVERY = 1.0  # seconds after which workers that say nothing are looked at
MOST_LOSSES = 20  # workers lost in a row without a single outcome: something outside ends them all


class Limits(NamedTuple):
    """What a worker may take before it is ended; how often a chunk that ends its worker is tried again."""

    timeout: float | None
    retries: int
    memory: float | None


class Pool:
    """Up to `n` worker processes, started when there is work for them."""

    def __init__(self, n: int, limits: Limits):
        self.n, self.limits = n, limits
        self.workers: list[WorkerProcess] = []
        self.running = False
        self._inbox: queue.SimpleQueue = queue.SimpleQueue()
        self._ending: list[threading.Thread] = []

    def run(self, simulator: Simulator, seed: int, rows: Rows) -> Iterator[Outcome]:
        """The outcomes, as they arrive."""
        if self.running:
            raise RuntimeError(
                "this apt.Processes is already running simulations; let them end, or use another one."
            )
        self.running = True
        try:
            with self._undisturbed() as pressed:
                now = _Round(simulator, seed, rows)
                for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
                    self._dismiss(worker)  # somebody has ended it since the last call
            while now.work.unfinished and not pressed:
                with self._undisturbed() as pressed:
                    outcomes = list(self._advance(now))
                yield from outcomes
            if pressed:
                raise pressed[0]
        except BaseException:  # Ctrl-C, an error, or nobody wants the rest: nothing may go on running
            self.close()
            raise
        finally:
            self.running = False

    def close(self) -> None:
        """End all workers, and wait until they are gone."""
        with self._undisturbed() as pressed:
            workers, self.workers = self.workers, []
            end(workers)
            for thread in self._ending:
                thread.join()
            self._ending.clear()
        if pressed:
            raise pressed[0]

    def _undisturbed(self) -> AbstractContextManager[list[KeyboardInterrupt]]:
        """Workers are started, asked and ended under locks that Ctrl-C must not leave behind."""
        return noted_ctrl_c(wake=lambda: self._inbox.put((None, None)))

    def _advance(self, now: "_Round") -> Iterator[Outcome]:
        """Give out what can be, wait for the next message, and see to whoever sends none."""
        self._hand_out(now)
        try:
            worker, message = self._inbox.get(timeout=self._patience())
        except queue.Empty:
            worker, message = None, None
        if worker is not None and worker in self.workers:
            before = now.work.unfinished
            yield from self._heard(now, worker, message)
            now.losses = 0 if now.work.unfinished < before else now.losses + (message is None)
            if now.losses > MOST_LOSSES:
                raise SimulationError(
                    f"{now.losses} worker processes in a row were lost before they returned anything; the "
                    f"last one {worker.obituary()}\nIs the machine out of memory?"
                )
        if self._inbox.empty():  # else what a late worker has sent before would be done again
            yield from self._late(now)

    def _hand_out(self, now: "_Round") -> None:
        """Start workers that are missing, and give those that wait something to do."""
        # Not more of them than there are chunks to do.
        while len(self.workers) < min(self.n, now.work.unfinished):
            self.workers.append(WorkerProcess(self._inbox))
        for worker in self.workers:
            if worker.ready and worker.bag != now.bag:
                worker.bag, worker.available = now.bag, False
                worker.tell("load", now.bag, now.first, self.limits.memory)
            if worker.available and not worker.busy and (chunks := now.work.take(self.n)) is not None:
                worker.task, worker.reported = chunks, 0
                worker.tell("run", now.seed, now.work.rows(chunks))

    def _heard(self, now: "_Round", worker: WorkerProcess, message: tuple | None) -> Iterator[Outcome]:
        kind, *content = message or ("lost",)
        if kind == "some":
            count, columns, seconds = content
            worker.reported += count
            now.work.done(count, seconds)
            yield from packing.unpacked(columns)
        elif kind == "memory":
            outcomes = packing.unpacked(content[0])
            yield from self._blamed(now, worker, worker.reported, outcomes, self.limits.retries)
        elif kind == "lost":
            yield from self._lost(now, worker)
        elif kind == "error":
            raise content[0]
        else:
            worker.ready, worker.available = True, kind == "loaded"

    def _lost(self, now: "_Round", worker: WorkerProcess) -> Iterator[Outcome]:
        how = worker.obituary()
        if not worker.ready and not worker.folder.exists():  # somebody is tidying up: not its fault
            self._dismiss(worker)
            return
        if not worker.available:
            raise SimulationError(
                f"a worker process {how}\nThis was before its first simulation: while it "
                f"{'loaded the simulator' if worker.ready else 'started (see what it wrote above)'}."
            )
        since, place = worker.board.read()
        if worker.busy and place >= worker.reported:
            most = self.limits.retries + 1
            reason = f"the worker process that ran this simulation {how}\nThis was attempt {most} of {most}."
            outcomes = now.outcomes(worker.task[place], Status.CRASHED, reason, time.monotonic() - since)
            yield from self._blamed(now, worker, place, outcomes, self.limits.retries)
        else:  # between two chunks: nobody's fault
            now.work.put_back(worker.task[worker.reported :])
            self._dismiss(worker)

    def _late(self, now: "_Round") -> Iterator[Outcome]:
        """End what has taken too long. A lengthy simulation is not tried again: it would be as lengthy."""
        limit = self.limits.timeout
        for worker in [worker for worker in self.workers if worker.busy]:
            since, place = worker.board.read()
            took = time.monotonic() - since
            if limit is not None and place >= worker.reported and took > limit:
                reason = f"still running after {took:.3g} s; timeout={limit:g}"
                outcomes = now.outcomes(worker.task[place], Status.TIMEOUT, reason, took)
                yield from self._blamed(now, worker, place, outcomes, retries=0)

    def _blamed(
        self, now: "_Round", worker: WorkerProcess, place: int, outcomes: list[Outcome], retries: int
    ) -> Iterator[Outcome]:
        """A worker is given up because of one chunk; that is tried again, or has these outcomes."""
        culprit = worker.task[place]
        now.work.put_back(worker.task[place + 1 :])
        now.work.put_back(worker.task[worker.reported : place])
        self._dismiss(worker)
        if now.work.attempted(culprit) <= retries:
            now.work.put_back(range(culprit, culprit + 1))
        else:
            now.work.unfinished -= 1
            yield from outcomes

    def _dismiss(self, worker: WorkerProcess) -> None:
        """Give a worker up, without waiting for its end."""
        self.workers.remove(worker)
        thread = threading.Thread(target=end, args=([worker],))
        thread.start()
        self._ending = [other for other in self._ending if other.is_alive()] + [thread]

    def _patience(self) -> float:
        """Seconds until some worker must be looked at."""
        for worker in self.workers:
            worker.watch()
        if self.limits.timeout is None:
            return LOOK_EVERY
        since = [worker.board.read()[0] for worker in self.workers if worker.busy]
        left = min(since, default=time.monotonic()) + self.limits.timeout - time.monotonic()
        return min(max(left, 0.01), LOOK_EVERY)


class _Round:
    """What one call of a pool is about."""

    def __init__(self, simulator: Simulator, seed: int, rows: Rows):
        self.bag = luggage.packed(simulator)
        self.seed = seed
        self.work = Work(rows, simulator.chunk)
        self.first = Rows(self.work.index[:1], self.work.theta[:1])
        self.losses = 0  # workers in a row that were lost before they returned anything

    def outcomes(self, chunk: int, status: Status, reason: str, seconds: float) -> list[Outcome]:
        """The same fate for all rows of a chunk."""
        index = self.work.rows(range(chunk, chunk + 1)).index.tolist()
        return [Outcome(i, None, status, reason, seconds / len(index)) for i in index]
