"""The published benchmark's observations, shipped with the package; `data/README.md` says whose they are."""

from importlib import resources

import numpy as np

__all__ = ["arrays", "observations"]


def arrays(*keys: str) -> tuple[np.ndarray, ...]:
    """Arrays of `data/benchmark.npz`, by name; only those asked for are decompressed."""
    path = resources.files("aptinfer.problems") / "data" / "benchmark.npz"
    with path.open("rb") as file, np.load(file) as archive:
        return tuple(archive[key] for key in keys)


def observations(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Observations 1 to 5 of a problem, (5, data), and the parameters behind them, (5, dim)."""
    x, theta = arrays(f"{name}_observations", f"{name}_truths")
    return x, theta
