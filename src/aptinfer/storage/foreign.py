"""What cannot be written down without pickle: a user's own functions, networks and settings.

Such a thing is noted by its name and a fingerprint of its code and arrays. To go on with a run it is passed
again, and compared.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from types import CodeType
from typing import Any

import numpy as np


def name_of(value: Any) -> str:
    """The dotted name of a function, or of an object's class."""
    known = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(known, '__module__', None) or 'builtins'}.{known.__qualname__}"


def fingerprint(value: Any) -> str:
    """Equal for equal code, arrays and settings, in this process and in others."""
    return hashlib.sha256(json.dumps(_described(value, 20), sort_keys=True).encode()).hexdigest()[:16]


def _described(value: Any, depth: int) -> Any:
    """A value as JSON that tells it from others; nothing is ever read back from it."""
    if depth == 0 or isinstance(value, str | int | float | bool | None):
        return repr(value) if isinstance(value, str | int | float | bool | None) else name_of(value)
    if isinstance(value, Mapping):
        return [[str(k), _described(v, depth - 1)] for k, v in value.items()]
    if isinstance(value, tuple | list):
        return [_described(v, depth - 1) for v in value]
    if isinstance(value, np.ndarray | np.generic) or type(value).__module__.startswith("jax"):
        array = np.asarray(value) if hasattr(value, "shape") else None
        return name_of(value) if array is None else [array.dtype.str, array.shape, _digest(array.tobytes())]
    if isinstance(code := getattr(value, "__code__", None), CodeType):
        cells = [_described(cell.cell_contents, depth - 1) for cell in value.__closure__ or ()]
        return [*_code(code), cells]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [
            [f.name, _described(getattr(value, f.name, None), depth - 1)] for f in dataclasses.fields(value)
        ]
        return [name_of(value), fields]
    return (
        [name_of(value), _described(vars(value), depth - 1)] if hasattr(value, "__dict__") else name_of(value)
    )


def _code(code: CodeType) -> list:
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return [_digest(code.co_code), list(code.co_names), constants]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
