"""Figure 5: Lotka-Volterra from raw series with a recurrent network, against nine summary statistics.

10 x 1000 simulations, 10 initialisations, without noise and with observation noise of sigma = 50. Both
networks end in two layers of 50 tanh units and a single Gaussian, with Gaussian proposals in closed form; the
recurrent one begins with 100 gated recurrent units (appendix, "Lotka-Volterra model").
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import aptinfer as apt
from aptinfer.problems import lotka_volterra
from aptinfer.problems.lotka_volterra import statistics
from aptinfer.problems.problem import Problem
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, moments, run_piece, surprise
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "5"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
EPOCHS = 2000
SERIES = {"without noise": "lotka_volterra_raw", "noisy": "lotka_volterra_noisy"}
QUICK_LIMIT = 10_000  # events of a simulation


def methods(quick: bool = False) -> dict[str, Any]:
    epochs = settings.QUICK_EPOCHS if quick else EPOCHS
    gaussian = apt.GaussianProposal()
    # A step through 151 times takes little longer with 250 rows than with 100, and gates learn ten times as
    # fast at ten times the rate: after 100 epochs of round 1 the loss was 1.5 at 1e-2, and 3.9 at 1e-3.
    patient = apt.Trainer(
        batch=250, learning_rate=1e-2, drops=1, early_patience=None, epochs=min(epochs, 100)
    )
    gru = apt.GRU(units=100, hidden=(50, 50))
    # Hardly any of the prior's series resembles the observed one: what the first rounds make of it may be far
    # off, and sure. Proposals that are six times as wide as the posterior at first, and twice in the end.
    wide = apt.Tempered((0.03, 0.03, 0.03, 0.1, 0.1, 0.3))
    return {
        "RNN-APT": settings.mdn_apt(1, epochs, gaussian, embedding=gru, trainer=patient, proposal=wide),
        "APT, statistics": settings.mdn_apt(1, epochs, gaussian),
        "aptinfer default, series": apt.APT(),
    }


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS}
    found = []
    for problem in SERIES:
        found += scale.pieces(
            NAME, problem, "RNN-APT", minutes=9, first=SEEDS, quick_simulations=300, wide=True, **sizes
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
        observation=np.asarray(statistics(jnp.asarray(series.observation))),
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


def draw(results: Results, folder: Path) -> list[str]:
    """One seed's posteriors from series and from statistics; all seeds' marginals, without and with noise."""
    truth = lotka_volterra.TRUTH
    names = [rf"$\theta_{j}$" for j in range(1, 5)]
    shown = ("RNN-APT", "APT, statistics")
    made = pictures.figure(7.2, 6.2)
    upper, lower = made.subfigures(2, 1, height_ratios=(1.15, 1))
    for part, method, letter in zip(upper.subfigures(1, 2), shown, "ab", strict=True):
        draws = pictures.first_draws(results, NAME, method, "without noise")
        part.suptitle(f"{letter}  {method}, without noise", fontsize=9)
        if draws is None:
            pictures.nothing(part.subplots())
        else:
            pictures.pairs(part, {method: draws}, names, truth)
    axes = lower.subplots(2, 4, sharex="col")
    for row, (problem, letter) in zip(axes, zip(SERIES, "cd", strict=True), strict=True):
        for j, axis in enumerate(row):
            for method in shown:
                for line in results.last(NAME, method, problem):
                    mean, sd = (line["metrics"][name][j] for name in ("mean", "std"))
                    grid = np.linspace(max(mean - 4 * sd, -5), min(mean + 4 * sd, 2), 200)
                    height = np.exp(-0.5 * ((grid - mean) / sd) ** 2) / sd
                    axis.plot(grid, height, color=pictures.colour(method), linewidth=0.9, alpha=0.75)
            axis.axvline(truth[j], color=pictures.TRUTH, linewidth=1)
            axis.set(yticks=[], xlim=(-5, 2))
            axis.set_ylim(bottom=0)
        row[0].set_ylabel(f"{letter}  {problem}", fontsize=9)
    for axis, name in zip(axes[1], names, strict=True):
        axis.set_xlabel(name)
    for method in shown:
        counts = sorted({len(results.last(NAME, method, problem)) for problem in SERIES})
        label = f"{method} ({' and '.join(map(str, counts))})"
        axes[0, 0].plot([], [], color=pictures.colour(method), label=label)
    pictures.legend(lower, axes[0, 0], columns=2)
    pictures.save(made, folder / "figure_5.png")
    return ["figure_5.png"]
