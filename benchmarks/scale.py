"""A run of 10^6 simulations in one file, within a limit on the memory of its process.

x has 100 numbers: 400 MB in float32, made up from theta, so that simulating takes next to no time. With a
limit, training streams from a scratch file beside the run file; without one, data lie in memory. The losses
of both are printed, to be compared.

    python benchmarks/scale.py --limit 1e9
    python benchmarks/scale.py
    python benchmarks/scale.py --no-file

The limit is the system's (RLIMIT_DATA: all memory that is not of files), so that exceeding it ends the run.
One JSON line is printed and appended to `results/scale.jsonl`.
"""

import argparse
import contextlib
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_name("results") / "scale.jsonl"
DIM, DATA = 5, 100


def mixed(rng: np.random.Generator, thetas: np.ndarray) -> np.ndarray:
    """Linear mixtures of theta, and noise, as float32."""
    mixing = np.sin(np.arange(DIM * DATA, dtype=np.float32)).reshape(DIM, DATA)
    x = rng.standard_normal((len(thetas), DATA), np.float32)
    x += thetas.astype(np.float32) @ mixing
    return x


class Peak:
    """The largest memory of this process while it is watched, file pages apart."""

    def __init__(self):
        self.anonymous, self.files, self._end = 0.0, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            kilobytes = {name: int(status[name].split()[0]) for name in ("RssAnon", "RssFile")}
            self.anonymous = max(self.anonymous, kilobytes["RssAnon"] / 2**20)
            self.files = max(self.files, kilobytes["RssFile"] / 2**20)


def measured(rows: int, epochs: int, batch: int, file: Path | None) -> dict[str, Any]:
    import aptinfer as apt

    started, moments = time.perf_counter(), {}

    def listen(event: Any) -> None:
        name = type(event).__name__
        moments[name] = time.perf_counter() - started  # the last one
        moments.setdefault(f"first {name}", moments[name])

    trainer = apt.Trainer(epochs=epochs, batch=batch)
    method = apt.NPE(estimator=apt.MDN(5), embedding=apt.MLP((50,)), trainer=trainer)
    simulator, prior = apt.BatchSimulator(mixed, chunk=1000), apt.box([-1.0] * DIM, [1.0] * DIM)
    settings = {"method": method, "simulations": rows, "file": file, "listen": listen, "progress": False}
    run = apt.infer(simulator, prior, np.zeros(DATA), **settings)
    history = run.rounds[0].history
    assert history is not None
    return {
        "simulated_seconds": moments["Simulated"],
        "read_scaled_compiled_seconds": moments["first Trained"] - moments["Simulated"],
        "epoch_seconds": (moments["Trained"] - moments["first Trained"]) / max(epochs - 1, 1),
        "validation_loss": history.validation_loss[:, 0].tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--limit", type=float, help="bytes of memory that the process may have")
    parser.add_argument("--no-file", action="store_true", help="keep the simulations in memory only")
    parser.add_argument("--folder", type=Path, help="where the file is written")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.limit:
        resource.setrlimit(resource.RLIMIT_DATA, (int(options.limit), int(options.limit)))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        file = None if options.no_file else folder / "scale.apt"
        with Peak() as peak:
            found = measured(options.rows, options.epochs, options.batch, file)
        line = {
            "rows": options.rows,
            "data": DATA,
            "batch": options.batch,
            "limit": options.limit,
            "file": not options.no_file,
            "file_bytes_per_row": file.stat().st_size / options.rows if file else 0.0,
            "peak_gib_without_file_pages": round(peak.anonymous, 3),
            "peak_gib_of_file_pages": round(peak.files, 3),
            **found,
            "load": os.getloadavg()[0],
        }
    print(json.dumps(line))
    options.results.parent.mkdir(exist_ok=True)
    with options.results.open("a", encoding="utf-8") as results:
        results.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
