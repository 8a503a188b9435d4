"""One thread for linear algebra wherever a simulation runs, so that its last bits do not depend on where.

A product of matrices is added up in another order on another number of threads. New processes are told by
their environment, before NumPy is loaded; a process that has loaded it already is told through threadpoolctl.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")} | {
    "VECLIB_MAXIMUM_THREADS": "1"
}


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this block, the libraries behind NumPy and SciPy that are loaded by now use one thread."""
    from threadpoolctl import ThreadpoolController

    if "jax" in sys.modules or "scipy" in sys.modules:
        import scipy.linalg  # noqa: F401  # brings a library of its own, which a simulator might load later
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        yield
