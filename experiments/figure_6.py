"""Figure 6: rock-paper-scissors, a reaction-diffusion model whose data are images, with a convolutional
network.

10 x 1000 simulations of 3 x 100 x 100 images; 30 inference problems, their true parameters drawn from the
prior. APT (atomic, M = 100), SNPE-A and SNPE-B, all with the paper's network: six convolutions, two layers of
50 tanh units and a single Gaussian (appendix, "Rock-paper-scissors model").
"""

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
from experiments.measure import Round, moments, run_piece, surprise
from experiments.pieces import Piece, Scale
from experiments.results import Results

NAME = "6"
ROUNDS, SIMULATIONS, PROBLEMS = 10, 1000, 30
FIRST, AT_ONCE = 10, 5  # problems before others; side by side
EPOCHS, QUICK_EPOCHS = 2000, 30
SIZE, QUICK_SIZE = 100, 32
TRUTHS_SEED = 2019
SHOWN = (0, 1, 2)  # problems in the pictures


def network(size: int) -> Any:
    """The paper's, for its images; for smaller ones a shorter one, as the paper's leaves nothing of them."""
    if size == SIZE:
        return apt.problems.get("rock_paper_scissors").network["embedding"]
    return apt.CNN(
        channels=(8, 8, 16, 32),
        kernel=(3, 3, 3, 2),
        padding=(1, 0, 0, 0),
        pool=(1, 3, 2, 2),
        hidden=(50, 50),
        activation=jax.nn.relu,
        hidden_activation=jnp.tanh,
    )


def methods(quick: bool = False) -> dict[str, Any]:
    epochs = QUICK_EPOCHS if quick else EPOCHS
    cnn = network(QUICK_SIZE if quick else SIZE)
    return {
        # In theta the atomic loss loses all of its mass beyond the prior's edges in a few rounds.
        "APT": settings.mdn_apt(1, epochs, apt.Atomic(atoms=100), embedding=cnn, space=apt.Latent()),
        "SNPE-A": settings.snpe_a(1, epochs, embedding=cnn),
        "SNPE-B": settings.snpe_b(1, epochs, precision=0.01, embedding=cnn),
        "aptinfer default": apt.APT(embedding=cnn),
    }


def pieces(scale: Scale) -> list[Piece]:
    """Five problems of every method, a third of a host's memory, and five more; then the other twenty."""
    sizes: dict[str, Any] = {"simulations": scale.simulations(SIMULATIONS, 200), "minutes": 9.0}
    wanted = PROBLEMS if scale.seeds is None else min(PROBLEMS, scale.seeds)
    starts = range(0, 1 if scale.quick else wanted, AT_ONCE)
    found = []
    for start in starts:
        seeds = (0,) if scale.quick else tuple(range(start, min(start + AT_ONCE, wanted)))
        for method in methods():
            ours = method.startswith("aptinfer")
            if not (ours and scale.quick):
                found.append(
                    Piece(
                        NAME,
                        "rock_paper_scissors",
                        method,
                        seeds,
                        scale.rounds(ROUNDS),
                        stage=start // FIRST + 2 * ours,
                        quick=scale.quick,
                        wide=True,
                        **sizes,
                    )
                )
    return found


lattice = cache(
    lambda size: apt.problems.get("rock_paper_scissors", size=size)
)  # compiled once for all seeds


def problem_of(seed: int, size: int) -> Problem:
    """Problem `seed`: its parameters are draw number `seed` of the prior, its observation one simulation."""
    base = lattice(size)
    truth = base.prior.sample(np.random.default_rng(TRUTHS_SEED), PROBLEMS)[seed]
    (outcome,) = base.simulator(TRUTHS_SEED, Rows(np.array([seed]), truth[None]))
    return Problem("rock_paper_scissors", base.prior, base.simulator, np.asarray(outcome.x), truth)


def metrics(measured: Round) -> dict[str, Any]:
    draws, truth = measured.draws, measured.problem.truth
    return {
        "surprise": surprise(measured),
        "truth": truth,
        "truth_in_sd": (draws.mean(axis=0) - truth) / draws.std(axis=0),
        "truth_quantile": (draws < truth).mean(axis=0),
        **moments(draws),
    }


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    size = QUICK_SIZE if piece.quick else SIZE
    return run_piece(
        piece,
        lambda seed: problem_of(seed, size),
        methods(piece.quick)[piece.method],
        metrics,
        folder,
        deadline=deadline,
        pictured=SHOWN,
        resumes=False,  # a run is a gigabyte of images
    )


def as_image(x: np.ndarray) -> np.ndarray:
    """The paper's colours: red is a + b, green b, blue c."""
    return np.clip(np.stack([x[0] + x[1], x[1], x[2]], axis=-1), 0, 1)


def draw(results: Results, folder: Path) -> list[str]:
    """Observations, simulations at draws of the posterior, posteriors, and -log q(theta*) by round."""
    ended = {line["seed"]: line for line in results.last(NAME, "APT")}
    shown = [seed for seed in SHOWN if seed in ended]
    made = pictures.figure(7.2, 2.0 * max(len(shown), 1) + 2.7)
    upper, lower = made.subfigures(2, 1, height_ratios=(2.0 * max(len(shown), 1), 2.7))
    if not shown:
        pictures.nothing(upper.subplots())
    for part, seed in zip(np.atleast_1d(upper.subfigures(max(len(shown), 1), 1)), shown, strict=False):
        line = ended[seed]
        size = QUICK_SIZE if line["rounds"] < ROUNDS else SIZE
        problem, draws = problem_of(seed, size), results.draws(line)
        images, posterior = part.subfigures(1, 2, width_ratios=(3.6, 2.4))
        axes = images.subplots(1, 4)
        pictured = [problem.observation]
        if draws is not None:
            theta = draws[:3]
            outcomes = problem.simulator(1, Rows(np.arange(3), theta))
            pictured += [outcome.x for outcome in outcomes]
        for axis, x in zip(axes, pictured, strict=False):
            axis.imshow(as_image(np.asarray(x)) / np.max(as_image(np.asarray(x))), interpolation="nearest")
        for axis in axes:
            axis.set_axis_off()
        axes[0].set_title(r"a  $x_o$", fontsize=8)
        axes[2].set_title(r"b  $x \sim p(x\,|\,\theta),\ \theta \sim q$", fontsize=8)
        if draws is not None:
            names = [r"$\log_{10}\mu$", r"$\log_{10}\sigma$", r"$\log_{10}D$"]
            pictures.pairs(posterior, {"APT": draws}, names, problem.truth, [(-1, 1), (-1, 1), (-6, -5)])
    left, right = lower.subplots(1, 2, width_ratios=(1.5, 1))
    pictures.curves(left, results, NAME, "surprise", methods(), label=r"$-\log\, q(\theta^*)$")
    left.set_title("d", loc="left", fontweight="bold")
    pictures.legend(lower, left, columns=4)
    ranks = results.at_end(NAME, "APT", "truth_quantile").ravel()
    if len(ranks):
        right.plot(np.sort(ranks), np.arange(1, len(ranks) + 1) / len(ranks), color=pictures.colour("APT"))
        right.plot([0, 1], [0, 1], color=pictures.GREY, linewidth=0.8)
    right.set(xlabel=r"rank of $\theta^*$ among draws, APT", ylabel="share of marginals")
    pictures.save(made, folder / "figure_6.png")
    return ["figure_6.png"]
