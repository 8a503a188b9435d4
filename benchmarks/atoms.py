"""The cost of atoms: seconds per training step on images of 3 x 100 x 100, with 10 and with 100 atoms.

The embedding is evaluated once per x, whatever the number of atoms, so a step with ten times the atoms should
take less than 1.5 times as long. The two are timed in turn, and the medians compared.

    python benchmarks/atoms.py
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics

import numpy as np

import aptinfer as apt
from aptinfer.estimators.ensemble import build_members
from aptinfer.keys import Key
from aptinfer.protocols import Simulations
from aptinfer.rows import training_rows

DEFAULT_RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "atoms.jsonl"
PACKAGES = ("aptinfer", "jax", "jaxlib", "numpy")
ROWS = 500
LIMIT = 1.5


def seconds_per_step(atoms: int, epochs: int) -> float:
    """Of the library's own trainer, compilation left out; one validation in nine steps is counted too."""
    rng = np.random.default_rng(0)
    z, nothing = rng.standard_normal((ROWS, 3)), np.zeros(ROWS, int)
    x = rng.standard_normal((ROWS, 3, 100, 100), np.float32)
    network = apt.problems.get("rock_paper_scissors").network
    trainer = apt.Trainer(epochs=epochs, patience=epochs)
    rows = training_rows(
        Simulations(z, z, nothing, nothing, x, np.ones(ROWS, bool)),
        -0.5 * (z**2).sum(axis=1),
        None,
        capacity=ROWS,
        validates=trainer.validates,
        contrasts=True,
        rng=rng,
    )
    built = build_members(Key((0,)), network["estimator"], network["embedding"], 3, x.shape[1:])
    _, history = trainer(Key((1,)), built, apt.Atomic(atoms), rows)
    return history.run_seconds / history.epochs / (int(rows.n_train) // trainer.batch)


def main(repetitions: int, epochs: int) -> dict:
    seconds: dict[int, list[float]] = {10: [], 100: []}
    for repetition in range(repetitions + 1):
        for atoms, measured in seconds.items():
            taken = seconds_per_step(atoms, epochs)
            if repetition:  # the first one compiles
                measured.append(taken)
    few, many = (statistics.median(measured) for measured in seconds.values())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds_per_step": seconds,
        "ratio": round(many / few, 3),
        "limit": LIMIT,
        "epochs": epochs,
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {
            name: importlib.metadata.version(name) for name in ("aptinfer", "jax", "jaxlib", "numpy")
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    chosen = parser.parse_args()
    line = main(chosen.repetitions, chosen.epochs)
    with chosen.results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"100 atoms take {line['ratio']:.2f} times as long as 10 (limit {LIMIT}).")
    raise SystemExit(line["ratio"] >= LIMIT)
