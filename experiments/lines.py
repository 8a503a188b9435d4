"""What was measured: one JSON line per problem, method, seed and round, appended and never edited.

A line has

    figure, problem, method, seed, round    what it is about; rounds count from 1
    rounds, simulations                     of the whole run, and simulations so far
    metrics                                 numbers, or lists of numbers (one per parameter)
    notes                                   what the run says of the round itself
    ended                                   whether the run had ended with it: all rounds, or an error
    failed                                  why the run has no such round, where it has none
    seconds                                 since the piece began, when the round had ended
    seconds_simulating                      of this run's round, where it has simulations
                                            (taken out of lines in which it counted waiting too)
    piece, piece_seconds, at_once           the piece, its length, and how many seeds ran side by side
    sharing                                 how many pieces shared the accelerator with it, itself counted
    device, versions, date

Draws for pictures are arrays beside them, `draws/<figure>/<problem>-<method>-<seed>-<round>.npy`.
"""

import datetime
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.pieces import Piece

RESULTS = Path(__file__).resolve().parent / "results"
KEY = ("figure", "problem", "method", "seed", "round")
FIELDS = (
    *KEY,
    "rounds",
    "simulations",
    "metrics",
    "notes",
    "ended",
    "seconds",
    "piece",
    "piece_seconds",
    "at_once",
    "device",
    "versions",
    "date",
)
DIGITS = 6
SHARING = "EXPERIMENTS_SHARING"  # the variable in which a piece is told how many share the accelerator

Line = dict[str, Any]


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers of six digits, NaN and infinity as None."""
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    array = np.asarray(value)
    if array.ndim:
        return [plain(entry) for entry in array]
    number = array.item()
    if isinstance(number, int):
        return number
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else None


def surroundings() -> Line:
    """The device, how many share it, the versions and the time."""
    import jax

    import aptinfer

    device = jax.devices()[0]
    return {
        "device": device.device_kind if device.platform != "cpu" else "CPU core",
        "sharing": int(os.environ.get(SHARING, "1")),
        "versions": {
            "python": platform.python_version(),
            "jax": jax.__version__,
            "aptinfer": aptinfer.__version__,
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def path(figure: str, folder: Path = RESULTS) -> Path:
    return folder / f"{figure}.jsonl"


def append(lines: Iterable[Line], folder: Path) -> None:
    """All lines of a piece at once: a piece that was stopped leaves none."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        with path(line["figure"], folder).open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(line)) + "\n")


def read(figure: str, *folders: Path) -> list[Line]:
    """The lines of a figure, of each key the last one, in the order of their keys."""
    found: dict[tuple, Line] = {}
    for folder in folders or (RESULTS,):
        if path(figure, folder).exists():
            for text in path(figure, folder).read_text(encoding="utf-8").splitlines():
                line = json.loads(text)
                found[tuple(line[name] for name in KEY)] = line
    return [found[key] for key in sorted(found)]


def seeds_left(piece: Piece, lines: Iterable[Line]) -> tuple[int, ...]:
    """The seeds of a piece that have neither run to their end nor failed, at this size or a larger one.

    A larger run that has not ended, but is as far as the piece goes, will do.
    """
    ended = {
        line["seed"]
        for line in lines
        if line["problem"] == piece.problem
        and line["method"] == piece.method
        and line["rounds"] >= piece.rounds
        and (line["ended"] or line["round"] >= piece.rounds)
    }
    return tuple(seed for seed in piece.seeds if seed not in ended)


def draws_path(folder: Path, line: Line) -> Path:
    name = slug(line["problem"], line["method"], line["seed"], line["round"])
    return folder / "draws" / str(line["figure"]) / f"{name}.npy"


def slug(*words: object) -> str:
    """A file's name made of words."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower())


def keep_draws(folder: Path, line: Line, draws: np.ndarray) -> None:
    """In half precision: enough for a picture."""
    target = draws_path(folder, line)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.save(target, draws.astype(np.float16))


def find_draws(line: Line, *folders: Path) -> np.ndarray | None:
    for folder in folders or (RESULTS,):
        if draws_path(folder, line).exists():
            return np.load(draws_path(folder, line)).astype(float)
    return None


def where(lines: Iterable[Line], **wanted: Any) -> Iterator[Line]:
    """The lines with these entries."""
    return (line for line in lines if all(line[name] == value for name, value in wanted.items()))
