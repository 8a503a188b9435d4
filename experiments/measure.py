"""Running a piece: `apt.infer` for each seed, all of them side by side, and what is measured of every round."""

import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.problems.problem import Problem
from experiments.lines import Line, keep_draws, surroundings
from experiments.pieces import Piece

DRAWS = 5000  # of an estimate, for its metrics
CHAIN_DRAWS = 1000  # of a single chain: those that the next round is proposed from
PICTURE_DRAWS = 2000

Metrics = Callable[[Problem, Any, np.ndarray], dict[str, Any]]


def run_piece(
    piece: Piece,
    problem_of: Callable[[int], Problem],
    method: Any,
    metrics: Metrics,
    folder: Path,
    *,
    deadline: float = np.inf,
    pictures: Iterable[int] = (),
    round_metrics: Callable[[Problem, apt.Run, int], dict[str, Any]] | None = None,
) -> list[Line]:
    """The lines of a piece.

    Args:
        piece: what to run.
        problem_of: the problem of a seed.
        method: what to run on it.
        metrics: of a problem, a posterior and its draws, after every round.
        folder: where draws for pictures go.
        deadline: on the clock of `time.monotonic`; runs end after the round in which it passes.
        pictures: rounds, counted from 1, of which seed 0's draws are kept.
        round_metrics: further metrics of a round, by its number counted from 0, such as of its simulations.
    """
    warnings.simplefilter("ignore", apt.SamplingWarning)  # chains that mix badly are part of the story
    began = time.monotonic()
    problems = {seed: problem_of(seed) for seed in piece.seeds}
    ended: dict[int, list[float]] = {seed: [] for seed in piece.seeds}
    # A rule that may stop a run makes every round train as thoroughly as the last: settings of the paper do so
    # anyhow, others are left alone.
    hurried = getattr(getattr(method, "trainer", None), "hurry", False)

    def one(seed: int) -> tuple[apt.Run | None, str | None]:
        problem = problems[seed]

        def listen(event: Any) -> None:
            if isinstance(event, apt.RoundFinished):
                ended[seed].append(time.monotonic() - began)

        try:
            run = apt.infer(
                problem.simulator,
                problem.prior,
                problem.observation,
                method=method,
                rounds=piece.rounds,
                simulations=piece.simulations,
                seed=seed,
                progress=False,
                listen=listen,
                stop=None if hurried else lambda finished: time.monotonic() > deadline,
            )
        except apt.AptinferError as error:
            return getattr(error, "run", None), str(error).splitlines()[0]
        return run, None

    runs = apt.side_by_side([lambda seed=seed: one(seed) for seed in piece.seeds])
    trained = time.monotonic() - began
    shared = {
        "figure": piece.figure,
        "problem": piece.problem,
        "method": piece.method,
        "rounds": piece.rounds,
        "piece": piece.name,
        "piece_seconds": trained,
        "at_once": len(piece.seeds),
        **surroundings(),
    }
    lines = []
    for seed, (run, error) in zip(piece.seeds, runs, strict=True):
        rounds = run.rounds if run is not None else ()
        for finished in rounds:
            line = {
                **shared,
                "seed": seed,
                "round": finished.number + 1,
                "simulations": sum(map(run.plan.size, range(finished.number + 1))),
                "notes": {**finished.notes, **_training(finished)},
                "seconds": ended[seed][finished.number],
                "metrics": {},
            }
            last = finished is rounds[-1]
            count = DRAWS if last or not _is_chain(finished.posterior) else CHAIN_DRAWS
            try:
                draws = finished.posterior.sample(count)
                line["metrics"] = metrics(problems[seed], finished.posterior, draws)
                if round_metrics is not None:
                    line["metrics"] |= round_metrics(problems[seed], run, finished.number)
                if seed == 0 and line["round"] in pictures:
                    keep_draws(folder, line, draws[:PICTURE_DRAWS])
            except apt.AptinferError as problem:
                line["notes"]["not_measured"] = str(problem).splitlines()[0]
            lines.append(line)
        if error is not None:
            lines.append(
                {
                    **shared,
                    "seed": seed,
                    "round": len(rounds) + 1,
                    "simulations": len(rounds) * piece.simulations,
                    "metrics": {},
                    "notes": {},
                    "seconds": trained,
                    "failed": error,
                }
            )
    return lines


def _is_chain(posterior: Any) -> bool:
    return isinstance(getattr(posterior, "sampler", None), apt.samplers.SingleSlice)


def _training(finished: apt.RoundFinished) -> dict[str, Any]:
    """How the round's training went; nothing, where nothing was trained."""
    history = finished.history
    if history is None:
        return {}
    return {"epochs": history.epochs, "best_loss": float(np.mean(history.best_loss))}


def moments(draws: np.ndarray) -> dict[str, Any]:
    """Mean, standard deviation and correlations of draws."""
    return {"mean": draws.mean(axis=0), "std": draws.std(axis=0), "correlation": np.corrcoef(draws.T)}


def surprise(problem: Problem, posterior: Any) -> float:
    """-log q(theta* | x_o), normalised over the prior's support."""
    return -float(posterior.log_prob(problem.truth))


def kde_surprise(problem: Problem, draws: np.ndarray) -> float:
    """-log p(theta* | x_o) by one kernel density estimate for all methods."""
    return -apt.diagnostics.kde_log_density(draws, problem.truth)


def mmd(draws: np.ndarray, exact: np.ndarray, bandwidth: float | None = None) -> float:
    """The root of the unbiased squared MMD, zero where that is negative."""
    return float(np.sqrt(max(apt.diagnostics.mmd2(draws, exact, bandwidth=bandwidth), 0.0)))
