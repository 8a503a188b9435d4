"""What `executor=` accepts."""

import concurrent.futures
import contextlib
import sys
from typing import Any

from aptinfer.checks import optional_function
from aptinfer.executors.dask import Dask
from aptinfer.executors.futures import Futures
from aptinfer.executors.inline import Inline
from aptinfer.executors.processes import Processes
from aptinfer.protocols import Executor


def as_executor(value: object) -> Executor:
    """An executor: None is `Inline()`; pools of `concurrent.futures` and clients of Dask are adapted."""
    if value is None:
        return Inline()
    if isinstance(value, concurrent.futures.Executor):
        return Futures(value)
    distributed: Any = sys.modules.get("distributed")
    if distributed is not None and isinstance(value, distributed.Client):
        return Dask(value)
    optional_function("executor", value, "apt.Processes() or apt.Inline()")
    return value  # pyright: ignore[reportReturnType]


def held(executor: Executor) -> contextlib.AbstractContextManager:
    """Keeps workers between rounds; they end with this block unless the user holds them too."""
    return executor if isinstance(executor, Processes | Dask) else contextlib.nullcontext()
