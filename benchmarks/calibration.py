"""Is the recipe as sure as it should be? Expected coverage over fresh observations of the benchmark's tasks.

One JSON line per case in `results/calibration.jsonl`; what is there is not run again.

    python benchmarks/calibration.py --jobs 14                 one round of 10,000, 1000 observations each
    python benchmarks/calibration.py --sequential --jobs 14    a run of 1000 for each of 50 observations
"""

import argparse
import datetime
import json
import pathlib
import platform
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

from running import run_on_cores
from sbibm import problem_of
from sbibm_table import TASKS, read

HERE = pathlib.Path(__file__).resolve().parent
DRAWS = 200
SEQUENTIAL_TASKS = ("two_moons", "slcp", "sir")


class Case(NamedTuple):
    """One network for all observations, or a run for each."""

    task: str
    sequential: bool
    budget: int
    observations: int


def measured(case: Case) -> dict[str, Any]:
    """The coverage over parameters from the prior, and x simulated with them."""
    import jax
    import numpy as np

    import aptinfer as apt

    problem, started = problem_of(case.task), time.perf_counter()
    # A run of rejection that keeps all: parameters from the prior, and what the simulator makes of them.
    everything = apt.RejectionABC(quantile=1.0)
    fresh = infer(
        problem, problem.observation, everything, simulations=case.observations, rounds=1, seed=1234
    )
    truth, x = np.asarray(fresh.simulations.theta), np.asarray(fresh.simulations.x)
    if case.sequential:
        runs = [infer(problem, x_o, None, budget=case.budget, seed=i) for i, x_o in enumerate(x)]
        draws = np.stack([run.posterior.sample(DRAWS, seed=1) for run in runs])
    else:
        # A thousand posteriors are sampled: by particles, without chains that check them.
        recipe, sampler = apt.Recipe(), apt.samplers.TemperedSMC(particles=2 * DRAWS)
        recipe = replace(recipe, likelihood=replace(recipe.likelihood, sampler=sampler))
        run = infer(problem, problem.observation, recipe, simulations=case.budget, rounds=1, seed=0)
        draws = run.posterior.given(x).sample(DRAWS, seed=1)
    found = apt.diagnostics.expected_coverage(draws, truth)
    return {
        **case._asdict(),
        "within_band": found.within_band,
        "largest_deviation": round(found.largest_deviation, 4),
        "coverage": {
            f"{level:.2f}": round(c, 4) for level, c in zip(found.levels, found.observed, strict=True)
        },
        "band_at_half": [round(float(b[49]), 4) for b in (found.low, found.high)],
        "minutes": round((time.perf_counter() - started) / 60, 2),
        "versions": {
            "python": platform.python_version(),
            "aptinfer": apt.__version__,
            "jax": jax.__version__,
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def infer(problem: Any, x_o: Any, method: Any, **settings: Any) -> Any:
    import aptinfer as apt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", apt.SamplingWarning)
        return apt.infer(problem.simulator, problem.prior, x_o, method=method, progress=False, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS)
    parser.add_argument("--sequential", action="store_true", help="a run for every observation")
    parser.add_argument("--budget", type=int, help="10,000, or 1000 for runs of their own")
    parser.add_argument("--observations", type=int, help="1000, or 50")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, one core each")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after so many")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results" / "calibration.jsonl")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measured(Case(*json.loads(options.case)))))
        return
    many = options.sequential
    budget = options.budget or (1000 if many else 10_000)
    observations = options.observations or (50 if many else 1000)
    done = {tuple(line[name] for name in Case._fields) for line in read(options.results)}
    wanted = [
        Case(task, many, budget, observations)
        for task in options.tasks or (SEQUENTIAL_TASKS if many else TASKS)
    ]
    run_on_cores(
        __file__,
        [case for case in wanted if case not in done],
        options.jobs,
        options.results,
        options.minutes,
    )
    for line in read(options.results):
        kind = "a run each" if line["sequential"] else "one round"
        verdict = "within the band" if line["within_band"] else "NOT within the band"
        print(f"{line['task']}, {kind}: {verdict}, largest deviation {line['largest_deviation']:+.3f}")


if __name__ == "__main__":
    main()
