"""Packages whose public names are imported when they are first used."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy(
    package: str, where: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        where: public names, and the module below the package in which each lives.
        modules: modules below the package that are public themselves.
    """
    names = [*where, *modules]

    def load(name: str) -> Any:
        if name in where:
            value = getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        elif name in modules:
            value = importlib.import_module(f"{package}.{name}")
        else:
            from aptinfer.checks import nearest

            raise AttributeError(f"module {package!r} has no attribute {name!r}. {nearest(name, names)}")
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(sys.modules[package].__all__)
