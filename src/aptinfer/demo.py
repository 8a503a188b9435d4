"""`python -m aptinfer.demo`: two moons from start to finish, with a picture and a report.

The posterior of two moons is known exactly, so the demo ends with a measurement: how well a classifier can
tell the estimate's draws from exact ones (C2ST; 0.5 is perfect, 1 is hopeless).
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # help must not wait for JAX
    from aptinfer.run import Run

DRAWS = 10_000
PICTURE, REPORT = "two_moons.png", "report.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo with command-line `arguments`."""
    chosen = _parser().parse_args(arguments)
    out: Path = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    print(f"Two moons: {chosen.rounds} rounds of {chosen.simulations} simulations.", flush=True)

    started = time.perf_counter()
    run = _infer(chosen)
    seconds = time.perf_counter() - started
    score = _compare(run, out / PICTURE)

    from aptinfer.report.summary import summarise

    outcome = _outcome(run, score, seconds)
    print(f"\n{summarise(run)}\n\n{outcome}")
    (out / REPORT).write_text(_report(run, outcome), encoding="utf-8")
    print(f"\nPicture: {out / PICTURE}\nReport:  {out / REPORT}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aptinfer.demo",
        description="Infer the two-moons posterior round by round, and compare it with the exact one.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="folder for the picture and the report"
    )
    parser.add_argument("--rounds", type=_count, default=10, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--simulations", type=_count, default=1000, help="simulations per round (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal results")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _infer(chosen: argparse.Namespace) -> "Run":
    import aptinfer as apt

    problem = apt.problems.get("two_moons")
    return apt.infer(
        problem.simulator,
        problem.prior,
        problem.observation,
        rounds=chosen.rounds,
        simulations=chosen.simulations,
        seed=chosen.seed,
        listen=_tell,
    )


def _tell(event: Any) -> None:
    """One line per finished round, for logs as well as terminals."""
    from aptinfer.sequential import RoundFinished

    if isinstance(event, RoundFinished) and (history := event.history):
        print(
            f"round {event.number + 1:2d}: {history.epochs:4d} epochs, "
            f"validation loss {history.best_loss.mean():7.3f}, {history.run_seconds:5.1f} s"
            + (f" and {history.compile_seconds:.1f} s to compile" if history.compile_seconds else ""),
            flush=True,
        )


def _compare(run: "Run", picture: Path) -> float:
    """Draw the rounds beside exact draws; the C2ST of the last one."""
    from aptinfer import problems
    from aptinfer.diagnostics.two_sample import c2st
    from aptinfer.report.plots import rounds_and_exact

    exact = problems.get("two_moons").reference_posterior(run.problem.observation, DRAWS, seed=1)
    rounds_and_exact(run, exact[: DRAWS // 2], picture)
    return c2st(run.posterior.sample(DRAWS, seed=1), exact)


def _outcome(run: "Run", score: float, seconds: float) -> str:
    used = len(run.simulations.done)
    return (
        f"C2ST against {DRAWS} exact draws: {score:.3f} (0.5 is perfect, 1 is hopeless).\n"
        f"{used} simulations, {seconds:.0f} s."
    )


def _report(run: "Run", outcome: str) -> str:
    from aptinfer.report.summary import marginals, rounds, settings

    return f"""# Two moons

{settings(run)}

{outcome}

![The posterior round by round, and exact draws]({PICTURE})

## Posterior

{marginals(run.posterior).markdown()}

## Rounds

{rounds(run).markdown()}

The loss of round 1 is -log q on validation rows, that of later rounds the method's own: do not compare them.
"""


if __name__ == "__main__":
    main()
