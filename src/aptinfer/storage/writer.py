"""One writer at a time: a lock that the system releases with its process, however that ends.

The lock is on a small file next to the run file, which also says who holds it. (Locks on the run file itself
would meddle with SQLite's own.)
"""

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

from aptinfer.errors import RunFileError

try:
    import fcntl
except ImportError:  # Windows: what the file says about its writer is all there is
    fcntl = None


class WriterLock:
    """Held from when it is made until `release`.

    Raises:
        RunFileError: another process, or this one, writes to the run file.
    """

    def __init__(self, path: Path):
        self.path, self.beside = path, lock_path(path)
        while True:
            try:
                self._file = os.open(self.beside, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise RunFileError(f"{path} cannot be written to: {error}.") from None
            if not self._locked():
                holder = read_holder(self.beside)
                os.close(self._file)
                raise RunFileError(
                    f"{path} is being written by {_named(holder)}. Wait for it or stop it, or read the file "
                    f"meanwhile: apt.open({str(path)!r})."
                )
            # Its last holder may have removed the file between our opening and locking it.
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(self._file).st_ino == os.stat(self.beside).st_ino:
                    break
            os.close(self._file)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(_myself()).encode(), 0)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.beside)
        os.close(self._file)

    def _locked(self) -> bool:
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False
            except OSError:
                pass  # a file system without locks
        return not is_alive(read_holder(self.beside))


def lock_path(path: Path) -> Path:
    """The file that is locked."""
    return path.with_name(path.name + "-writer")


def holder_of(path: Path) -> dict[str, Any] | None:
    """Who writes to a run file now, as far as can be told without touching the lock."""
    holder = read_holder(lock_path(path))
    return holder if is_alive(holder) else None


def read_holder(beside: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_alive(holder: dict[str, Any] | None) -> bool:
    """Whether the process still runs; one on another host counts as alive."""
    if holder is None:
        return False
    if holder.get("host") != socket.gethostname():
        return True
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid < 1 or os.name != "posix":  # elsewhere, asking would end the process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _started(pid) in (None, holder.get("started"))  # a number may have been given to another process


def _myself() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def _started(pid: int) -> str | None:
    """When a process started, in the system's own units."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _named(holder: dict[str, Any] | None) -> str:
    return f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
