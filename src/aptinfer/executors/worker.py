"""What a worker process does: load a simulator, run chunks, send outcomes back in small groups.

    from the parent:  ("load", simulator, a row, memory), ("run", seed, rows), and the end of the stream
    to the parent:    ("ready",), ("loaded",), ("some", chunks, outcomes, seconds), ("memory", outcomes),
                      ("error", exception)

Outcomes are sent when `SEND_EVERY` seconds have passed, so slow simulations travel one by one and fast ones
together; after a crash at most that much finished work is repeated. The user's script is never imported, nor
is JAX unless the simulator needs it.
"""

import contextlib
import faulthandler
import os
import pickle
import queue
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from aptinfer.errors import SimulationError
from aptinfer.executors import luggage, packing
from aptinfer.executors.channel import IDLE, Board, receive, send
from aptinfer.protocols import Outcome, Rows, Simulator, Status
from aptinfer.simulators import chunk_edges

SEND_EVERY = 0.02
GRACE = 0.5  # seconds in which a simulation that is told to end may clean up


class Ended(BaseException):
    """This worker was told to end, in the middle of a simulation."""


class Worker:
    """One side of the conversation.

    Args:
        pipe: to the parent.
        board: where the parent sees which chunk is running.
    """

    def __init__(self, pipe, board: Board):
        self.pipe, self.board = pipe, board
        self.process = os.getpid()
        self.simulator: Simulator | None = None

    def load(self, bag: bytes, row: Rows, memory: float | None) -> None:
        self.simulator = luggage.unpacked(bag)
        self.simulator.prepare(row)
        if memory is not None:
            limit_memory(memory)
        send(self.pipe, ("loaded",))

    def run(self, seed: int, rows: Rows) -> None:
        assert self.simulator is not None
        chunks = len(chunk_edges(rows.index, self.simulator.chunk)) - 1
        each = self.simulator.one_by_one(seed, rows)
        group: list[Outcome] = []
        count, since = 0, time.perf_counter()
        for place in range(chunks):
            self.board.begin(place)
            outcomes = next(each)
            if os.getpid() != self.process:  # the simulator has forked, and its child came back as well
                os._exit(0)
            if any(outcome.status is Status.MEMORY for outcome in outcomes):
                self._send(count, group, time.perf_counter() - since)
                send(self.pipe, ("memory", packing.packed(outcomes)))
                raise Ended  # what it allocated before may be to blame: a new worker tries again
            group += outcomes
            count += 1
            now = time.perf_counter()
            if now - since > SEND_EVERY:
                self._send(count, group, now - since)
                group, count, since = [], 0, now
        self.board.begin(IDLE)  # before the parent knows: the next task must not be charged for this one
        self._send(count, group, time.perf_counter() - since)

    def _send(self, count: int, group: list[Outcome], seconds: float) -> None:
        if group:
            send(self.pipe, ("some", count, packing.packed(group), seconds))


def limit_memory(memory: float) -> None:
    """Allow this process so many bytes of address space beyond what it has now."""
    import resource

    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        memory += pages * resource.getpagesize()
    except OSError:
        pass  # where the system does not tell, the limit is on the whole
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = int(memory) if hard == resource.RLIM_INFINITY else min(int(memory), hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main(folder: str) -> None:
    """Serve until the parent closes the pipe. `folder` holds the board, and takes a crash's stack."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _leave_standard_streams_to_the_user()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which decides
    with open(Path(folder, "crash"), "w") as crash:
        faulthandler.enable(crash, all_threads=False)
        messages: queue.SimpleQueue = queue.SimpleQueue()
        with contextlib.suppress(Ended, BrokenPipeError):  # the end may come as soon as it can
            signal.signal(signal.SIGTERM, _end)
            threading.Thread(target=_listen, args=(incoming, messages, folder), daemon=True).start()
            _serve(Worker(outgoing, Board(Path(folder, "board"))), messages)
        _flush()
        os._exit(0)  # threads and handlers that a simulator left behind may not keep it alive


def _serve(worker: Worker, messages: queue.SimpleQueue) -> None:
    send(worker.pipe, ("ready",))
    while (message := messages.get()) is not None:
        kind, *arguments = message
        try:
            worker.load(*arguments) if kind == "load" else worker.run(*arguments)
        except BrokenPipeError:
            raise
        except Exception as error:  # a mistake that ends the run, such as output that is not numbers
            send(worker.pipe, ("error", _portable(error)))


def _listen(incoming, messages: queue.SimpleQueue, folder: str) -> None:
    """Pass messages on; when the parent is gone, end, even in the middle of a simulation."""
    try:
        while True:
            messages.put(receive(incoming))
    except (EOFError, OSError):
        messages.put(None)
    shutil.rmtree(folder, ignore_errors=True)  # a parent that was killed cannot
    time.sleep(0.05)  # an idle worker leaves by itself
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(GRACE)
        if os.getpgrp() == os.getpid():  # ours alone: programs that a simulator started end too
            os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _end(number, frame) -> None:
    raise Ended


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return SimulationError(f"{type(error).__name__}: {error}")
    return error


def _leave_standard_streams_to_the_user() -> None:
    """What a simulator prints goes to the terminal (standard error), not into our messages."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
