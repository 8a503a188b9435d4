"""What it costs to run a simulation somewhere else: a simulator that does nothing, one row per call.

python benchmarks/executors.py --peer-python sbi-env/bin/python
"""

import argparse
import concurrent.futures
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import time

import numpy as np

import aptinfer as apt
from aptinfer.executors import Futures
from aptinfer.protocols import Executor, Rows
from aptinfer.simulators import as_simulator

DEFAULT_RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "executors.jsonl"
PACKAGES = ("aptinfer", "numpy", "cloudpickle")

PEER = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import sbi, torch
from sbi.inference import simulate_for_sbi
from sbi.utils import BoxUniform

def simulator(theta):
    return torch.as_tensor(theta)

if __name__ == "__main__":
    n, workers = int(sys.argv[1]), int(sys.argv[2])
    prior = BoxUniform(torch.zeros(2), torch.ones(2))
    options = dict(num_workers=workers, simulation_batch_size=1, show_progress_bar=False)
    simulate_for_sbi(simulator, prior, num_simulations=100, **options)
    started = time.perf_counter()
    simulate_for_sbi(simulator, prior, num_simulations=n, **options)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "sbi": sbi.__version__, "torch": torch.__version__}))
"""


def nothing(rng, theta):
    return theta


def seconds(executor: Executor, rows: Rows) -> float:
    started = time.perf_counter()
    count = sum(1 for _ in executor(as_simulator(nothing), 0, rows))
    assert count == len(rows.index)
    return time.perf_counter() - started


def rows_of(n: int) -> Rows:
    return Rows(np.arange(n), np.random.default_rng(0).uniform(size=(n, 2)))


def peer(python: str, n: int, workers: int, folder: pathlib.Path) -> dict:
    """sbi's time for so many simulations, in an interpreter that has it."""
    script = folder / "_peer.py"  # sbi's workers import the script of the function
    script.write_text(PEER)
    try:
        command = [python, str(script), str(n), str(workers)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        script.unlink()
    return json.loads(done.stdout.splitlines()[-1])


def measured(repetitions: int, n: int, workers: int) -> dict[str, list[float]]:
    """Seconds of each way, once per repetition, in turn."""
    ways: dict[str, list[float]] = {
        "Inline": [],
        "Processes": [],
        "Processes, start included": [],
        "threads": [],
    }
    rows = rows_of(n)
    with apt.Processes(workers) as pool, concurrent.futures.ThreadPoolExecutor(workers) as threads:
        seconds(pool, rows_of(100))
        for _ in range(repetitions):
            ways["Inline"].append(seconds(apt.Inline(), rows))
            ways["Processes"].append(seconds(pool, rows))
            ways["Processes, start included"].append(seconds(apt.Processes(workers), rows))
            ways["threads"].append(seconds(Futures(threads), rows))
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--peer-python", default=os.environ.get("SBI_PYTHON"), help="an interpreter that has sbi"
    )
    parser.add_argument("--peer-rows", type=int, default=100_000)
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    ways = measured(arguments.repetitions, arguments.rows, arguments.workers)
    each = {way: [1e6 * s / arguments.rows for s in times] for way, times in ways.items()}
    versions = {"python": platform.python_version()}
    versions |= {package: importlib.metadata.version(package) for package in PACKAGES}
    if arguments.peer_python:
        found = peer(arguments.peer_python, arguments.peer_rows, arguments.workers, DEFAULT_RESULTS.parent)
        each["sbi"] = [1e6 * found.pop("seconds") / arguments.peer_rows]
        versions |= found
    line = {
        "microseconds_per_simulation": {way: statistics.median(times) for way, times in each.items()},
        "repetitions": each,
        "rows": arguments.rows,
        "workers": arguments.workers,
        "peer_rows": arguments.peer_rows,
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions,
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    with arguments.results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print("| where | per simulation |\n| --- | ---: |")
    for way, value in line["microseconds_per_simulation"].items():
        print(f"| {way} | {value:.1f} µs |")


if __name__ == "__main__":
    main()
