"""Figure 2: a simple likelihood and a complex posterior (SLCP), MMD by round.

40 x 1000 simulations, 10 seeds, one observation. APT with a masked autoregressive flow, SNL with a flow of
the likelihood and a single slice-sampling chain, SNPE-A (6 rounds) and SNPE-B with 8 components (section
5.2).
"""

from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, c2st, mmd, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "2"
ROUNDS, SIMULATIONS, SEEDS = 40, 1000, 10
EPOCHS, UNCUT = 500, "APT, rounds not cut"
SNPE_A_ROUNDS = 6  # five for proposals and the last one: "terminated after round 6"
BANDWIDTH = 2.138  # median distance of the published reference


def methods(quick: bool = False) -> dict[str, Any]:
    """Rounds of APT are cut, as the authors' were; trained until the loss settles they leak sooner."""
    usual = settings.usual(quick)
    if quick:
        return usual
    return usual | {"APT": settings.maf_apt(settings.cut(EPOCHS, ROUNDS)), UNCUT: usual["APT"]}


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"simulations": SIMULATIONS, "seeds": SEEDS, "quick_simulations": 500}
    found = scale.pieces(NAME, "slcp", "APT", rounds=ROUNDS, minutes=9, **sizes)
    found += scale.pieces(NAME, "slcp", "SNL", rounds=ROUNDS, minutes=9, **sizes)
    found += scale.pieces(NAME, "slcp", "SNPE-A", rounds=SNPE_A_ROUNDS, minutes=4, **sizes)
    found += scale.pieces(NAME, "slcp", "SNPE-B", rounds=ROUNDS, minutes=9, **sizes)
    if not scale.quick:
        found += scale.pieces(NAME, "slcp", UNCUT, rounds=ROUNDS, minutes=9, later=2, **sizes)
    found += scale.pieces(NAME, "slcp", "aptinfer default", rounds=ROUNDS, minutes=9, **sizes)
    return found


def metrics(measured: Round) -> dict[str, Any]:
    problem, draws = measured.problem, measured.draws
    exact = problem.reference_posterior(problem.observation, 5000)
    found = {"mmd": mmd(draws, exact, BANDWIDTH)}
    if measured.is_last:
        # The MMD hardly sees missing modes: signs of theta_3 and theta_4 are not identified.
        signs = (draws[:, 2] > 0) * 2 + (draws[:, 3] > 0)
        found |= {"c2st": c2st(draws, exact), "modes": np.bincount(signs, minlength=4) / len(draws)}
    return found


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    problem = apt.problems.get("slcp")
    return run_piece(
        piece, lambda seed: problem, methods(piece.quick)[piece.method], metrics, folder, deadline=deadline
    )


def draw(results: Results, folder: Path) -> list[str]:
    """Pair plots of APT and SNL beside exact draws, and the MMD by round."""
    problem = apt.problems.get("slcp")
    made = pictures.figure(7.2, 5.2)
    upper, lower = made.subfigures(2, 1, height_ratios=(1.15, 1))
    names = [rf"$\theta_{j}$" for j in range(1, 6)]
    shown = {"a  APT": "APT", "b  SNL": "SNL", "exact": None}
    for part, (title, method) in zip(upper.subfigures(1, 3), shown.items(), strict=True):
        if method is None:
            draws = problem.reference_posterior(problem.observation, 2000)
        else:
            draws = pictures.first_draws(results, NAME, method)
        part.suptitle(title, fontsize=9)
        if draws is None:
            pictures.nothing(part.subplots())
            continue
        pictures.pairs(part, {method or "exact": draws}, names, problem.truth, [(-3, 3)] * 5)
    left, right = lower.subplots(1, 2, width_ratios=(2.2, 1))
    pictures.curves(left, results, NAME, "mmd", methods(), label="MMD")
    left.set_ylim(bottom=0)
    left.set_title("c", loc="left", fontweight="bold")
    pictures.dots(right, results, NAME, "c2st", list(methods()))
    right.set_ylabel("C2ST, last round")
    right.set_ylim(0.5, 1)
    pictures.legend(lower, left, columns=5)
    pictures.save(made, folder / "figure_2.png")
    return ["figure_2.png"]
