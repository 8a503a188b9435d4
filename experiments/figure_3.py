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
from experiments import pictures, settings
from experiments.figure_2 import BANDWIDTH, EPOCHS, UNCUT
from experiments.lines import Line
from experiments.measure import Round, mmd, run_piece
from experiments.networks import wide_enough
from experiments.pieces import ON_CORES, Piece, Scale
from experiments.results import Results, mean_of

NAME = "3"
ROUNDS, SIMULATIONS, SEEDS = 40, 1000, 5
SNPE_A_ROUNDS = 6
DISTRACTORS = (12, 32, 52, 92)
FIRST_PAPER_SEED = 52
INFORMATIVE = 8
MEASURED = 5  # every so many rounds, and the last: only that is shown
PARTICLES, WIDER = "SNL, particles", "SNL, particles, wider"
VARIANTS = (UNCUT, PARTICLES, WIDER)


def methods(d: int, quick: bool = False) -> dict[str, Any]:
    """As in figure 2, rounds of APT are cut. Variants tell apart what a deviation changes."""
    most = settings.QUICK_EPOCHS if quick else 5000
    uncut = settings.maf_apt(min(most, EPOCHS))
    usual = {
        "APT": uncut if quick else settings.maf_apt(settings.cut(EPOCHS, ROUNDS)),
        "SNL": settings.snl(min(most, 2000)),
        "SNPE-A": settings.snpe_a(8, min(most, 1000), precision=0.01),
        "SNPE-B": settings.snpe_b(8, min(most, 500), precision=0.01),
    }
    if quick:
        return usual
    particles = apt.samplers.Automatic()
    return usual | {
        UNCUT: uncut,
        PARTICLES: settings.snl(2000, sampler=particles),
        WIDER: settings.snl(2000, wide_enough(d), sampler=particles),
    }


def pieces(scale: Scale) -> list[Piece]:
    """The largest number of distractors first: there the methods differ most."""
    shown = (DISTRACTORS[-1],) if scale.quick else DISTRACTORS[::-1]
    sizes: dict[str, Any] = {"simulations": SIMULATIONS, "seeds": SEEDS, "minutes": 9.0}
    return [
        piece
        for m in shown
        for method in methods(INFORMATIVE + m, scale.quick)
        for piece in scale.pieces(
            NAME,
            f"dim(x) = {INFORMATIVE + m}",
            method,
            rounds=SNPE_A_ROUNDS if method == "SNPE-A" else ROUNDS,
            single_core=method in ON_CORES,
            later=2 * (method in VARIANTS),
            **sizes,
        )
    ]


@cache
def problem_of(d: int, seed: int) -> Problem:
    return apt.problems.get("slcp_distractors", distractors=d - INFORMATIVE, seed=FIRST_PAPER_SEED + seed)


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
    d = int(piece.problem.rpartition(" ")[2])
    return run_piece(
        piece,
        lambda seed: problem_of(d, seed),
        methods(d, piece.quick)[piece.method],
        metrics,
        folder,
        deadline=deadline,
        keep=lambda run, number: (number + 1) % MEASURED == 0 or number + 1 == len(run.rounds),
    )


def draw(results: Results, folder: Path) -> list[str]:
    """The MMD in the last round over dim(x), with the prior's and that of exact draws."""
    made = pictures.figure(4.6, 3.2)
    axis = made.subplots()
    sizes = [INFORMATIVE, *(INFORMATIVE + m for m in DISTRACTORS)]
    for method in methods(INFORMATIVE):
        values = {
            d: results.at_end("2", method, "mmd")[:SEEDS]
            if d == INFORMATIVE
            else results.at_end(NAME, method, "mmd", f"dim(x) = {d}")
            for d in sizes
        }
        means = {d: mean_of(some) for d, some in values.items() if len(some)}
        if not means:
            continue
        x, y = list(means), [mean.value for mean in means.values()]
        axis.errorbar(
            x,
            y,
            np.nan_to_num([mean.error for mean in means.values()]),
            color=pictures.colour(method),
            marker="o",
            markersize=3.5,
            linewidth=1.4,
            capsize=2,
            label=method,
        )
        for d in means:
            axis.scatter([d] * len(values[d]), values[d], s=7, color=pictures.colour(method), alpha=0.4)
    for metric, text in (("mmd_prior", "prior"), ("mmd_exact", "exact draws")):
        level = np.concatenate(
            [results.at_end(NAME, method, metric) for method in results.methods(NAME)] or [[]]
        )
        if len(level):
            axis.axhline(float(np.mean(level)), color=pictures.GREY, linewidth=1)
            axis.annotate(
                text, (0.99, np.mean(level)), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
    axis.set(xlabel="dim(x)", ylabel="MMD, last round", xticks=sizes)
    axis.set_ylim(bottom=0)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, loc="upper left", ncols=2, fontsize=7, bbox_to_anchor=(0, 0.93))
    pictures.save(made, folder / "figure_3.png")
    return ["figure_3.png"]
