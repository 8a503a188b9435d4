"""Figure 3: SLCP with uninformative data: MMD at the end for dim(x) = 8, 20, 40, 60 and 100.

40 x 1000 simulations, 5 seeds, each with its own distractors (section 5.3; appendix, "SLCP model"). dim(x) =
8 is SLCP itself: these numbers are those of figure 2.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.problems.problem import Problem
from experiments import settings
from experiments.figure_2 import BANDWIDTH
from experiments.lines import Line
from experiments.measure import Round, mmd, run_piece
from experiments.pieces import Piece, Scale

NAME = "3"
ROUNDS, SIMULATIONS, SEEDS = 40, 1000, 5
SNPE_A_ROUNDS = 6
DISTRACTORS = (12, 32, 52, 92)
FIRST_PAPER_SEED = 52
INFORMATIVE = 8


def methods(quick: bool = False) -> dict[str, Any]:
    most = settings.QUICK_EPOCHS if quick else 5000
    return {
        "APT": settings.maf_apt(min(most, 500)),
        "SNL": settings.snl(min(most, 2000), sampler=apt.samplers.Automatic()),
        "SNPE-A": settings.snpe_a(8, min(most, 1000), precision=0.01),
        "SNPE-B": settings.snpe_b(8, min(most, 500), precision=0.01),
    }


def pieces(scale: Scale) -> list[Piece]:
    """The largest number of distractors first: there the methods differ most."""
    shown = (DISTRACTORS[-1],) if scale.quick else DISTRACTORS[::-1]
    sizes: dict[str, Any] = {"simulations": SIMULATIONS, "seeds": SEEDS, "minutes": 9.0}
    return [
        piece
        for m in shown
        for method in methods()
        for piece in scale.pieces(
            NAME,
            f"dim(x) = {INFORMATIVE + m}",
            method,
            rounds=SNPE_A_ROUNDS if method == "SNPE-A" else ROUNDS,
            **sizes,
        )
    ]


@cache
def problem_of(name: str, seed: int) -> Problem:
    m = int(name.rpartition(" ")[2]) - INFORMATIVE
    return apt.problems.get("slcp_distractors", distractors=m, seed=FIRST_PAPER_SEED + seed)


def metrics(measured: Round) -> dict[str, Any]:
    """Against the posterior of SLCP, which the distractors do not change."""
    problem, draws = measured.problem, measured.draws
    exact = problem.reference_posterior(problem.observation, 5000)
    found = {"mmd": mmd(draws, exact, BANDWIDTH)}
    if measured.is_last:
        prior = problem.prior.sample(np.random.default_rng(0), 5000)
        again = problem.reference_posterior(problem.observation, 1000, seed=1)
        found |= {"mmd_prior": mmd(prior, exact, BANDWIDTH), "mmd_exact": mmd(again, exact, BANDWIDTH)}
    return found


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    return run_piece(
        piece,
        lambda seed: problem_of(piece.problem, seed),
        methods(piece.quick)[piece.method],
        metrics,
        folder,
        deadline=deadline,
    )
