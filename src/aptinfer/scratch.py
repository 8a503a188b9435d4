"""Arrays too large for memory, in files without a name.

A scratch file is removed from its folder as soon as it has been opened: the system frees its room when the
last array on it is gone, however the process ends, and there is nothing to clean up after a crash. What lies
in it can always be made again from the run file. Pages of it in memory are given up by the system, not by us,
when others need them.
"""

import contextlib
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from aptinfer.errors import RunFileError

SHARE = 0.25  # of the memory that this process may have: what one array takes at most


def most_bytes() -> float:
    """Bytes that one array may take in memory."""
    return SHARE * memory_of_this_process()


def is_on_disk(array: Any) -> bool:
    """Whether an array lies in a file."""
    return isinstance(array, np.memmap)


def zeros(shape: tuple[int, ...], dtype: Any, folder: Path) -> np.ndarray:
    """Zeros in memory; if they are too large for that, in a scratch file in this folder."""
    if math.prod(shape) * np.dtype(dtype).itemsize <= most_bytes():
        return np.zeros(shape, dtype)
    return _on_disk(shape, dtype, folder)


def zeros_beside(array: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros in a scratch file in the folder of an array that lies in one."""
    return _on_disk(shape, dtype, Path(array.filename).parent)  # pyright: ignore[reportAttributeAccessIssue]


def _on_disk(shape: tuple[int, ...], dtype: Any, folder: Path) -> np.ndarray:
    size = max(math.prod(shape), 1) * np.dtype(dtype).itemsize
    try:
        number, name = tempfile.mkstemp(prefix=".aptinfer-", suffix=".scratch", dir=folder)
    except OSError as error:
        raise _no_room(folder, size, error) from None
    try:
        with os.fdopen(number, "r+b") as file:
            if hasattr(os, "posix_fallocate"):  # a full disk would end the process when a page is written
                os.posix_fallocate(number, 0, size)
            else:
                file.truncate(size)
            return np.memmap(name, dtype, "r+", shape=shape)
    except OSError as error:
        raise _no_room(folder, size, error) from None
    finally:
        with contextlib.suppress(OSError):  # where an open file cannot be removed, it stays behind
            os.unlink(name)


def _no_room(folder: Path, size: int, error: OSError) -> RunFileError:
    return RunFileError(
        f"the data are larger than {SHARE:.0%} of this process's memory, and a scratch file of {size} bytes "
        f"cannot be made in {folder} ({error}). Everything recorded is safe: make room there, or resume on a "
        f"machine with more memory."
    )


def memory_of_this_process() -> float:
    """Bytes that it may have: the least of what the machine has, its control group and its limits allow."""
    limits = [*_machine(), *_control_group(), *_process_limits()]
    return min(limits, default=math.inf)


def _machine() -> list[float]:
    try:
        return [float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):
        return []


def _control_group() -> list[float]:
    """The limits of containers and of batch systems, of this process's group and of those above it."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            version_1 = "memory" in kinds.split(",")
            if kinds and not version_1:
                continue
            root = Path("/sys/fs/cgroup", *(["memory"] if version_1 else []))
            name = "memory.limit_in_bytes" if version_1 else "memory.max"
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder == root.parent:
                    break
                with contextlib.suppress(OSError, ValueError):
                    found.append(float((folder / name).read_text()))  # "max" is no number
    return found


def _process_limits() -> list[float]:
    try:
        import resource
    except ImportError:
        return []
    soft = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    return [float(limit) for limit in soft if limit != resource.RLIM_INFINITY]
