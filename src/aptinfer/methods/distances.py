"""How far simulated data are from the observation: what approximate Bayesian computation accepts by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aptinfer.errors import SamplingError
from aptinfer.methods.learning import Task
from aptinfer.protocols import Simulations
from aptinfer.scaling import fit_scaling, in_blocks

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]
FEWEST = 20  # the closest rows that stand in for a posterior where fewer were accepted


@dataclass(frozen=True, eq=False)
class Standardised:
    """Euclidean distance in units of `spread`."""

    spread: np.ndarray

    def __call__(self, x: np.ndarray, x_o: np.ndarray) -> np.ndarray:
        return np.concatenate([self._block(block, x_o) for block in in_blocks(x)])

    def _block(self, x: np.ndarray, x_o: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            units = (np.asarray(x, np.float64) - x_o) / self.spread
            return np.sqrt(np.sum(units.reshape(len(units), -1) ** 2, axis=1))


def standardised(rows: Simulations) -> Standardised:
    """The default distance: by the robust spread of every entry of x in these rows."""
    return Standardised(fit_scaling(rows.x, rows.done).spread)


def try_distance(name: str, distance: Distance | None, x_o: np.ndarray) -> None:
    """Call a user's distance before anything is simulated, on copies of x_o."""
    if distance is None:
        return
    found = np.asarray(distance(np.stack([x_o] * 3), x_o))
    if found.shape != (3,):
        raise ValueError(
            f"{name} distance got 3 rows of x, shape {(3, *x_o.shape)}, and must return one number for each, "
            f"shape (3,); it returned shape {found.shape}. For vectors: "
            f"lambda x, x_o: np.linalg.norm(x - x_o, axis=1)."
        )


class Candidates(NamedTuple):
    """Rows and their distances from x_o, in the order of their numbers; `row` is counted within the round."""

    row: np.ndarray
    value: np.ndarray
    theta: np.ndarray
    distance: np.ndarray

    def take(self, rows: np.ndarray) -> "Candidates":
        return Candidates(*(column[rows] for column in self))

    def joined(self, more: "Candidates") -> "Candidates":
        return Candidates(*(np.concatenate(both) for both in zip(self, more, strict=True)))

    def within(self, eps: float) -> "Candidates":
        return self.take(self.distance <= eps)

    def closest(self, n: int) -> "Candidates":
        """The `n` closest rows, still in the order of their numbers."""
        return self.take(np.sort(np.argsort(self.distance, kind="stable")[:n]))


def candidates(distance: Distance, task: Task) -> Candidates:
    """This round's rows at finite distances; failed simulations are never close."""
    done = np.flatnonzero(task.newest.done)
    found = np.empty(0)
    if len(done):
        x = task.newest.x if len(done) == len(task.newest.x) else task.newest.x[done]
        found = np.asarray(distance(x, task.observation), np.float64)
    if found.shape != done.shape or np.isnan(found).any() or (found < 0).any():
        raise SamplingError(
            f"distance must return one number of at least 0 for each of {len(done)} rows of x; it returned "
            + (f"shape {found.shape}." if found.shape != done.shape else "NaN or negative numbers.")
        )
    finite = np.isfinite(found)
    if task.number == 0 and not finite.any():
        raise SamplingError(
            "the distance of every simulation from x_o is infinite, so that none can be accepted. Check "
            "distance= and x_o."
        )
    rows = done[finite]
    value = task.newest.value[rows].astype(np.float64)
    return Candidates(rows, value, task.newest.theta[rows], found[finite])
