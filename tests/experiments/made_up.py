"""Lines as pieces leave them, made up."""

from pathlib import Path
from typing import Any

from experiments import lines

EVERYTHING_ELSE = {
    "rounds": 2,
    "simulations": 2000,
    "notes": {},
    "ended": True,
    "seconds": 1.0,
    "piece": "made up",
    "piece_seconds": 60.0,
    "at_once": 1,
    "device": "CPU core",
    "versions": {},
    "date": "2019-06-10",
}


def line(
    figure: str, method: str, seed: int, *, problem: str = "p", round: int = 2, **metrics: Any
) -> lines.Line:
    about = {"figure": figure, "problem": problem, "method": method, "seed": seed, "round": round}
    return EVERYTHING_ELSE | about | {"metrics": metrics}


def seeds_of(figure: str, method: str, metric: str, values: list[float], **others: Any) -> list[lines.Line]:
    """One line per value, each of its own seed."""
    return [line(figure, method, seed, **{metric: value}, **others) for seed, value in enumerate(values)]


def written(folder: Path, *groups: list[lines.Line]) -> Path:
    for group in groups:
        lines.append(group, folder)
    return folder
