"""Proposition 1 and leakage: what the atomic loss fixes, and what it leaves free.

For a set of atoms the loss exceeds its least value by KL(p~ || q~), and is least exactly where q has the
right density ratios over all of them. Both are measured after every round, with 100 atoms from all rounds so
far and
data that they generate, where the posterior is known: ten means with a Gaussian prior.

How much of a flow's mass lies outside the prior's support, round by round, is in the lines of figures 1 and
2.
"""

from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.protocols import Rows
from experiments import pictures, settings
from experiments.lines import Line
from experiments.measure import Round, run_piece
from experiments.pieces import Piece, Scale
from experiments.results import Mean, Results, mean_of

NAME = "proposition_1"
ROUNDS, SIMULATIONS, SEEDS = 10, 1000, 10
ATOMS, SETS = 100, 20
FRESH = 1_000_000  # rows of simulations that no run has made


def methods(quick: bool = False) -> dict[str, Any]:
    epochs = settings.QUICK_EPOCHS if quick else 1000
    return {
        "MAF-APT": settings.maf_apt(epochs),
        "MDN-APT, atomic": settings.mdn_apt(1, epochs, apt.Atomic(atoms=100)),
    }


def pieces(scale: Scale) -> list[Piece]:
    sizes: dict[str, Any] = {"rounds": ROUNDS, "simulations": SIMULATIONS, "seeds": SEEDS, "minutes": 4.0}
    return [piece for method in methods() for piece in scale.pieces(NAME, "gaussian_linear", method, **sizes)]


def metrics(measured: Round) -> dict[str, Any]:
    """The excess of the loss, in nats, and the share of the log-ratios' variance that q has wrong."""
    problem, rows = measured.problem, measured.run.simulations
    known = rows.theta[rows.round <= measured.number]
    rng = np.random.default_rng(measured.number)
    excess, wrong, whole = [], [], []
    for number in range(SETS):
        atoms = known[rng.choice(len(known), ATOMS, replace=False)]
        (outcome,) = problem.simulator(0, Rows(np.array([FRESH + number]), atoms[:1]))
        assert problem.log_likelihood is not None
        assert outcome.x is not None
        # The likelihood is p(theta | x) / p(theta), but for a factor that all atoms share.
        exact = np.asarray(problem.log_likelihood(atoms, outcome.x), np.float64)
        learned = measured.posterior.given(outcome.x).log_prob(atoms) - problem.prior.log_prob(atoms)
        log_p, log_q = (a - np.logaddexp.reduce(a) for a in (exact, learned))
        excess.append(np.sum(np.exp(log_p) * (log_p - log_q)))
        wrong.append(np.var(learned - exact))
        whole.append(np.var(exact))
    return {"excess": np.mean(excess), "ratios_wrong": np.sum(wrong) / np.sum(whole)}


def run(piece: Piece, folder: Path, deadline: float = np.inf) -> list[Line]:
    problem = apt.problems.get("gaussian_linear")
    return run_piece(
        piece,
        lambda seed: problem,
        methods(piece.quick)[piece.method],
        metrics,
        folder,
        deadline=deadline,
        pictured=(),
    )


def leakage(results: Results, method: str) -> dict[int, Mean]:
    """The share of mass outside the prior, by round."""
    found: dict[int, list[float]] = {}
    for line in results.lines("2"):
        if line["method"] == method and line["notes"]:
            found.setdefault(line["round"], []).append(1 - line["notes"].get("acceptance", 1.0))
    return {number: mean_of(some) for number, some in sorted(found.items())}


def draw(results: Results, folder: Path) -> list[str]:
    """The excess of the loss, the share of ratios that are wrong, and leakage on SLCP, by round."""
    made = pictures.figure(7.2, 2.7)
    first, second, third = made.subplots(1, 3)
    pictures.curves(first, results, NAME, "excess", methods(), label="excess of the loss, nats")
    pictures.curves(second, results, NAME, "ratios_wrong", methods(), label="log-ratios: unexplained")
    for axis in (first, second):
        if axis.lines:
            axis.set_yscale("log")
    for method, label in (("APT", "MAF in theta (paper)"), ("aptinfer default", "aptinfer, latent space")):
        by_round = leakage(results, method)
        if by_round:
            values = [mean.value for mean in by_round.values()]
            third.plot(list(by_round), values, color=pictures.colour(method), label=label, linewidth=1.4)
    third.set(xlabel="round", ylabel="mass outside the prior, SLCP", ylim=(-0.03, 1.03))
    if third.lines:
        third.legend(frameon=False, fontsize=7)
    else:
        pictures.nothing(third)
    pictures.legend(made, first, columns=2)
    pictures.save(made, folder / "proposition_1.png")
    return ["proposition_1.png"]
