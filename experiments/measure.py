"""Running a piece: `apt.infer` for each seed, side by side, and what is measured of every round."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
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


@dataclass(frozen=True, eq=False)
class Round:
    """A round of a run, as metrics see it."""

    problem: Problem
    run: apt.Run
    number: int

    @cached_property
    def draws(self) -> np.ndarray:
        """Of its posterior; of a single chain before the last round those that the next round simulated."""
        chain = isinstance(getattr(self.posterior, "sampler", None), apt.samplers.SingleSlice)
        return self.posterior.sample(CHAIN_DRAWS if chain and not self.is_last else DRAWS)

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


def every_round(run: apt.Run, number: int) -> bool:
    return True


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
    keep: Callable[[apt.Run, int], bool] = every_round,
    resumes: bool = True,
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
        resumes: runs that do not end by the deadline are kept in files beside the lines, and carried on by
            the next call.
    """
    warnings.simplefilter("ignore", apt.SamplingWarning)  # chains that mix badly are part of the story
    began = time.monotonic()
    problems = {seed: problem_of(seed) for seed in piece.seeds}
    ended: dict[int, dict[int, float]] = {seed: {} for seed in piece.seeds}
    file_of = partial(_run_file, piece, folder) if resumes and not piece.quick else lambda seed: None
    # A rule that may stop a run makes every round train as thoroughly as the last: settings of the paper do
    # so anyhow, others are left alone.
    hurried = getattr(getattr(method, "trainer", None), "early_patience", None) is not None

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
                file=file_of(seed),
            )
        except apt.AptinferError as error:
            return getattr(error, "run", None), str(error).splitlines()[0]
        return run, None

    runs = apt.side_by_side([partial(one, seed) for seed in piece.seeds])
    lines = []
    for seed, (run, error) in zip(piece.seeds, runs, strict=True):
        found = []
        if run is not None:
            kept = [number for number in ended[seed] if number < len(run.rounds) and keep(run, number)]
            rounds = [Round(problems[seed], run, number) for number in kept]
            found = [_line(piece, seed, measured, metrics) for measured in rounds]
            last = max((line["round"] for line in found if line["metrics"]), default=0)
            for measured, line in zip(rounds, found, strict=True):
                line["seconds"] = ended[seed][measured.number]
                wanted = line["round"] in pictures or line["round"] == last
                if seed in pictured and wanted and line["metrics"]:
                    keep_draws(folder, line, measured.draws[:PICTURE_DRAWS])
            if found:
                found[-1]["ended"] = error is None and _has_ended(run)
        if error is not None:
            found.append(_failure(piece, seed, run, error) | {"seconds": time.monotonic() - began})
        file = file_of(seed)
        if file is not None and found and found[-1]["ended"]:
            file.unlink(missing_ok=True)
        lines += found
    seconds = time.monotonic() - began
    return [line | {"piece_seconds": seconds} for line in lines]


def _line(piece: Piece, seed: int, measured: Round, metrics: Callable[[Round], dict[str, Any]]) -> Line:
    """What is known of a round. A posterior that cannot be sampled is noted, and has no metrics."""
    finished, number = measured.run.rounds[measured.number], measured.number
    notes: dict[str, Any] = dict(finished.notes)
    if finished.history is not None:
        notes |= {"epochs": finished.history.epochs, "best_loss": float(np.mean(finished.history.best_loss))}
    try:
        found = metrics(measured)
    except apt.AptinferError as error:
        found = {}
        notes["not_measured"] = str(error).splitlines()[0]
    return {
        **about(piece, seed),
        "round": number + 1,
        "simulations": sum(map(measured.run.plan.size, range(number + 1))),
        "ended": False,
        "notes": notes,
        "seconds_simulating": finished.seconds_simulating,
        "metrics": found,
    }


def _failure(piece: Piece, seed: int, run: apt.Run | None, error: str) -> Line:
    """The line of the round that a run did not finish."""
    finished = len(run.rounds) if run is not None else 0
    line = {"round": finished + 1, "simulations": finished * piece.simulations, "ended": True}
    return about(piece, seed) | line | {"failed": error, "notes": {}, "metrics": {}}


def _has_ended(run: apt.Run) -> bool:
    return run.rounds[-1].complete or len(run.rounds) == run.plan.rounds


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


def _run_file(piece: Piece, folder: Path, seed: int) -> Path:
    place = folder / "runs"
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{slug(piece.figure, piece.problem, piece.method, seed)}.apt"


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
