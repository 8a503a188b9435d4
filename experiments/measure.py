"""Running a piece: `apt.infer` for each seed, side by side, and what is measured of every round."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.problems.problem import Problem
from experiments.lines import Line, keep_draws, slug, surroundings
from experiments.pieces import Piece

DRAWS = 5000  # of an estimate, for its metrics
CHAIN_DRAWS = 1000  # of a single chain: those that the next round is proposed from
PICTURE_DRAWS = 2000
C2ST_DRAWS = 2000

RUNS = Path("build") / "runs"  # run files of chains, which may take several calls


@dataclass(frozen=True)
class Round:
    """A round of a run, as metrics see it."""

    problem: Problem
    run: apt.Run
    number: int
    draws: np.ndarray

    @property
    def posterior(self) -> Any:
        return self.run.rounds[self.number].posterior

    @property
    def is_last(self) -> bool:
        """Whether it is the last of those planned."""
        return self.number + 1 == self.run.plan.rounds

    @property
    def simulated(self) -> np.ndarray:
        """The data of this round's simulations, without those that failed."""
        rows = self.run.simulations
        return rows.x[(rows.round == self.number) & rows.done]


def run_piece(
    piece: Piece,
    problem_of: Callable[[int], Problem],
    method: Any,
    metrics: Callable[[Round], dict[str, Any]],
    folder: Path,
    *,
    deadline: float = np.inf,
    pictures: Iterable[int] = (),
    pictured: Iterable[int] = (0,),
    keep: Callable[[apt.Run, int], bool] = lambda run, number: True,
) -> list[Line]:
    """The lines of a piece.

    Args:
        piece: what to run.
        problem_of: the problem of a seed.
        method: what to run on it.
        metrics: of every round.
        folder: where draws for pictures go.
        deadline: on the clock of `time.monotonic`; runs end after the round in which it passes.
        pictures: rounds before the last, counted from 1, of which draws are kept too.
        pictured: seeds whose draws are kept.
        keep: which rounds, counted from 0, are measured at all.
    """
    warnings.simplefilter("ignore", apt.SamplingWarning)  # chains that mix badly are part of the story
    began = time.monotonic()
    problems = {seed: problem_of(seed) for seed in piece.seeds}
    ended: dict[int, dict[int, float]] = {seed: {} for seed in piece.seeds}
    # A rule that may stop a run makes every round train as thoroughly as the last: settings of the paper do
    # so anyhow, others are left alone.
    hurried = getattr(getattr(method, "trainer", None), "hurry", False)

    def one(seed: int) -> tuple[apt.Run | None, str | None]:
        problem = problems[seed]

        def listen(event: Any) -> None:
            if isinstance(event, apt.RoundFinished):
                ended[seed][event.number] = time.monotonic() - began

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
                file=_run_file(piece, seed),
            )
        except apt.AptinferError as error:
            return getattr(error, "run", None), str(error).splitlines()[0]
        return run, None

    runs = apt.side_by_side([lambda seed=seed: one(seed) for seed in piece.seeds])
    seconds = time.monotonic() - began
    lines = []
    for seed, (run, error) in zip(piece.seeds, runs, strict=True):
        rounds = run.rounds if run is not None else ()
        shared = {**about(piece, seed), "piece_seconds": seconds}
        for finished in rounds:
            if finished.number not in ended[seed] or not keep(run, finished.number):
                continue  # an earlier call has measured it
            complete = finished.complete or finished.number + 1 == piece.rounds
            line = {
                **shared,
                "round": finished.number + 1,
                "simulations": sum(map(run.plan.size, range(finished.number + 1))),
                "ended": complete,
                "notes": {**finished.notes, **_training(finished)},
                "seconds": ended[seed][finished.number],
                "metrics": {},
            }
            count = DRAWS if complete or not _is_chain(finished.posterior) else CHAIN_DRAWS
            try:
                draws = finished.posterior.sample(count)
                line["metrics"] = metrics(Round(problems[seed], run, finished.number, draws))
                if seed in pictured and (line["round"] in pictures or complete):
                    keep_draws(folder, line, draws[:PICTURE_DRAWS])
            except apt.AptinferError as problem:
                line["notes"]["not_measured"] = str(problem).splitlines()[0]
            lines.append(line)
        if error is not None:
            about_error = {"round": len(rounds) + 1, "simulations": len(rounds) * piece.simulations}
            about_error |= {"ended": True, "failed": error, "notes": {}, "metrics": {}, "seconds": seconds}
            lines.append(shared | about_error)
        if run is None or error is not None or (rounds and lines and lines[-1]["ended"]):
            _forget(piece, seed)
    return lines


def about(piece: Piece, seed: int) -> Line:
    """What all lines of a seed say of the piece."""
    return {
        "figure": piece.figure,
        "problem": piece.problem,
        "method": piece.method,
        "seed": seed,
        "rounds": piece.rounds,
        "piece": piece.name,
        "at_once": len(piece.seeds),
        **surroundings(),
    }


def _run_file(piece: Piece, seed: int) -> Path | None:
    """Single chains may need longer than a call: their runs are kept, and the same call carries on."""
    if not piece.single_core or piece.quick:
        return None
    RUNS.mkdir(parents=True, exist_ok=True)
    return RUNS / f"{slug(piece.figure, piece.problem, piece.method, seed)}.apt"


def _forget(piece: Piece, seed: int) -> None:
    file = _run_file(piece, seed)
    if file is not None:
        file.unlink(missing_ok=True)


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


def surprise(measured: Round) -> float:
    """-log q(theta* | x_o), normalised over the prior's support."""
    return -float(measured.posterior.log_prob(measured.problem.truth))


def kde_surprise(measured: Round) -> float:
    """-log p(theta* | x_o) by one kernel density estimate for all methods."""
    return -apt.diagnostics.kde_log_density(measured.draws, measured.problem.truth)


def mmd(draws: np.ndarray, exact: np.ndarray, bandwidth: float | None = None) -> float:
    """The root of the unbiased squared MMD, zero where that is negative."""
    return float(np.sqrt(max(apt.diagnostics.mmd2(draws, exact, bandwidth=bandwidth), 0.0)))


def c2st(draws: np.ndarray, exact: np.ndarray) -> float:
    """Of few draws, as it is a second opinion: 0.5 is perfect."""
    return apt.diagnostics.c2st(draws[:C2ST_DRAWS], exact[:C2ST_DRAWS])
