"""M/G/1, a queue with one server (appendix): 20 x 1000 simulations, 10 seeds, one observation.

The paper's flow for APT and SNL, 8 components for SNPE-A and SNPE-B; -log q(theta*) and median distances as
in figure 4, in whitened statistics. The second parameter is the range of service times, theta_2 - theta_1, so
that
the prior is a box: an affine change of determinant one, which leaves densities as they are.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import aptinfer as apt
from aptinfer.problems.mg1 import whiten
from aptinfer.problems.problem import Problem
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, kde_surprise, moments, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "mg1"
ROUNDS, SIMULATIONS, SEEDS = 20, 1000, 10


def methods(quick: bool = False) -> dict[str, Any]:
    """The authors' README suggests that their figure had the combined loss: both are run."""
    usual, epochs = settings.usual(quick), settings.QUICK_EPOCHS if quick else 500
    combined = settings.maf_apt(epochs, loss=apt.Combined(atoms=100))
    return {"APT": usual["APT"], "APT, combined loss": combined} | usual


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for method in scale.shown(methods()):
        variant = method == "APT, combined loss"
        if not (variant and scale.quick):
            found += scale.pieces(NAME, "mg1", method, minutes=6, later=int(variant), **sizes)
    return found


@cache
def in_a_box() -> Problem:
    published = apt.problems.get("mg1")
    simulate: Any = published.simulator
    truth = published.truth
    assert truth is not None

    def shifted(key, theta):
        return simulate.function(key, jnp.stack([theta[0], theta[0] + theta[1], theta[2]]))

    return replace(
        published,
        prior=apt.box(
            [0, 0, 0], [10, 10, 1 / 3], names=("shortest_service", "service_range", "arrival_rate")
        ),
        simulator=apt.JaxSimulator(shifted),
        truth=np.array([truth[0], truth[1] - truth[0], truth[2]]),
    )


def metrics(measured: Round) -> dict[str, Any]:
    x_o = measured.problem.observation
    distance = apt.diagnostics.median_distance(whiten(measured.simulated), whiten(x_o))
    return {"kde_surprise": kde_surprise(measured), "distance": distance, **moments(measured.draws)}


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    problem = in_a_box()
    return run_piece(
        piece, lambda seed: problem, methods(piece.quick)[piece.method], metrics, folder, deadline=deadline
    )


def draw(results: Results, folder: Path) -> list[str]:
    made = pictures.figure(6.6, 3.0)
    first, second = made.subplots(1, 2)
    pictures.curves(first, results, NAME, "kde_surprise", methods(), label=r"$-\log\, q(\theta^*)$")
    pictures.curves(
        second, results, NAME, "distance", methods(), label=r"median $|\bar x - \bar x_o|$, whitened"
    )
    second.set_yscale("log")
    pictures.legend(made, first, columns=3)
    pictures.save(made, folder / "mg1.png")
    return ["mg1.png"]
