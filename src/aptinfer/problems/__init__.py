"""Benchmark problems, one per file: `get("slcp")` loads one, `list()` names them all.

`python -m aptinfer.problems` prints a table.
"""

import importlib
from typing import TYPE_CHECKING

from aptinfer import checks

if TYPE_CHECKING:  # a problem, and JAX with it, is imported only when it is asked for
    from aptinfer.problems.problem import Problem

__all__ = ["get", "list"]

_NAMES = ("two_moons", "slcp")


def get(name: str) -> "Problem":
    """The problem called `name`.

    Example:
        >>> problem = get("two_moons")
        >>> problem.observation.shape
        (2,)
    """
    if name not in _NAMES:
        raise ValueError(f"There is no problem {name!r}. {checks.nearest(str(name), _NAMES)}")
    return importlib.import_module(f"aptinfer.problems.{name}").problem


def list() -> tuple[str, ...]:
    """The names that `get` knows."""
    return _NAMES
