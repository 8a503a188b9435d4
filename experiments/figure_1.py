"""Figure 1 and the two-moons MMD: six methods on a posterior of two crescents.

10 x 1000 simulations, 10 seeds, shown after rounds 1, 5 and 10 (section 5.1; appendix, "Two moons model").
Mixtures have 20 components. SMC-ABC has as many simulations as it needs, down to eps = 0.01.
"""

from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from experiments import settings
from experiments.lines import Line
from experiments.measure import Round, c2st, mmd, run_piece
from experiments.pieces import Piece, Scale

NAME = "1"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
COMPONENTS = 20
BANDWIDTH = (
    0.229  # median distance of exact draws; between two modes the median is one or the other by chance
)
SHOWN = (1, 5)  # rounds of which pictures are kept, besides the last
# SMC-ABC collects particles over blocks of simulations: so many at most, and their size.
BLOCKS, BLOCK = 600, 10_000
QUICK_BLOCKS = 10
EPS = (1.0, 0.01)
NEURAL = ("SNPE-A", "SNPE-B", "MDN-APT", "MAF-APT", "aptinfer default")


def euclidean(x: np.ndarray, x_o: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x - x_o, axis=1)


def methods(quick: bool = False) -> dict[str, Any]:
    """Epochs at most: 500 for SNPE-A and SNPE-B, 5000 for the mixtures of APT, 1000 for its flow."""
    most = settings.QUICK_EPOCHS if quick else 5000
    return {
        "SNPE-A": settings.snpe_a(COMPONENTS, min(most, 500)),
        "SNPE-B": settings.snpe_b(COMPONENTS, min(most, 500), precision=0.001),
        "SNL": settings.snl(min(most, 2000)),
        "SMC-ABC": apt.SMCABC(
            particles=1000,
            eps=(1.0, 0.1) if quick else EPS,
            kernel=2.0,
            distance=euclidean,
            space=apt.Theta(),
        ),
        "MDN-APT": settings.mdn_apt(COMPONENTS, min(most, 5000)),
        "MAF-APT": settings.maf_apt(min(most, 1000)),
        "aptinfer default": apt.APT(),
    }


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for method in NEURAL:
        found += scale.pieces(NAME, "two_moons", method, minutes=3, **sizes)
    found += scale.pieces(NAME, "two_moons", "SNL", minutes=3, single_core=True, **sizes)
    for stage, group in enumerate(scale.groups(SEEDS)):
        blocks = QUICK_BLOCKS if scale.quick else BLOCKS
        found += [
            Piece(NAME, "two_moons", "SMC-ABC", (seed,), blocks, BLOCK, 6, True, stage, scale.quick)
            for seed in group
        ]
    return found


def on_crescents(theta: np.ndarray) -> float:
    """The share of draws within three standard deviations of the crescents of x_o = 0: 0.997, if exact."""
    u = np.abs(theta[:, 0] + theta[:, 1]) / np.sqrt(2) - 0.25
    v = (theta[:, 0] - theta[:, 1]) / np.sqrt(2)
    return float(np.mean((u > 0) & (np.abs(np.hypot(u, v) - 0.1) < 0.03)))


def metrics(measured: Round) -> dict[str, Any]:
    problem, draws = measured.problem, measured.draws
    exact = problem.reference_posterior(problem.observation, 5000)
    found = {
        "mmd": mmd(draws, exact, BANDWIDTH),
        "on_crescents": on_crescents(draws),
        "share_upper": float(np.mean(draws.sum(axis=1) > 0)),
    }
    if measured.is_last:
        found["c2st"] = c2st(draws, exact)
    return found


def new_population(run: apt.Run, number: int) -> bool:
    """Whether SMC-ABC completed a population in this block of simulations."""
    before = run.rounds[number - 1].notes["population"] if number else 0
    return run.rounds[number].notes["population"] > before


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    problem = apt.problems.get("two_moons")
    particles = piece.method == "SMC-ABC"
    return run_piece(
        piece,
        lambda seed: problem,
        methods(piece.quick)[piece.method],
        metrics,
        folder,
        deadline=deadline,
        pictures=() if particles else SHOWN,
        **({"keep": new_population} if particles else {}),
    )
