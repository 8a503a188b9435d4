"""Worker processes from the outside: starting, talking to, and ending them."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from aptinfer.blas import ONE_THREAD
from aptinfer.executors.channel import Board, receive, send

GRACE = 0.5  # seconds between asking a worker to end and killing it
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
    "from aptinfer.executors.worker import main; main(sys.argv[2])"
)
# Several processes share a GPU only if none of them takes all of its memory.
_ENVIRONMENT = ONE_THREAD | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class WorkerProcess:
    """A worker process, its pipe and its board.

    A thread passes what it says on to `inbox` as pairs (worker, message); the message is None when it is
    gone.

    Attributes:
        bag: the simulator that it has been sent, packed.
        available: whether it has loaded that simulator.
        task, reported: the chunks it was given, and how many of them have come back.
    """

    def __init__(self, inbox: queue.SimpleQueue):
        self.folder = Path(tempfile.mkdtemp(prefix="aptinfer-worker-"))
        self.board = Board.make(self.folder / "board")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                _PROGRAM,
                json.dumps([str(path) for path in sys.path]),
                str(self.folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _ENVIRONMENT | _compiled_programs(),
            start_new_session=True,  # a group of its own, so that programs it starts can be ended with it
        )
        self.ready = self.available = False
        self.bag: bytes | None = None
        self.task, self.reported = range(0), 0
        self._thread = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return self.reported < len(self.task)

    def tell(self, *message: Any) -> None:
        """Send a message. If the worker is gone, `inbox` will say so."""
        with contextlib.suppress(OSError):
            send(self.process.stdin, message)  # pyright: ignore[reportArgumentType]

    def _listen(self, inbox: queue.SimpleQueue) -> None:
        try:
            while True:
                inbox.put((self, receive(self.process.stdout)))  # pyright: ignore[reportArgumentType]
        except (EOFError, OSError, ValueError):
            inbox.put((self, None))

    def watch(self) -> None:
        """If the process is gone, end what it left behind: its pipe may be held open by that."""
        if self.process.poll() is not None:
            _signal(self, "SIGKILL")

    def close(self) -> None:
        """Forget a process that has ended."""
        self._thread.join(GRACE)
        if not self._thread.is_alive():
            for pipe in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
        self.board.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def obituary(self) -> str:
        """How the process ended, and where in Python it was if it crashed."""
        try:
            code = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "no longer answered"
        try:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        except ValueError:
            how = f"was killed by signal {-code}"
        with contextlib.suppress(OSError):
            text = (self.folder / "crash").read_text(errors="replace")
            stack = text.partition("\nExtension modules")[0].strip()
            how += f"\n{stack}" if stack else ""
        return how


def _compiled_programs() -> dict[str, str]:
    """Where JAX keeps what it compiles: a simulator is compiled once, not by every worker of this machine."""
    jax = sys.modules.get("jax")
    folder = jax and jax.config.jax_compilation_cache_dir
    return {"JAX_COMPILATION_CACHE_DIR": str(folder)} if folder else {}


def end(workers: list[WorkerProcess]) -> None:
    """End worker processes and whatever they started: ask, wait for `GRACE` seconds, kill."""
    for one in workers:
        _signal(one, "SIGTERM")
    until = time.monotonic() + GRACE
    try:
        for one in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(until - time.monotonic(), 0.0))
    finally:
        for one in workers:
            _signal(one, "SIGKILL")
            one.process.wait()
            one.close()


def _signal(worker: WorkerProcess, name: str) -> None:
    """Signal the worker's process group, which is not reused while any of its processes lives."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(worker.process.pid, getattr(signal, name))
        else:
            worker.process.kill()
