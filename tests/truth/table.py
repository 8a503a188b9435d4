"""Measures every method on every problem with an exact posterior, in parallel, and writes `table.csv`.

    python tests/truth/table.py --jobs 8
    python tests/truth/table.py --jobs 8 --methods "atomic maf" --problems box 1-d    # these rows anew

An entry is what `test_the_whole_table` measures: errors of mean and spread after three rounds, in units of
the posterior, beside the bounds that they must not exceed. An entry that raises has empty columns.
"""

import argparse
import csv
import importlib.metadata
import os
import platform
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

# Nothing here imports JAX: a worker chooses its cores first.

COLUMNS: tuple[str, ...] = ("method", "problem", "mean", "mean_bound", "spread", "spread_bound", "seconds")
HERE = Path(__file__).parent
Row = dict[str, str]


def main() -> None:
    options = _arguments()
    sys.path.insert(0, str(HERE))
    from closed_forms import IMPOSSIBLE, METHODS, PROBLEMS

    table = [(m, p) for m in METHODS for p in PROBLEMS if (m, p) not in IMPOSSIBLE]
    wanted = [
        (m, p) for m, p in table if m in (options.methods or METHODS) and p in (options.problems or PROBLEMS)
    ]
    rows = {entry: row for entry, row in _read(options.output).items() if entry in table}
    context = get_context("spawn")
    slots = context.Queue()
    for cores in _split(_cores(), options.jobs):
        slots.put(cores)
    with ProcessPoolExecutor(options.jobs, context, _start, (slots,)) as pool:
        for done in as_completed([pool.submit(_measured, m, p, options.seed) for m, p in wanted]):
            row = done.result()
            rows[row["method"], row["problem"]] = row
            print(*row.values(), sep="  ", flush=True)
            # Written after every entry, so that a run that is cut short leaves what it has measured.
            _write(options.output, [rows[entry] for entry in table if entry in rows], options)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on its share of the cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", help="only these; the other rows stay as they are")
    parser.add_argument("--problems", nargs="+", help="only these; the other rows stay as they are")
    parser.add_argument("--output", type=Path, default=HERE / "table.csv")
    return parser.parse_args()


def _measured(method: str, problem: str, seed: int) -> Row:
    """One row of the table, in a worker."""
    from closed_forms import METHODS, PROBLEMS, measure

    started = time.perf_counter()
    try:
        found = measure(PROBLEMS[problem], METHODS[method], seed)
        numbers = [f"{v:.4f}" for v in (found.mean, found.mean_bound, found.spread, found.spread_bound)]
    except Exception:
        print(f"{method}, {problem}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        numbers = [""] * 4
    seconds = f"{time.perf_counter() - started:.1f}"
    return dict(zip(COLUMNS, (method, problem, *numbers, seconds), strict=True))


def _start(slots) -> None:
    """Take a share of the cores, so that no worker slows down another."""
    cores = slots.get()
    if cores:
        os.sched_setaffinity(0, cores)
    sys.path.insert(0, str(HERE))


def _cores() -> list[int]:
    """What this process may run on; empty where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _split(cores: list[int], jobs: int) -> list[list[int]]:
    """A share for each job; shares overlap only where there are more jobs than cores."""
    each = max(len(cores) // jobs, 1)
    return [[cores[(i * each + j) % len(cores)] for j in range(each)] if cores else [] for i in range(jobs)]


def _read(path: Path) -> dict[tuple[str, str], Row]:
    if not path.exists():
        return {}
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {(row["method"], row["problem"]): row for row in csv.DictReader(lines)}


def _write(path: Path, rows: list[Row], options: argparse.Namespace) -> None:
    packages = ("aptinfer", "jax", "equinox", "numpyro", "numpy")
    versions = " ".join(f"{name}=={_version(name)}" for name in packages)
    with path.open("w", newline="") as file:
        file.write(f"# seed {options.seed}; Python {platform.python_version()}, {versions}\n")
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _version(package: str) -> str:
    """Of the package as imported: a checkout on PYTHONPATH has no metadata."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return getattr(importlib.import_module(package), "__version__", "unknown")


if __name__ == "__main__":
    main()
