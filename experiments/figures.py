"""The figures and tables by name, in the order of the paper."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MODULES = {
    "1": "figure_1",
    "table_1": "table_1",
    "2": "figure_2",
    "3": "figure_3",
    "4": "figure_4",
    "5": "figure_5",
    "6": "figure_6",
    "mg1": "mg1",
    "glm": "glm",
    "complexity": "complexity",
    "proposition_1": "proposition_1",
}
NAMES = tuple(MODULES)


def module(name: str) -> Any:
    """The module of a figure: `pieces(scale)`, `run(piece, folder, deadline)` and `draw(...)`."""
    return importlib.import_module(f"experiments.{MODULES[name]}")


def pictures(name: str, folder: Path) -> list[Path]:
    """The picture of a figure, where it has been drawn."""
    return [path for path in [folder / f"{MODULES[name]}.png"] if path.exists()]


def ordered(name: str, methods: Iterable[str]) -> list[str]:
    """Methods in the order in which the figure has its colours, the library's default at the end."""
    return sorted(methods, key=lambda method: (method.startswith("aptinfer"), method))
