"""What durability costs: per row with a simulator that does nothing, on two moons from end to end, and when
a long run is resumed.

    python benchmarks/durability.py [--rows 1000000] [--two-moons] [--folder /path/on/the/disk]

One JSON line per measurement is printed and appended to `results/durability.jsonl`.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import aptinfer as apt
from aptinfer.durable import begin
from aptinfer.methods.apt import NPE
from aptinfer.protocols import Draws, Store, Tally
from aptinfer.sequential import Plan, Problem, _simulate
from aptinfer.simulators import as_simulator
from aptinfer.storage.runfile import RunFileReader
from aptinfer.store import MemoryStore

RESULTS = Path(__file__).with_name("results") / "durability.jsonl"
DIM, DATA = 5, 10


def nothing(rng: np.random.Generator, thetas: np.ndarray) -> np.ndarray:
    """A batched simulator that takes no time."""
    return np.zeros((len(thetas), DATA))


class Forgetful(MemoryStore):
    """Keeps no outcome: what simulating and counting alone cost."""

    def record(self, outcomes):
        pass


def draws(rows: int) -> Draws:
    rng = np.random.default_rng(0)
    value = rng.standard_normal((rows, DIM)).astype(np.float32)
    return Draws(value, value.astype(np.float64), np.zeros(rows, np.int32))


def simulated(problem: Problem, plan: Plan, store: Store, rows: int) -> np.ndarray:
    """Microseconds per row, by the clock and of the processor, for a round that is planned and recorded."""
    started = np.array([time.perf_counter(), time.process_time()])
    waiting = store.plan(0, lambda: draws(rows))
    tally: Tally = _simulate(problem, plan, apt.Inline(), store, lambda event: None, 0, waiting)
    assert tally.done == rows
    return 1e6 * (np.array([time.perf_counter(), time.process_time()]) - started) / rows


def per_row(rows: int, folder: Path) -> dict[str, Any]:
    """The cost of a row that is forgotten, kept in memory, and kept in a file."""
    prior = apt.box([-9.0] * DIM, [9.0] * DIM)
    simulator, method = as_simulator(apt.BatchSimulator(nothing, chunk=1000)), NPE()
    frame = method.space.frame(prior, np.float64)
    problem = Problem(frame, simulator, np.zeros(DATA))
    plan = Plan(1, rows, 0)
    forgotten = simulated(problem, plan, Forgetful(), rows)
    in_memory = simulated(problem, plan, MemoryStore(), rows)
    path = folder / "rows.apt"
    with begin(path, problem, method.settled(frame), plan) as store:
        in_file = simulated(problem, plan, store, rows)
    started = time.perf_counter()
    read = RunFileReader(path).simulations()
    reading = time.perf_counter() - started
    assert read.done.all()
    return {
        "what": "rows of a batched simulator",
        "rows": rows,
        "units": "microseconds per row: clock, processor",
        "forgotten": forgotten.tolist(),
        "in_memory": in_memory.tolist(),
        "in_file": in_file.tolist(),
        "durability": (in_file - forgotten).tolist(),
        "read_all_seconds": reading,
        "file_bytes_per_row": path.stat().st_size / rows,
    }


def first_new_simulation(rows: int, folder: Path) -> dict[str, Any]:
    """Seconds from `apt.resume` on a run of `rows` simulations to its first new one."""
    path, moment = folder / "resumed.apt", []
    prior = apt.box([-9.0] * DIM, [9.0] * DIM)
    method = NPE(estimator=apt.MDN(1), embedding=apt.Flatten(), trainer=apt.Trainer(epochs=1))

    class Enough(Exception):  # noqa: N818
        pass

    def stop(event: Any) -> None:
        if isinstance(event, apt.Trained):
            raise Enough

    simulator = apt.BatchSimulator(nothing, chunk=1000)
    with contextlib.suppress(Enough):
        apt.infer(
            simulator,
            prior,
            np.zeros(DATA),
            method=method,
            simulations=rows,
            file=path,
            listen=stop,
            progress=False,
        )

    class Stopping(apt.Inline):
        """Notes when it is first asked for a simulation."""

        def __call__(self, simulator, seed, waiting):
            moment.append(time.perf_counter())
            raise Enough
            yield

    started = time.perf_counter()
    with contextlib.suppress(Enough):
        apt.resume(path, simulator, simulations=rows + 1000, executor=Stopping(), progress=False)
    return {"what": "first new simulation of a resumed run", "rows": rows, "seconds": moment[0] - started}


def two_moons(folder: Path, repetitions: int) -> dict[str, Any]:
    """Ten rounds of 1000 simulations with default settings, with and without a file, in turn."""
    problem = apt.problems.get("two_moons")

    def run(file: Path | None) -> float:
        started = time.perf_counter()
        apt.infer(problem.simulator, problem.prior, problem.observation, seed=0, file=file, progress=False)
        return time.perf_counter() - started

    run(None)  # compiles
    plain, durable = [], []
    for number in range(repetitions):
        plain.append(run(None))
        durable.append(run(folder / f"two_moons_{number}.apt"))
    return {
        "what": "two moons, 10 x 1000",
        "memory_seconds": plain,
        "file_seconds": durable,
        "overhead": float(np.median(durable) / np.median(plain) - 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--two-moons", action="store_true", help="the end-to-end comparison too")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files are written")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measurements: list[Callable[[], dict[str, Any]]] = [
            lambda: per_row(arguments.rows, Path(folder)),
            lambda: first_new_simulation(arguments.rows, Path(folder)),
        ]
        if arguments.two_moons:
            measurements.append(lambda: two_moons(Path(folder), arguments.repetitions))
        for measure in measurements:
            line = json.dumps({**measure(), "load": os.getloadavg()[0], "cores": os.cpu_count()})
            print(line, flush=True)
            arguments.results.parent.mkdir(exist_ok=True)
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
