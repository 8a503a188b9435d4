"""`python -m aptinfer.problems` prints the problems as a table; `--references` makes their draws anew."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from aptinfer import problems
from aptinfer.problems.mcmc import ByMCMC
from aptinfer.problems.problem import Problem

DRAWS = 10_000
SEED = 0


def table() -> str:
    """One line per problem: its dimensions, what is known of the answer, what it is."""
    lines = [("name", "parameters", "data", "likelihood", "reference", "about")]
    for name in problems.list():
        problem = problems.get(name)
        about = sys.modules[f"aptinfer.problems.{name}"].__doc__ or ""
        lines.append(
            (
                name,
                str(problem.prior.dim),
                "×".join(map(str, problem.observation.shape)),
                "exact" if problem.log_likelihood else "-",
                kind(problem),
                about.splitlines()[0].partition(": ")[2],
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def kind(problem: Problem) -> str:
    """How a problem's reference posterior is drawn."""
    if problem.reference is None:
        return "-"
    return "MCMC" if isinstance(problem.reference, ByMCMC) else "exact"


def references(names: Sequence[str], draws: int = DRAWS) -> Iterator[str]:
    """Make the draws that are kept in the cache folder anew; one line per problem and observation."""
    for name in names:
        problem = problems.get(name)
        if not isinstance(problem.reference, ByMCMC):
            known = "drawn on request, exactly" if problem.reference else "no reference posterior"
            yield f"{name}: {known}"
            continue
        assert problem.observations is not None
        for number, x_o in enumerate(problem.observations, 1):
            started = time.perf_counter()
            made = problem.reference.draws(np.random.default_rng(SEED), x_o, draws, fresh=True)
            yield (
                f"{name}, observation {number}: {draws} draws, R-hat {made.r_hat:.4f}, effective "
                f"{made.effective:.0f}, {time.perf_counter() - started:.1f} s"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m aptinfer.problems", description="Benchmark problems.")
    parser.add_argument(
        "--references",
        nargs="*",
        metavar="name",
        help="make the kept posterior draws of these problems anew, or of all",
    )
    options = parser.parse_args(arguments)
    if options.references is None:
        print(table())
        return
    try:
        for line in references(options.references or problems.list()):
            print(line, flush=True)
    except ValueError as error:  # a name that does not exist
        parser.error(str(error))


if __name__ == "__main__":
    main()
