"""The figures and tables by name, in the order of the paper."""

import importlib
from typing import Any

MODULES = {
    "5": "figure_5",
    "6": "figure_6",
}
NAMES = tuple(MODULES)


def module(name: str) -> Any:
    """The module of a figure: `pieces(scale)`, `run(piece, folder, deadline)` and `draw(...)`."""
    return importlib.import_module(f"experiments.{MODULES[name]}")
