"""Shapes in annotations, checked at run time: what jaxtyping's import hook has beartype look at.

Only annotations of arrays are looked at. Settings and other arguments are checked by the library itself,
whose own messages are tested; and arrays may be NumPy's where an annotation names JAX's, since what runs on
the device is often prepared on the host.
"""

import functools
import operator
import types
import typing

import jaxtyping
import numpy as np
from beartype import beartype


def checked(function):
    """`function`, which refuses arrays of other shapes than its annotations say."""
    annotations = {name: _arrays(hint) for name, hint in function.__annotations__.items()}
    function.__annotations__ = {name: hint for name, hint in annotations.items() if hint is not None}
    return beartype(function)


def _arrays(hint):
    """The same annotation for arrays of either library; None where it says nothing about shapes."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        kind = getattr(jaxtyping, hint.__name__.partition("[")[0], None)
        return kind and kind[hint.array_type | np.ndarray, hint.dim_str]
    arguments, origin = typing.get_args(hint), typing.get_origin(hint)
    parts = [_arrays(part) for part in arguments]
    if not any(parts):
        return None
    parts = [array or part for array, part in zip(parts, arguments, strict=True)]
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, parts)
    return tuple[*parts] if origin is tuple else None
