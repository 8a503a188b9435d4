"""Figure 4: Lotka-Volterra with nine summary statistics.

10 x 1000 simulations, 10 seeds: -log q(theta*) by a kernel density estimate, the same for all methods, and
the median distance of each round's simulations from x_o, in units of the statistics' spread under the prior
(section 5.4; appendix, "Lotka-Volterra model").
"""

from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from experiments import settings
from experiments.lines import Line
from experiments.measure import Round, kde_surprise, moments, run_piece
from experiments.pieces import Piece, Scale

NAME = "4"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
# Standard deviations of the statistics over 1000 successful simulations from the prior, from the published
# code.
SCALE = np.array(
    [
        592.3261070679229,
        54.66499823179135,
        2.969361491862029,
        0.9018732576373955,
        0.17981176374868152,
        0.2567860903637174,
        0.2662085535541585,
        0.2029963801597384,
        0.3757516130682276,
    ]
)


def methods(quick: bool = False) -> dict[str, Any]:
    most = settings.QUICK_EPOCHS if quick else 5000
    return {
        "APT": settings.maf_apt(min(most, 500)),
        "SNL": settings.snl(min(most, 2000)),
        "SNPE-A": settings.snpe_a(8, min(most, 1000), precision=0.01),
        "SNPE-B": settings.snpe_b(8, min(most, 1000), precision=0.01),
        "aptinfer default": apt.APT(),
    }


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for method in methods():
        chain = method == "SNL"
        found += scale.pieces(
            NAME, "lotka_volterra", method, minutes=8 if chain else 4, single_core=chain, **sizes
        )
    return found


def metrics(measured: Round) -> dict[str, Any]:
    distance = apt.diagnostics.median_distance(measured.simulated, measured.problem.observation, scale=SCALE)
    return {"kde_surprise": kde_surprise(measured), "distance": distance, **moments(measured.draws)}


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    problem = apt.problems.get("lotka_volterra")
    return run_piece(
        piece, lambda seed: problem, methods(piece.quick)[piece.method], metrics, folder, deadline=deadline
    )
