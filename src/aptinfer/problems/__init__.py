"""Benchmark problems, one per file: `get("slcp")` loads one, `list()` names them all.

`python -m aptinfer.problems` prints a table.
"""

import importlib
from typing import TYPE_CHECKING, Any

from aptinfer import checks

if TYPE_CHECKING:  # a problem, and JAX with it, is imported only when it is asked for
    from aptinfer.problems.problem import Problem

__all__ = ["get", "list"]

_NAMES = (
    # the paper's
    "two_moons",
    "slcp",
    "slcp_distractors",
    "lotka_volterra",
    "lotka_volterra_raw",
    "lotka_volterra_noisy",
    "rock_paper_scissors",
    "mg1",
    "glm",
    # the published benchmark's
    "gaussian_linear",
    "gaussian_linear_uniform",
    "gaussian_mixture",
    "bernoulli_glm",
    "bernoulli_glm_raw",
    "sir",
    "lotka_volterra_ode",
)


def get(name: str, **options: Any) -> "Problem":
    """The problem called `name`, as published or with other `options`.

    A module offers options through a function `make`; without any, its `problem` is what was published.

    Example:
        >>> problem = get("two_moons")
        >>> problem.observation.shape
        (2,)
    """
    if name not in _NAMES:
        raise ValueError(f"There is no problem {name!r}. {checks.nearest(str(name), _NAMES)}")
    module = importlib.import_module(f"aptinfer.problems.{name}")
    if not options:
        return module.problem
    if not hasattr(module, "make"):
        raise TypeError(f"{name!r} is one fixed problem and takes no options; got {', '.join(options)}.")
    return module.make(**options)


def list() -> tuple[str, ...]:
    """The names that `get` knows."""
    return _NAMES
