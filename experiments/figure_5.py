"""Figure 5: Lotka-Volterra from raw series with a recurrent network, against nine summary statistics.

10 x 1000 simulations, 10 initialisations, without noise and with observation noise of sigma = 50. Both
networks end in two layers of 50 tanh units and a single Gaussian, with Gaussian proposals in closed form; the
recurrent one begins with 100 gated recurrent units (appendix, "Lotka-Volterra model").
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.problems.lotka_volterra import statistics
from aptinfer.problems.problem import Problem
from experiments import settings
from experiments.lines import Line
from experiments.measure import Round, moments, run_piece, surprise
from experiments.pieces import Piece, Scale

NAME = "5"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
EPOCHS = 2000
SERIES = {"without noise": "lotka_volterra_raw", "noisy": "lotka_volterra_noisy"}
QUICK_LIMIT = 10_000  # events of a simulation


def methods(quick: bool = False) -> dict[str, Any]:
    epochs = settings.QUICK_EPOCHS if quick else EPOCHS
    gru = apt.GRU(units=100, hidden=(50, 50))
    gaussian = apt.GaussianProposal()
    return {
        "RNN-APT": settings.mdn_apt(1, epochs, gaussian, embedding=gru),
        "APT, statistics": settings.mdn_apt(1, epochs, gaussian),
        "aptinfer default, series": apt.APT(),
    }


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for problem in SERIES:
        found += scale.pieces(
            NAME, problem, "RNN-APT", minutes=9, first=SEEDS, quick_simulations=300, **sizes
        )
        found += scale.pieces(NAME, problem, "APT, statistics", minutes=4, first=SEEDS, **sizes)
        if not scale.quick:
            found += scale.pieces(NAME, problem, "aptinfer default, series", minutes=9, later=2, **sizes)
    return found


@cache
def problem_of(name: str, method: str, limit: int) -> Problem:
    """The series, or its statistics where the method takes these."""
    series = apt.problems.get(SERIES[name], limit=limit)
    if not method.endswith("statistics"):
        return series
    raw: Any = series.simulator

    def simulate(key, theta):
        return statistics(raw.function(key, theta))

    return replace(
        series,
        simulator=apt.JaxSimulator(simulate, chunk=raw.chunk),
        observation=np.asarray(statistics(series.observation)),
        observations=None,
    )


def metrics(measured: Round) -> dict[str, Any]:
    """Where the posterior is, how wide, and how far the truth is from it in its own units."""
    draws, truth = measured.draws, measured.problem.truth
    error = draws.mean(axis=0) - truth
    return {
        "surprise": surprise(measured),
        "error": float(np.sqrt(np.mean(error**2))),
        "spread": float(np.exp(np.mean(np.log(draws.std(axis=0))))),
        "truth_in_sd": error / draws.std(axis=0),
        **moments(draws),
    }


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    limit = QUICK_LIMIT if piece.quick else 50_000
    return run_piece(
        piece,
        lambda seed: problem_of(piece.problem, piece.method, limit),
        methods(piece.quick)[piece.method],
        metrics,
        folder,
        deadline=deadline,
    )
