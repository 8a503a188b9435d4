"""Does the fast `c2st` give the published numbers? Twenty pairs of sets, in 2, 5 and 10 dimensions.

Each pair is judged by `c2st` and by `c2st_published`, which trains scikit-learn's classifier: the two should
agree within 0.01. One fold of scikit-learn's is one task, and so is one call of the fast one; every task
has one core to itself. Tasks that have finished are kept, so that an interrupted run can be started again.

    python benchmarks/c2st_agreement.py --jobs 16 --minutes 9
"""

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import platform
import sys
import time
import zlib

import numpy as np

DEFAULT_RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "c2st_agreement.jsonl"
TOLERANCE = 0.01
SEED, FOLDS = 1, 5
FAST = "fast"


def shift(rng, n, dim, size):
    """Unit Gaussians whose means are `size` apart; the best accuracy is Φ(size / 2)."""
    return rng.normal(size / np.sqrt(dim), 1, (n, dim)), rng.normal(size=(n, dim))


def scale(rng, n, dim, size):
    return rng.normal(0, size, (n, dim)), rng.normal(size=(n, dim))


def correlation(rng, n, dim, size):
    """Unit marginals; every two parameters of the samples have this correlation."""
    common = rng.normal(size=(n, 1))
    return np.sqrt(size) * common + np.sqrt(1 - size) * rng.normal(size=(n, dim)), rng.normal(size=(n, dim))


def tails(rng, n, dim, size):
    """Student's t with `size` degrees of freedom in every parameter."""
    return rng.standard_t(size, (n, dim)), rng.normal(size=(n, dim))


def mode(rng, n, dim, size):
    """The reference has two modes `size` apart, the samples one of them."""
    signs = rng.choice([-1, 1], (n, 1))
    first = np.eye(1, dim)
    return rng.normal(size=(n, dim)) + size / 2 * first, rng.normal(size=(n, dim)) + signs * size / 2 * first


def banana(rng, n, dim, size):
    """A Gaussian bent along its first parameter, against a Gaussian of the same mean and deviations."""
    bent = rng.normal(size=(n, dim))
    bent[:, 1] += size * (bent[:, 0] ** 2 - 1)
    deviations = np.ones(dim)
    deviations[1] = np.sqrt(1 + 2 * size**2)
    return rng.normal(0, deviations, (n, dim)), bent


# The expensive ones first: many dimensions, then little to learn.
PAIRS = {
    f"{kind.__name__}_{size:g}_{dim}d": (kind, dim, size)
    for dim, kind, size in [
        (10, shift, 0.0),
        (10, correlation, 0.1),
        (10, scale, 1.2),
        (10, banana, 0.5),
        (10, shift, 1.0),
        (10, tails, 3.0),
        (10, shift, 4.0),
        (5, shift, 0.0),
        (5, shift, 0.5),
        (5, correlation, 0.5),
        (5, scale, 1.5),
        (5, tails, 3.0),
        (5, mode, 4.0),
        (2, shift, 0.0),
        (2, shift, 0.3),
        (2, correlation, 0.7),
        (2, tails, 3.0),
        (2, banana, 1.0),
        (2, mode, 4.0),
        (2, shift, 3.0),
    ]
}


def draws(name, n):
    """The pair's samples and reference, always the same for a name and a number of rows."""
    kind, dim, size = PAIRS[name]
    return kind(np.random.default_rng(zlib.crc32(name.encode())), n, dim, size)


def work(task):
    """One part of a pair: the fast value, or the published accuracy of one fold."""
    name, rows, part = task
    # Imported here, after the process has been given its core: thread pools are made on import.
    from aptinfer.diagnostics.two_sample import c2st, published

    samples, reference = draws(name, rows)
    start = time.perf_counter()
    if part == FAST:
        value = c2st(samples, reference, seed=SEED)
    else:
        labels = np.repeat([0, 1], rows)
        value = published.fold_accuracy(published.standardised(samples, reference), labels, SEED, part)
    return {
        "pair": name,
        "rows": rows,
        "part": part,
        "value": value,
        "seconds": time.perf_counter() - start,
    }


def own_core(counter):
    """Give this process one core, so that seconds mean the same for both and do not depend on --jobs."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        with counter.get_lock():
            counter.value += 1
            os.sched_setaffinity(0, {cores[(counter.value - 1) % len(cores)]})


def record(name, rows, parts):
    """The line of a finished pair."""
    kind, dim, size = PAIRS[name]
    folds = [parts[fold] for fold in range(FOLDS)]
    published, fast = float(np.mean([fold["value"] for fold in folds])), parts[FAST]["value"]
    packages = ("aptinfer", "jax", "scikit-learn", "numpy", "scipy")
    return {
        "pair": name,
        "dim": dim,
        "kind": kind.__name__,
        "size": size,
        "rows": rows,
        "published": published,
        "fast": fast,
        "difference": fast - published,
        "published_folds": [fold["value"] for fold in folds],
        "seconds_published": sum(fold["seconds"] for fold in folds),
        "seconds_fast": parts[FAST]["seconds"],  # compilation included
        "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
        "machine": platform.machine(),
    }


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return None


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path, line):
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def run(tasks, jobs, minutes):
    """Results as they come, in any order, until time is up."""
    end = time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    counter = context.Value("i", 0)
    with context.Pool(min(jobs, len(tasks)), own_core, (counter,)) as pool:  # terminated at the end
        results = pool.imap_unordered(work, tasks)
        for _ in tasks:
            try:
                yield results.next(timeout=max(0.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                return


def table(records):
    text = [
        "| pair | published | fast | difference | published, s | fast, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for r in records:
        values = f"{r['published']:.4f} | {r['fast']:.4f} | {r['difference']:+.4f}"
        text.append(f"| {r['pair']} | {values} | {r['seconds_published']:.1f} | {r['seconds_fast']:.1f} |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, one core each")
    parser.add_argument(
        "--rows", type=int, default=10_000, help="rows of each set; published values use 10000"
    )
    parser.add_argument("--pairs", nargs="*", default=list(PAIRS), choices=PAIRS, metavar="PAIR")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after so long; start again later"
    )
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    arguments = parser.parse_args()
    for name, value in {
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }.items():
        os.environ.setdefault(name, value)

    path, rows = arguments.results, arguments.rows
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = path.with_suffix(".parts.jsonl")
    finished = {r["pair"]: r for r in lines(path) if r["rows"] == rows}
    parts = {name: {} for name in arguments.pairs if name not in finished}
    for part in lines(kept):
        if part["pair"] in parts and part["rows"] == rows:
            parts[part["pair"]][part["part"]] = part
    tasks = [
        (name, rows, part) for name in parts for part in (*range(FOLDS), FAST) if part not in parts[name]
    ]
    print(f"{len(finished)} pairs of {rows} rows are finished; {len(tasks)} tasks to do.", flush=True)
    for done in run(tasks, arguments.jobs, arguments.minutes) if tasks else ():
        append(kept, done)
        name = done["pair"]
        parts[name][done["part"]] = done
        if len(parts[name]) == FOLDS + 1:
            finished[name] = record(name, rows, parts[name])
            append(path, finished[name])
            difference, seconds = finished[name]["difference"], finished[name]["seconds_published"]
            print(f"{name}: {difference:+.4f} ({seconds:.0f} s with scikit-learn)", flush=True)

    chosen = [finished[name] for name in PAIRS if name in finished]
    print(table(chosen))
    missing = [name for name in arguments.pairs if name not in finished]
    if missing:
        print(f"Not finished: {', '.join(missing)}. The same command goes on from here.")
        return 3
    kept.unlink(missing_ok=True)
    largest = max(abs(r["difference"]) for r in chosen)
    print(f"Largest difference: {largest:.4f}; {TOLERANCE} is allowed with 10000 rows.")
    return int(rows >= 10_000 and largest > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
