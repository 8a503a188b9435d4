"""What `executor=` accepts."""

import concurrent.futures
import contextlib
import inspect
import sys
from typing import Any

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
    if not callable(value) or inspect.isclass(value):
        came = f"the class {value.__name__}" if inspect.isclass(value) else repr(value)
        raise TypeError(
            f"executor must be apt.Inline(), apt.Processes(), apt.Dask(client) or a pool of "
            f"concurrent.futures; got {came}."
        )
    return value  # pyright: ignore[reportReturnType]


def held(executor: Executor) -> contextlib.AbstractContextManager:
    """Keeps workers between rounds; they end with this block unless the user holds them too."""
    return executor if isinstance(executor, Processes | Dask) else contextlib.nullcontext()
