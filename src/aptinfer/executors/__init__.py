"""Where simulations run: in this process, in worker processes, on a cluster, in other pools.

An executor is called with a simulator, a seed and rows, and yields their outcomes as they arrive. How rows
were split never changes them.
"""

from aptinfer.executors.choice import as_executor, held
from aptinfer.executors.dask import Dask
from aptinfer.executors.futures import Futures
from aptinfer.executors.inline import Inline
from aptinfer.executors.processes import Processes

__all__ = ["Dask", "Futures", "Inline", "Processes", "as_executor", "held"]
