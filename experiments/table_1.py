"""Table 1: which proposals, priors and density families each method takes, asked of the library itself.

Every entry is an attempt at the door: `apt.infer` either refuses the combination before the first simulation,
with an error that says why, or begins to simulate. The simulator used here only says that it was reached.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpyro import distributions

import aptinfer as apt
from experiments.lines import Line
from experiments.measure import about
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "table_1"
METHODS = {"SMC-ABC": apt.SMCABC, "SNPE-A": apt.SNPEA, "SNPE-B": apt.SNPEB, "SNL": apt.SNL, "APT": apt.APT}
# What the paper's table says.
PAPER = {
    "SMC-ABC": ("Any", "Any", "Discrete"),
    "SNPE-A": ("Gauss", "Gauss/Uni", "MDN"),
    "SNPE-B": ("Any", "Any", "Any"),
    "SNL": ("Any", "Any", "Any (MCMC)"),
    "APT": ("Any", "Any", "Any"),
}


class Plain:
    """A prior of which nothing is known but draws and a density, or a proposal that only draws."""

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.uniform(-1, 1, (n, 2))

    def log_prob(self, theta: np.ndarray) -> np.ndarray:
        inside = np.all(np.abs(theta) <= 1, axis=-1)
        return np.where(inside, -np.log(4.0), -np.inf)


def unit_box() -> Any:
    return apt.box([-1, -1], [1, 1])


PRIORS = {
    "Gaussian": lambda: apt.gaussian(np.zeros(2), np.eye(2)),
    "uniform": unit_box,
    "gamma": lambda: apt.Prior(a=distributions.Gamma(2.0, 1.0), b=distributions.Gamma(2.0, 1.0)),
    "draws and density only": Plain,
}
ESTIMATORS = {"mixture": lambda: apt.MDN(2), "flow": lambda: apt.MAF()}
PROPOSALS = {"truncated prior": lambda: apt.Truncated(), "draws only": Plain}


def accepted(method: Any, prior: Any, settings: dict[str, Any], given: bool = False) -> bool:
    """Whether a run with these settings begins; `given`: with simulations of unknown origin to begin with."""

    def reached(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        raise RuntimeError("reached")

    done: dict[str, Any] = {}
    if given:
        theta = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2))
        done = {"simulations_done": (theta, theta)}
    try:
        apt.infer(
            reached,
            prior,
            np.zeros(2),
            method=method(**settings),
            rounds=2,
            simulations=200,
            progress=False,
            **done,
        )
    except apt.SimulationError:
        return True
    except (TypeError, ValueError):
        return False
    raise AssertionError("the simulator was never asked")


def answers(name: str) -> dict[str, Any]:
    """What a method says to every question of the table."""
    method = METHODS[name]
    return {
        "priors": {kind: accepted(method, prior(), {}) for kind, prior in PRIORS.items()},
        "estimators": {
            kind: accepted(method, unit_box(), {"estimator": estimator()})
            for kind, estimator in ESTIMATORS.items()
        },
        "proposals": {
            kind: accepted(method, unit_box(), {"proposal": proposal()})
            for kind, proposal in PROPOSALS.items()
        }
        | {"simulations of unknown origin": accepted(method, unit_box(), {}, given=True)},
    }


def entries(found: dict[str, Any]) -> tuple[str, str, str]:
    """The answers as the paper's three columns."""
    proposals, priors, estimators = found["proposals"], found["priors"], found["estimators"]
    if proposals["draws only"]:
        proposal = "any"
    elif proposals["truncated prior"]:
        proposal = "any with a density"
    elif proposals["simulations of unknown origin"]:
        proposal = "its own posterior; given simulations of any origin"
    else:
        proposal = "its own"
    if priors["draws and density only"]:
        prior = "any"
    else:
        prior = "any that maps to N(0, I)" if priors["gamma"] else "Gaussian, uniform"
    if estimators["flow"]:
        family = "any"
    else:
        family = "mixtures of Gaussians" if estimators["mixture"] else "particles"
    return proposal, prior, family


def pieces(scale: Scale) -> list[Piece]:
    return [Piece(NAME, "door", name, (0,), 1, 1, 1, True, quick=scale.quick) for name in METHODS]


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    del folder, deadline
    began = time.monotonic()
    found = answers(piece.method)
    seconds = time.monotonic() - began
    line = {"round": 1, "simulations": 0, "ended": True, "notes": {}, "metrics": found}
    return [about(piece, 0) | line | {"seconds": seconds, "piece_seconds": seconds}]


def draw(results: Results, folder: Path) -> list[str]:
    """A table needs no picture: the report has it as text."""
    del results, folder
    return []
