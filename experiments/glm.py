"""The generalised linear model (appendix): 5 x 5000 simulations, 10 seeds with their own stimuli and
observations.

A single Gaussian from 2 x 10 tanh units for SNPE-A and SNPE-B, two MADEs of 2 x 10 for SNL and APT; MMD
against draws from Markov chains that agree.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.problems.problem import Problem
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, c2st, mmd, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "glm"
ROUNDS, SIMULATIONS, SEEDS = 5, 5000, 10
EPOCHS = 1000
FIRST_PAPER_SEED = 42


def methods(quick: bool = False) -> dict[str, Any]:
    epochs = settings.QUICK_EPOCHS if quick else EPOCHS
    flow, units = apt.MAF(layers=2, hidden=(10, 10)), settings.tanh(10, 10)
    return {
        "APT": settings.maf_apt(epochs, flow),
        "SNL": settings.snl(2 * epochs, flow),
        "SNPE-A": settings.snpe_a(1, epochs, embedding=units),
        "SNPE-B": settings.snpe_b(1, epochs, embedding=units),
        "aptinfer default": apt.APT(),
    }


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for method in scale.shown(methods()):
        found += scale.pieces(NAME, "glm", method, minutes=5, **sizes)
    return found


@cache
def problem_of(seed: int) -> Problem:
    return apt.problems.get("glm", seed=FIRST_PAPER_SEED + seed)


def metrics(measured: Round) -> dict[str, Any]:
    problem, draws = measured.problem, measured.draws
    exact = problem.reference_posterior(problem.observation, 5000)
    found = {"mmd": mmd(draws, exact)}
    if measured.is_last:
        found["c2st"] = c2st(draws, exact)
    return found


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    return run_piece(
        piece, problem_of, methods(piece.quick)[piece.method], metrics, folder, deadline=deadline
    )


def draw(results: Results, folder: Path) -> list[str]:
    made = pictures.figure(6.6, 3.0)
    first, second = made.subplots(1, 2)
    pictures.curves(first, results, NAME, "mmd", methods(), label="MMD")
    first.set_ylim(bottom=0)
    pictures.dots(second, results, NAME, "c2st", list(methods()))
    second.set_ylabel("C2ST, last round")
    second.set_ylim(0.5, 1)
    pictures.legend(made, first, columns=5)
    pictures.save(made, folder / "glm.png")
    return ["glm.png"]
