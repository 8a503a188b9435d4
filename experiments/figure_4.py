"""Figure 4: Lotka-Volterra with nine summary statistics.

10 x 1000 simulations, 10 seeds: -log q(theta*) by a kernel density estimate, the same for all methods, and
the median distance of each round's simulations from x_o, in units of the statistics' spread under the prior
(section 5.4; appendix, "Lotka-Volterra model").
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import aptinfer as apt
from aptinfer.problems.problem import Problem
from aptinfer.protocols import Rows
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, kde_surprise, moments, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "4"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
BLUR = 1e-3  # noise in SNL's statistics, in units of their spread
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
    return settings.usual(quick)


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for method in scale.shown(methods()):
        minutes = 8 if method == "SNL" else 4
        found += scale.pieces(NAME, "lotka_volterra", method, minutes=minutes, **sizes)
    return found


def metrics(measured: Round) -> dict[str, Any]:
    distance = apt.diagnostics.median_distance(measured.simulated, measured.problem.observation, scale=SCALE)
    return {"kde_surprise": kde_surprise(measured), "distance": distance, **moments(measured.draws)}


@cache
def problem_of(method: str) -> Problem:
    """The published problem; for SNL with a thousandth of the statistics' spread as noise.

    In most simulations from the prior the prey dies at once, and statistics have one and the same value: they
    have no density, and the library says so.
    """
    published = apt.problems.get("lotka_volterra")
    if method != "SNL":
        return published
    exact: Any = published.simulator

    def blurred(key, theta):
        for_process, for_noise = jax.random.split(key)
        noise = jax.random.normal(for_noise, SCALE.shape, theta.dtype)
        return exact.function(for_process, theta) + BLUR * jnp.asarray(SCALE, theta.dtype) * noise

    return replace(published, simulator=apt.JaxSimulator(blurred, chunk=exact.chunk))


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    problem = problem_of(piece.method)
    return run_piece(
        piece, lambda seed: problem, methods(piece.quick)[piece.method], metrics, folder, deadline=deadline
    )


def draw(results: Results, folder: Path) -> list[str]:
    """APT's posterior, the data at the true parameters, the two curves, and APT beside SNL."""
    problem = apt.problems.get("lotka_volterra")
    truth = problem.truth
    assert truth is not None
    names = [rf"$\theta_{j}$" for j in range(1, 5)]
    made = pictures.figure(7.2, 6.4)
    upper, lower = made.subfigures(2, 1, height_ratios=(1.25, 1))
    left, right = upper.subfigures(1, 2)
    left.suptitle("a  APT, prior's range", fontsize=9)
    right.suptitle("APT and SNL, close-up", fontsize=9)
    apt_draws, snl_draws = (pictures.first_draws(results, NAME, name) for name in ("APT", "SNL"))
    if apt_draws is None:
        pictures.nothing(left.subplots())
        pictures.nothing(right.subplots())
    else:
        pictures.pairs(left, {"APT": apt_draws}, names, truth, [(-5.2, 2.2)] * 4)
        both = {"APT": apt_draws} | ({} if snl_draws is None else {"SNL": snl_draws})
        pictures.pairs(right, both, names, truth)
    scatter, first, second = lower.subplots(1, 3)
    x = data_at_truth(problem, truth)
    scatter.scatter(
        x[:, 1], x[:, 3], s=3, c=x[:, 8], cmap="viridis", alpha=0.6, linewidths=0, rasterized=True
    )
    scatter.scatter(problem.observation[1], problem.observation[3], s=28, color=pictures.TRUTH, marker="x")
    scatter.set(xlabel=r"$\bar x_2$, mean of prey", ylabel=r"$\bar x_4$, log variance of prey")
    scatter.set_title(r"b  $p(\bar x\,|\,\theta^*)$, colour: $\bar x_9$", loc="left")
    pictures.curves(first, results, NAME, "kde_surprise", methods(), label=r"$-\log\, q(\theta^*)$")
    first.set_title("c", loc="left", fontweight="bold")
    pictures.curves(second, results, NAME, "distance", methods(), label=r"median $|\bar x - \bar x_o|$")
    pictures.legend(lower, first, columns=5)
    pictures.save(made, folder / "figure_4.png")
    return ["figure_4.png"]


def data_at_truth(problem: Any, truth: np.ndarray, n: int = 1000) -> np.ndarray:
    """Simulations at the true parameters, without failed ones."""
    outcomes = problem.simulator(0, Rows(np.arange(n), np.tile(truth, (n, 1))))
    return np.array([outcome.x for outcome in outcomes if outcome.x is not None])
