"""What overlapping training with simulations gains, with a simulator that takes `--seconds` and no core.

`apt.NPE()` with default settings on the problem "SLCP" (five parameters, eight numbers), with `overlap=True`
and without, in turn, each run in a process of its own with an empty compilation cache.

    python benchmarks/overlap.py [--seconds 0.05] [--processes 8] [--simulations 4000] [--repetitions 3]

One JSON line is printed and appended to `results/overlap.jsonl`.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_name("results") / "overlap.jsonl"


def slcp(rng, theta, seconds=0.0):
    """Four draws from a Gaussian whose mean and covariance are the parameters."""
    time.sleep(seconds)
    first, second = theta[2] ** 2, theta[3] ** 2
    mixed = np.tanh(theta[4]) * second
    root = np.array([[first, 0.0], [mixed, np.sqrt(second**2 - mixed**2)]])
    return (theta[:2] + rng.standard_normal((4, 2)) @ root.T).ravel()


def measured(options: argparse.Namespace, seed: int, *, overlap: bool) -> dict[str, float]:
    import aptinfer as apt

    moments: dict[str, float] = {}

    def listen(event: Any) -> None:
        moments[type(event).__name__] = time.perf_counter()

    started = time.perf_counter()
    run = apt.infer(
        functools.partial(slcp, seconds=options.seconds),
        apt.box([-3.0] * 5, [3.0] * 5),
        slcp(np.random.default_rng(0), np.array([0.7, -2.9, -1.0, -0.9, 0.6])),
        method=apt.NPE(),
        simulations=options.simulations,
        seed=seed,
        executor=apt.Processes(options.processes),
        overlap=overlap,
        listen=listen,
        progress=False,
    )
    history = run.rounds[0].history
    assert history is not None
    return {
        "seconds": time.perf_counter() - started,
        "simulating": moments["Simulated"] - started,
        "after_the_last_simulation": moments["RoundFinished"] - moments["Simulated"],
        "epochs_after_the_last_simulation": history.epochs,
        "validation_loss": float(history.best_loss.mean()),
    }


def in_a_process(arguments: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
        run = [sys.executable, __file__, *arguments]
        return json.loads(subprocess.run(run, env=environment, capture_output=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # one run: its seed, 1 if overlapped
    options = parser.parse_args()
    if options.only:
        seed, overlap = map(int, options.only)
        print(json.dumps(measured(options, seed, overlap=bool(overlap))))
        return
    settings = {name: getattr(options, name) for name in ("seconds", "processes", "simulations")}
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    found: dict[str, list[dict[str, float]]] = {"usual": [], "overlapped": []}
    for seed in range(options.repetitions):
        found["usual"].append(in_a_process([*flags, "--only", str(seed), "0"]))
        found["overlapped"].append(in_a_process([*flags, "--only", str(seed), "1"]))
    line = json.dumps({**settings, **found, "load": os.getloadavg()[0], "cores": os.cpu_count()})
    print(line)
    options.results.parent.mkdir(exist_ok=True)
    with options.results.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


if __name__ == "__main__":
    main()
