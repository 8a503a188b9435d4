"""The lines of all figures, as claims, tables and pictures ask for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments import lines
from experiments.lines import Line


class Mean(NamedTuple):
    """The mean of some seeds' numbers, its standard error (NaN of a single one), and how many there are."""

    value: float
    error: float
    count: int

    def __str__(self) -> str:
        if not self.count:
            return "–"
        digits = f"{self.value:.3g}"
        if np.isnan(self.error):
            return digits
        return f"{digits} ± {self.error:.2g}"


def mean_of(values: Sequence[float] | np.ndarray) -> Mean:
    array = np.asarray(values, float)
    array = array[np.isfinite(array)]
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else np.nan
    return Mean(float(array.mean()) if len(array) else np.nan, float(error), len(array))


@dataclass(frozen=True)
class Results:
    """What lies in some folders; of two lines about the same the later folder's counts."""

    folders: tuple[Path, ...] = (lines.RESULTS,)

    def lines(self, figure: str) -> list[Line]:
        return _read(figure, self.folders)

    def of(self, figure: str, method: str, problem: str | None = None) -> list[Line]:
        """The lines of a method that have metrics."""
        return [
            line
            for line in self.lines(figure)
            if line["method"] == method and line["metrics"] and problem in (None, line["problem"])
        ]

    def last(self, figure: str, method: str, problem: str | None = None) -> list[Line]:
        """Of every seed that has run to its end, the last line; where the last round could not be measured
        the one before it, as the user of a failed run has it."""
        ended = {
            (x["problem"], x["seed"]) for x in self.lines(figure) if x["method"] == method and x["ended"]
        }
        found: dict[tuple, Line] = {}
        for line in self.of(figure, method, problem):
            if (line["problem"], line["seed"]) in ended:
                found[line["problem"], line["seed"]] = line
        return list(found.values())

    def at_end(self, figure: str, method: str, metric: str, problem: str | None = None) -> np.ndarray:
        """A metric in the last round, one number (or row) per seed."""
        return _numbers(self.last(figure, method, problem), metric)

    def by_round(
        self, figure: str, method: str, metric: str, problem: str | None = None
    ) -> dict[int, np.ndarray]:
        """A metric of every round, one number per seed that has it."""
        found: dict[int, list[Line]] = {}
        for line in self.of(figure, method, problem):
            found.setdefault(line["round"], []).append(line)
        return {number: _numbers(some, metric) for number, some in sorted(found.items())}

    def methods(self, figure: str, problem: str | None = None) -> list[str]:
        """Those that have lines."""
        return list(dict.fromkeys(x["method"] for x in self.lines(figure) if problem in (None, x["problem"])))

    def problems(self, figure: str) -> list[str]:
        return list(dict.fromkeys(x["problem"] for x in self.lines(figure)))

    def failures(self, figure: str) -> list[Line]:
        return [line for line in self.lines(figure) if "failed" in line]

    def minutes(self, figure: str) -> dict[str, float]:
        """How long the pieces of a figure took, by device; of pieces that shared one, their part of it."""
        pieces = {
            (x["device"], x["piece"], x["piece_seconds"] / x.get("sharing", 1)) for x in self.lines(figure)
        }
        found: dict[str, float] = {}
        for device, _, seconds in pieces:
            found[device] = found.get(device, 0.0) + seconds / 60
        return dict(sorted(found.items()))

    def draws(self, line: Line) -> np.ndarray | None:
        return lines.find_draws(line, *self.folders)


def _numbers(some: Sequence[Line], metric: str) -> np.ndarray:
    values = [line["metrics"].get(metric) for line in some]
    present = [value for value in values if value is not None]
    return np.array(present, float)


@cache
def _read(figure: str, folders: tuple[Path, ...]) -> list[Line]:
    return lines.read(figure, *folders)
