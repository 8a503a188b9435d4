"""One thread for linear algebra wherever a simulation runs, so that its last bits do not depend on where.

A product of matrices is added up in another order on another number of threads. New processes are told by
their environment, before NumPy is loaded; a process that has loaded it already is told through threadpoolctl.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")} | {
    "VECLIB_MAXIMUM_THREADS": "1"
}


_lock = threading.Lock()
_limits: list[Any] = []  # in force; the first one knows what was before
_users = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this block, the libraries behind NumPy and SciPy that are loaded by now use one thread.

    Threads may be in such blocks at the same time: the last to leave puts things back.
    """
    from threadpoolctl import ThreadpoolController

    global _users
    if "jax" in sys.modules or "scipy" in sys.modules:
        import scipy.linalg  # noqa: F401  # brings a library of its own, which a simulator might load later
    with _lock:
        _users += 1
        _limits.append(ThreadpoolController().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            while _users == 0 and _limits:
                _limits.pop().restore_original_limits()
