"""Figure 1 and the two-moons MMD: six methods on a posterior of two crescents.

10 x 1000 simulations, 10 seeds, shown after rounds 1, 5 and 10 (section 5.1; appendix, "Two moons model").
Mixtures have 20 components. SMC-ABC has 2.5 million simulations, which bring it to eps = 0.015.
"""

from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, c2st, every_round, mmd, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "1"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
COMPONENTS = 20
BANDWIDTH = (
    0.229  # median distance of exact draws; between two modes the median is one or the other by chance
)
SHOWN = (1, 5)  # rounds of which pictures are kept, besides the last
# SMC-ABC collects particles over blocks of simulations: so many at most, and their size.
BLOCKS, BLOCK = 2500, 1000
QUICK_BLOCKS = 200
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
    found += scale.pieces(NAME, "two_moons", "SNL", minutes=3, **sizes)
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
        keep=new_population if particles else every_round,
    )


def draw(results: Results, folder: Path) -> list[str]:
    """Posteriors of one seed after rounds 1, 5 and 10, row by row, and the MMD of all seeds."""
    methods_shown = [name for name in methods() if name in results.methods(NAME)]
    rounds = sorted({line["round"] for line in results.lines(NAME) if line["method"] in NEURAL})
    columns = [number for number in (*SHOWN, max(rounds, default=1)) if number in rounds]
    made = pictures.figure(7.2, 1.2 * len(methods_shown) + 0.4)
    grid, beside = made.subfigures(1, 2, width_ratios=(1.2 * len(columns) + 0.4, 2.9))
    axes = grid.subplots(len(methods_shown), len(columns), squeeze=False, sharex=True, sharey=True)
    for row, name in zip(axes, methods_shown, strict=True):
        kept = pictures.with_draws(results, (x for x in results.of(NAME, name) if x["seed"] == 0))
        by_round = {line["round"]: (line, draws) for line, draws in kept}
        if name == "SMC-ABC" and by_round:  # its rounds are blocks of simulations: the last one alone
            by_round = {columns[-1]: by_round[max(by_round)]}
        for axis, number in zip(row, columns, strict=True):
            axis.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5), xticks=[], yticks=[])
            axis.set_box_aspect(1)
            if number in by_round:
                line, draws = by_round[number]
                pictures.cloud(axis, draws, pictures.colour(name))
                pictures.small_title(axis, f"{line['simulations']:,} simulations")
            else:
                axis.spines[:].set_visible(False)
        row[0].set_ylabel(name, color=pictures.colour(name), fontsize=8)
    problem = apt.problems.get("two_moons")
    exact, upper, lower = beside.subplots(3, 1, height_ratios=(1.1, 1, 1))
    pictures.cloud(exact, problem.reference_posterior(problem.observation, 2000), pictures.TRUTH)
    exact.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5), xticks=[-0.5, 0, 0.5], yticks=[-0.5, 0, 0.5])
    exact.set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$", title="exact posterior")
    exact.set_box_aspect(1)
    pictures.dots(upper, results, NAME, "mmd", methods_shown)
    upper.set_ylabel("MMD, last round")
    upper.set_ylim(bottom=0)
    for seed in sorted({line["seed"] for line in results.of(NAME, "SMC-ABC")}):
        some = [line for line in results.of(NAME, "SMC-ABC") if line["seed"] == seed]
        lower.plot(
            [line["simulations"] for line in some],
            [line["metrics"]["mmd"] for line in some],
            color=pictures.colour("SMC-ABC"),
            linewidth=1,
        )
    for name in ("MAF-APT", "MDN-APT", "aptinfer default"):
        some = results.last(NAME, name)
        if some:
            value = np.mean([line["metrics"]["mmd"] for line in some])
            lower.scatter(
                some[0]["simulations"], value, s=18, color=pictures.colour(name), label=name, zorder=3
            )
    lower.plot([], [], color=pictures.colour("SMC-ABC"), label="SMC-ABC, by run")
    lower.set(xscale="log", xlabel="simulations", ylabel="MMD")
    lower.set_ylim(bottom=0)
    lower.legend(frameon=False, fontsize=7)
    pictures.save(made, folder / "figure_1.png")
    return ["figure_1.png"]
