"""Accuracy of the methods that APT is compared with: C2ST against exact draws, one JSON line per run.

Two moons and SLCP at five published observations, with the library's defaults (`experiments/` has the paper's
settings). Lines that are there already are not run again.

    python benchmarks/rivals.py
    python benchmarks/rivals.py --only "slcp snl" --jobs 16
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
import warnings
from typing import Any, NamedTuple

DEFAULT_RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "rivals.jsonl"
DRAWS = 10_000
KEPT_NOTES = ("r_hat", "not_positive_definite", "effective_rows", "eps", "effective_size")


class Case(NamedTuple):
    """One run. Observation 0 is the problem's own, 1 to 5 are the published ones."""

    problem: str
    method: str
    observation: int
    seed: int
    rounds: int = 10
    simulations: int = 1000

    @property
    def name(self) -> str:
        return f"{self.problem} {self.method}, observation {self.observation}, seed {self.seed}"


def methods() -> dict[str, Any]:
    """The library's defaults. With the paper's settings they are in `experiments/`."""
    import aptinfer as apt

    return {
        "SNPE-A": apt.SNPEA(),
        "SNPE-B": apt.SNPEB(),
        "SNL": apt.SNL(),
        "SNRE": apt.SNRE(),
        "SMC-ABC": apt.SMCABC(),
    }


def cases() -> list[Case]:
    moons = [Case("two_moons", "SNL", 0, seed) for seed in range(3)]
    slcp = [Case("slcp", "SNL", number, seed) for seed in range(2) for number in range(1, 6)]
    slcp += [Case("slcp", name, n, 0) for name in ("SNPE-A", "SNPE-B", "SNRE") for n in range(1, 6)]
    slcp += [Case("slcp", "SMC-ABC", n, 0, rounds=100) for n in range(1, 6)]
    return moons + slcp


def measured(case: Case) -> dict[str, Any]:
    """C2ST after the first, the middle and the last round, and what the run says of itself."""
    import jax
    import numpy as np

    import aptinfer as apt

    problem = apt.problems.get(case.problem)
    x_o = problem.observations[case.observation - 1] if case.observation else problem.observation
    exact = problem.reference_posterior(x_o, DRAWS, seed=0)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = apt.infer(
            problem.simulator,
            problem.prior,
            x_o,
            method=methods()[case.method],
            rounds=case.rounds,
            simulations=case.simulations,
            seed=case.seed,
            progress=False,
        )
        seconds = time.perf_counter() - started
        rounds = {}
        for number in sorted({0, len(run.rounds) // 2 - 1, len(run.rounds) - 1}):
            posterior = run.rounds[number].posterior
            # The published draws of particles are smoothed, too: a classifier knows repeated draws at once.
            if isinstance(posterior, apt.ParticlePosterior):
                posterior = posterior.smoothed()
            theta = posterior.sample(DRAWS, seed=1)
            rounds[number + 1] = {
                "c2st": round(apt.diagnostics.c2st(theta, exact), 4),
                "mean": np.round(theta.mean(axis=0), 4).tolist(),
                "std": np.round(theta.std(axis=0), 4).tolist(),
                "share_above_diagonal": round(float((theta[:, :2].sum(axis=1) > 0).mean()), 4),
            }
    notes = {
        name: [round(float(finished.notes[name]), 4) for finished in run.rounds if name in finished.notes]
        for name in KEPT_NOTES
        if name in run.rounds[-1].notes and len(run.rounds) <= 20
    }
    return {
        **case._asdict(),
        "c2st": rounds[len(run.rounds)]["c2st"],
        "by_round": rounds,
        "seconds": round(seconds, 1),
        "notes": notes,
        "warnings": sorted({str(warning.message) for warning in caught}),
        "versions": {
            "python": platform.python_version(),
            "aptinfer": apt.__version__,
            "jax": jax.__version__,
        },
        "device": jax.devices()[0].device_kind,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def run_all(wanted: list[Case], jobs: int, results: pathlib.Path) -> None:
    """Each case in a process of its own, on a core of its own."""
    free, running = sorted(os.sched_getaffinity(0))[:jobs], {}
    while wanted or running:
        while wanted and free:
            case, core = wanted.pop(0), free.pop()
            command = [sys.executable, __file__, "--case", json.dumps(case)]
            process = subprocess.Popen(
                ["taskset", "-c", str(core), *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running[process] = (case, core)
        for process in [p for p in running if p.poll() is not None]:
            case, core = running.pop(process)
            free.append(core)
            out, problems = process.communicate()
            if process.returncode:
                print(f"{case.name}: failed\n{problems[-2000:]}", flush=True)
                continue
            with results.open("a") as file:
                file.write(out.strip().splitlines()[-1] + "\n")
            print(f"{case.name}: C2ST {json.loads(out.strip().splitlines()[-1])['c2st']:.3f}", flush=True)
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="run cases whose name starts with this")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, one core each")
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measured(Case(*json.loads(options.case)))))
        return
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {Case(*(json.loads(line)[field] for field in Case._fields)) for line in lines}
    wanted = [
        case for case in cases() if case not in done and case.name.lower().startswith(options.only.lower())
    ]
    run_all(wanted, options.jobs, options.results)


if __name__ == "__main__":
    main()
