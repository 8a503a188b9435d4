"""A small run for the tests of run files, and how it is interrupted."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aptinfer as apt

TRAINER = apt.Trainer(epochs=12, patience=5, learning_rate=5e-3, warmup=10)
METHOD = apt.APT(estimator=apt.MDN(components=2), embedding=apt.MLP((8,)), trainer=TRAINER)
SIMULATIONS = 40
MOMENTS = [
    ("Simulated", 0),
    ("Trained", 0),
    ("RoundStarted", 1),
    ("Simulated", 1),
    ("Trained", 1),
    ("RoundFinished", 1),
    ("Trained", 2),
]


class Interrupted(Exception):  # noqa: N818
    """Ends a run from a listener, as a crash would."""


def simulate(rng, theta):
    return theta + 0.2 * rng.standard_normal(2)


def infer(file: Path | None = None, **settings: Any) -> apt.Run:
    settings = {"method": METHOD, "rounds": 3, "simulations": SIMULATIONS, "progress": False} | settings
    simulator, prior = settings.pop("simulator", simulate), settings.pop("prior", apt.box([-1, -1], [1, 1]))
    return apt.infer(simulator, prior, settings.pop("x_o", [0.2, 0.3]), file=file, **settings)


def interrupt(kind: str, number: int) -> Callable[[Any], None]:
    """A listener that interrupts at the first event of a kind in a round."""

    def listen(event):
        if type(event).__name__ == kind and event.number == number:
            raise Interrupted

    return listen


def interrupted_everywhere(path: Path, moments=MOMENTS, **settings: Any) -> None:
    """Begin a run, and carry it on until the next moment, from one moment to the next."""
    for moment in moments:
        with pytest.raises(Interrupted):
            infer(path, listen=interrupt(*moment), **settings)


def assert_same_bits(one: apt.Run, two: apt.Run) -> None:
    for a, b in zip(one.simulations, two.simulations, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    assert len(one.rounds) == len(two.rounds)
    for a, b in zip(one.rounds, two.rounds, strict=True):
        np.testing.assert_array_equal(a.posterior.sample(50), b.posterior.sample(50))
        np.testing.assert_equal(a.notes, b.notes)
        if a.history is not None and b.history is not None:
            np.testing.assert_array_equal(a.history.validation_loss, b.history.validation_loss)


def assert_sound(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
