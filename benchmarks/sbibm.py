"""Accuracy for a number of simulations, on the ten tasks of the published benchmark (Lueckmann et al. 2021).

One JSON line per run in `results/sbibm.jsonl`; what is there is not run again. The table beside the published
figures is printed at the end.

    python benchmarks/sbibm.py --jobs 16                                  the recipe, everywhere
    python benchmarks/sbibm.py --methods apt --tasks slcp sir --budgets 1000
    python benchmarks/sbibm.py --methods "without stack" --results benchmarks/results/sbibm_ablations.jsonl
    python benchmarks/sbibm.py --methods "apt*" --results benchmarks/results/apt_ablations.jsonl
    python benchmarks/sbibm.py --together --jobs 10                 on a GPU, all runs of ten tasks at once
    python benchmarks/sbibm.py --table --plot docs/sbibm.png
"""

import argparse
import datetime
import fnmatch
import json
import pathlib
import platform
import time
import warnings
from functools import partial
from typing import Any, NamedTuple

from apt_variants import Variant, by_name
from running import run_on_accelerator, run_on_cores
from sbibm_table import TASKS, plot, read, table

HERE = pathlib.Path(__file__).resolve().parent
DRAWS = 10_000
FIRST_SEED = 1_000_000  # added to that of draws before the rounds, which are not those of the first round


class Case(NamedTuple):
    """Runs of one task: a process does all of them, and compiles once."""

    task: str
    method: str
    budget: int
    runs: tuple[tuple[int, int], ...]  # observation and seed of each


def methods() -> dict[str, Variant]:
    """Whatever is worth a line in the table."""
    import aptinfer as apt

    stacked = {"estimator": apt.Stack(), "screen": True, "local": 5.0, "repeats": True}
    without = {
        "near rows": {"local": None},
        "screening": {"screen": False},
        "repeats": {"repeats": False},
        "stack": {"estimator": None, "repeats": False},
    }
    named = {
        "recipe": None,
        **{f"without {name}": apt.Recipe(apt.SNL(**stacked | other)) for name, other in without.items()},
        "npe": apt.NPE(),
        "snl": apt.SNL(),
        "snre": apt.SNRE(),
    }
    return {name: Variant(method) for name, method in named.items()} | by_name()


def spent(variant: Variant, budget: int, problem: Any, x_o: Any, seed: int) -> dict[str, Any]:
    """How a variant spends its budget, as keywords of `apt.infer`."""
    import aptinfer as apt

    if not (variant.at_first or variant.rounds):
        return {"budget": budget}
    first = round(variant.at_first * budget)
    rounds = variant.rounds or 10
    found: dict[str, Any] = {"rounds": rounds, "simulations": (budget - first) // rounds}
    if first:  # the one method that learns nothing from them
        drawn = apt.infer(
            problem.simulator,
            problem.prior,
            x_o,
            method=apt.RejectionABC(),
            simulations=first,
            seed=seed + FIRST_SEED,
            progress=False,
        ).simulations
        found["simulations_done"] = apt.Done(drawn.theta, drawn.x, from_prior=True)
    return found


def problem_of(task: str) -> Any:
    import aptinfer as apt

    if task == "slcp_distractors":
        return apt.problems.get(task, mixture="sbibm")
    return apt.problems.get("lotka_volterra_ode" if task == "lotka_volterra" else task)


def measured(case: Case, *, together: bool = False, sharing: int = 1) -> list[dict[str, Any]]:
    """A line for each run. Of runs side by side, each took the time that all of them took.

    `sharing`: how many processes, itself counted, share the accelerator.
    """
    import jax

    import aptinfer as apt

    problem, variant = problem_of(case.task), methods()[case.method]

    def infer(observation: int, seed: int) -> tuple[Any, float]:
        started = time.perf_counter()
        x_o = problem.observations[observation - 1]
        run = apt.infer(
            problem.simulator,
            problem.prior,
            x_o,
            method=variant.method,
            **spent(variant, case.budget, problem, x_o, seed),
            seed=seed,
            progress=False,
        )
        return run, time.perf_counter() - started

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", apt.SamplingWarning)
        calls = [partial(infer, *run) for run in case.runs]
        runs = apt.side_by_side(calls) if together else [call() for call in calls]
    lines = []
    for (observation, seed), (run, seconds) in zip(case.runs, runs, strict=True):
        draws = run.posterior.sample(DRAWS, seed=1)
        exact = problem.reference_posterior(problem.observations[observation - 1], DRAWS, seed=0)
        notes = run.rounds[-1].notes
        lines.append(
            {
                "task": case.task,
                "method": case.method,
                "budget": case.budget,
                "observation": observation,
                "seed": seed,
                "c2st": round(apt.diagnostics.c2st(draws, exact), 4),
                "mmd2": round(apt.diagnostics.mmd2(draws[:2000], exact[:2000]), 6),
                "minutes": round(seconds / 60, 3),
                "simulations": len(run.simulations.done),
                "rounds": run.plan.rounds,
                "weights": [round(w, 3) for k, w in notes.items() if k.startswith("weight_")],
                "at_once": len(runs) if together else 1,
                **({"sharing": sharing} if together else {}),
                "device": jax.devices()[0].device_kind,
                "versions": {
                    "python": platform.python_version(),
                    "aptinfer": apt.__version__,
                    "jax": jax.__version__,
                },
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--methods", nargs="+", default=["recipe"], help="names, or patterns such as apt*")
    parser.add_argument("--budgets", nargs="+", type=int, default=[1000, 10_000])
    parser.add_argument("--observations", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--per-process", type=int, default=5, help="observations; a process compiles once")
    parser.add_argument(
        "--together", action="store_true", help="on an accelerator, all runs of a task at once"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after so many")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results" / "sbibm.jsonl")
    parser.add_argument("--table", action="store_true", help="only show what there is")
    parser.add_argument("--plot", type=pathlib.Path, help="a picture of what there is")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        how: dict[str, Any] = {"together": options.together, "sharing": options.jobs}
        print("\n".join(json.dumps(line) for line in measured(Case(*json.loads(options.case)), **how)))
        return
    key = ("task", "method", "budget", "seed", "observation")
    done = {tuple(line[k] for k in key) for line in read(options.results)}
    wanted = {
        (budget, method, task): [
            (observation, seed)
            for seed in options.seeds
            for observation in options.observations
            if (task, method, budget, seed, observation) not in done
        ]
        for budget in options.budgets
        for method in methods()
        if any(fnmatch.fnmatch(method, pattern) for pattern in options.methods)
        for task in options.tasks
    }
    most = max(1, *map(len, wanted.values()))
    size = most if options.together else options.per_process
    cases = [
        Case(task, method, budget, tuple(runs[first : first + size]))
        for first in range(0, most, size)
        for (budget, method, task), runs in wanted.items()
        if runs[first:]
    ]
    if options.table:
        pass
    else:
        run = run_on_accelerator if options.together else run_on_cores
        run(__file__, cases, options.jobs, options.results, options.minutes)
    print(table(read(options.results)))
    if options.plot:
        plot(read(options.results), options.plot)


if __name__ == "__main__":
    main()
