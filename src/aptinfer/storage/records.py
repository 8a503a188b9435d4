"""Values as JSON and arrays, and back: the library's own records, and nothing else.

    APT(loss=Atomic(atoms=10), ...)   {"is": "APT", "loss": {"is": "Atomic", "atoms": 10}, ...}
    Linear(weight, bias, 2, 16, ...)  {"is": "equinox.nn.Linear", "weight": {"array": "9f86..."}, ...}

Settings, networks, posteriors and what a method remembers are all records: frozen dataclasses, NamedTuples
and Equinox modules. One rule writes them, field by field, so that no method needs code of its own to be kept,
and one rule reads them: only names of this library's classes are looked up, settings are built by their own
checks, and nothing in a file is ever called. Arrays are named by a digest of their content: networks that
appear twice are kept once, and a damaged one is noticed.

Two kinds of value are not written. What both sides have anyway, such as the prior's coordinates, is referred
to by name (`shared`). What is the user's own is noted with its fingerprint (see `foreign.py`) and must be
passed again; of a user's network only the trained arrays are written.
"""

import dataclasses
import hashlib
import importlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import aptinfer
from aptinfer.errors import RunFileError
from aptinfer.storage.blobs import KINDS
from aptinfer.storage.foreign import fingerprint, name_of

# Packages whose records may be read. Executors and simulators are not among them: those start processes.
OWN = (
    "columns", "estimators", "methods", "posteriors", "proposals", "samplers", "scaling", "sequential",
    "spaces", "stopping", "train",
)  # fmt: skip
_DOTTED = re.compile(r"[a-z][a-z_]*(\.[a-z][a-z_]*)*\.[A-Za-z_]\w*", re.ASCII)
_LAYERS = (
    "Conv", "Conv1d", "Conv2d", "Conv3d", "Dropout", "Embedding", "GroupNorm", "GRUCell", "Identity",
    "LayerNorm", "Linear", "LSTMCell", "MultiheadAttention", "RMSNorm",
)  # fmt: skip
_ELEMENTWISE = {
    "jax.nn": (
        "celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_tanh", "identity", "leaky_relu",
        "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign", "softplus",
        "squareplus",
    ),
    "jax.numpy": ("arctan", "cos", "exp", "sin", "tanh"),
}  # fmt: skip


class Writer:
    """Turns values into JSON; the arrays met on the way are in `arrays`, by digest.

    Args:
        shared: objects that the reader will have too, by name.
        trained: whether a user's networks are written with their arrays, rather than by fingerprint.
    """

    def __init__(self, shared: Mapping[str, Any] | None = None, *, trained: bool = False):
        self.shared, self.trained = dict(shared or {}), trained
        self.arrays: dict[str, np.ndarray] = {}

    def __call__(self, value: Any) -> Any:
        for name, known in self.shared.items():
            if value is known:
                return {"shared": name}
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value))}
        if _is_array(value):
            return {"array": self._array(np.asarray(value))} | (
                {} if type(value) is np.ndarray else {"jax": True}
            )
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return [self(item) for item in value]
        if type(value) is list:
            return {"list": [self(item) for item in value]}
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return {"dict": {key: self(item) for key, item in value.items()}}
        if (name := _class_name(type(value))) is not None:
            return {"is": name} | {field: self(getattr(value, field)) for field in _fields(type(value))}
        if (name := _function_name(value)) is not None:
            return {"function": name}
        return self._foreign(value)

    def _array(self, array: np.ndarray) -> str:
        array = np.ascontiguousarray(array).reshape(array.shape)
        if array.dtype.newbyteorder("<").str not in KINDS:
            raise TypeError(f"an array of {array.dtype} cannot be kept in a file.")
        name = digest(array)
        self.arrays[name] = array
        return name

    def _foreign(self, value: Any) -> Any:
        noted = {"yours": name_of(value)}
        if not self.trained:
            return noted | {"fingerprint": fingerprint(value)}
        if _is_module(value):
            import jax

            arrays = [leaf for leaf in jax.tree.leaves(value) if _is_array(leaf)]
            return noted | {"arrays": [self(array) for array in arrays]}
        return noted


class Reader:
    """Turns JSON back into values.

    Args:
        array: finds an array by its digest.
        shared: as for `Writer`.
        yours: what the user has passed again, by name.
    """

    def __init__(
        self,
        array: Callable[[str], np.ndarray],
        shared: Mapping[str, Any] | None = None,
        yours: Mapping[str, Any] | None = None,
    ):
        self.array, self.shared, self.yours = array, dict(shared or {}), dict(yours or {})

    def __call__(self, written: Any) -> Any:
        """The value; `RunFileError` if there is none behind what is written."""
        try:
            return self._value(written)
        except RunFileError:
            raise
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            LookupError,
            RecursionError,
            OverflowError,
        ) as error:
            raise RunFileError(f"a stored value cannot be read ({type(error).__name__}: {error})") from None

    def _value(self, written: Any) -> Any:
        if written is None or isinstance(written, bool | int | float | str):
            return written
        if isinstance(written, list):
            return tuple(self._value(item) for item in written)
        kind = next(iter(written), None)
        if kind == "is":
            return self._record(written)
        if kind in ("array", "scalar"):
            return self._array(written)
        content = written[kind]
        if kind == "shared":
            return self.shared[content]
        if kind == "float":
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]
        if kind == "list":
            return [self._value(item) for item in content]
        if kind == "dict":
            return {key: self._value(item) for key, item in content.items()}
        if kind == "function":
            return _function(content)
        if kind == "yours":
            return self._foreign(written)
        raise RunFileError(f"a stored value is of an unknown kind: {str(kind)[:40]!r}")

    def _record(self, written: dict) -> Any:
        fields = dict(written)
        cls = _class(fields.pop("is"))
        values = {name: self._value(value) for name, value in fields.items()}
        if not _is_module_class(cls):
            return cls(**values)
        if set(values) != set(_fields(cls)):
            raise RunFileError(f"a stored {cls.__name__} has other fields than it should")
        module = object.__new__(cls)  # its own __init__ would make new weights
        for name, value in values.items():
            object.__setattr__(module, name, value)
        return module

    def _array(self, written: dict) -> Any:
        array = self.array(written["scalar" if "scalar" in written else "array"])
        if "scalar" in written:
            return array[()] if array.ndim == 0 else array
        if not written.get("jax"):
            return array.copy()  # what a method remembers is its own to write to
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise RunFileError("a network holds NaN")
        import jax.numpy as jnp

        return jnp.asarray(array)

    def _foreign(self, written: dict) -> Any:
        name = written["yours"]
        if name not in self.yours:
            raise RunFileError(f"{name} is your own, and is not kept in the file: pass it again")
        if "arrays" not in written:
            return self.yours[name]
        import jax

        arrays = iter([self._value(array) for array in written["arrays"]])
        leaves, structure = jax.tree.flatten(self.yours[name])
        filled = [next(arrays) if _is_array(leaf) else leaf for leaf in leaves]
        if next(arrays, None) is not None:
            raise RunFileError(f"{name} has fewer arrays than the one in the file")
        return jax.tree.unflatten(structure, filled)


def digest(array: np.ndarray) -> str:
    """The name of an array: its type, shape and content."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    whole = hashlib.sha256(f"{little.dtype.str} {little.shape} ".encode())
    whole.update(little.tobytes())
    return whole.hexdigest()[:32]


def foreign_parts(value: Any) -> dict[str, Any]:
    """Everything of the user's within settings, by name."""
    if (_class_name(type(value))) is not None:
        inside = [getattr(value, field) for field in _fields(type(value))]
    elif isinstance(value, tuple | list):
        inside = list(value)
    elif value is None or isinstance(value, bool | int | float | str | dict) or _is_array(value):
        inside = []
    else:
        return {} if _function_name(value) else {name_of(value): value}
    return {name: part for item in inside for name, part in foreign_parts(item).items()}


def _fields(cls: type) -> list[str]:
    if hasattr(cls, "_fields"):
        return list(cls._fields)  # pyright: ignore[reportAttributeAccessIssue]
    return [f.name for f in dataclasses.fields(cls) if f.init or _is_module_class(cls)]


def _is_record(cls: Any) -> bool:
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def _class_name(cls: type) -> str | None:
    """The name under which a class is written; None if it is not one of ours."""
    package, _, module = cls.__module__.partition(".")
    if not _is_record(cls):
        return None
    if package == "equinox" and cls.__module__.startswith("equinox.nn") and _layer(cls.__name__) is cls:
        return f"equinox.nn.{cls.__name__}"
    if package != "aptinfer" or module.split(".")[0] not in OWN:
        return None
    public = aptinfer._WHERE.get(cls.__name__)
    return (
        cls.__name__ if public and getattr(aptinfer, cls.__name__) is cls else f"{module}.{cls.__qualname__}"
    )


def _class(name: Any) -> type:
    """The class of this library, or the layer of Equinox, with this name."""
    if not isinstance(name, str):
        raise RunFileError("a stored record has no name")
    cls = None
    if name in aptinfer._WHERE:
        cls = getattr(aptinfer, name) if aptinfer._WHERE[name].split(".")[0] in OWN else None
    elif name.startswith("equinox.nn."):
        cls = _layer(name.removeprefix("equinox.nn."))
    elif _DOTTED.fullmatch(name) and name.split(".")[0] in OWN:
        module, _, last = name.rpartition(".")
        try:
            cls = vars(importlib.import_module(f"aptinfer.{module}")).get(last)
        except ImportError:
            cls = None
        if getattr(cls, "__module__", None) != f"aptinfer.{module}":
            cls = None
    if cls is None or not _is_record(cls):
        raise RunFileError(f"a stored record is of an unknown class: {name[:60]!r}")
    return cls


def _layer(name: str) -> Any:
    import equinox as eqx

    return getattr(eqx.nn, name) if name in _LAYERS else None


def _is_module(value: Any) -> bool:
    return _is_module_class(type(value))


def _is_module_class(cls: type) -> bool:
    return any(base.__module__.startswith("equinox") and base.__name__ == "Module" for base in cls.__mro__)


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return True
    if not type(value).__module__.startswith(("jax", "jaxlib")):
        return False
    import jax

    return isinstance(value, jax.Array)


def _function_name(value: Any) -> str | None:
    name = getattr(value, "__name__", None)
    for module, names in _ELEMENTWISE.items():
        if name in names and getattr(importlib.import_module(module), str(name), None) is value:
            return f"{module}.{name}"
    return None


def _function(name: Any) -> Callable:
    module, _, last = str(name).rpartition(".")
    if last not in _ELEMENTWISE.get(module, ()):
        raise RunFileError(f"a stored function is unknown: {str(name)[:60]!r}")
    return getattr(importlib.import_module(module), last)
