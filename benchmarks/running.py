"""Cases that are run each in a process of its own: on a core of its own, or beside others on an accelerator.
Results are JSON lines in a file."""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence


def run_on_cores(
    script: str, cases: Sequence[tuple], jobs: int, results: pathlib.Path, minutes: float = float("inf")
) -> None:
    """Run cases so many at a time, each on a core; after so many minutes nothing new is started."""
    pins = [["taskset", "-c", str(core)] for core in sorted(os.sched_getaffinity(0))[:jobs]]
    _run(script, cases, pins, [], results, minutes)


def run_on_accelerator(
    script: str, cases: Sequence[tuple], jobs: int, results: pathlib.Path, minutes: float = float("inf")
) -> None:
    """Run cases so many at a time, all on one accelerator; each is told of it by `--together --jobs`."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # none takes nearly all of its memory
    _run(script, cases, [[] for _ in range(jobs)], ["--together", "--jobs", str(jobs)], results, minutes)


def _run(
    script: str,
    cases: Sequence[tuple],
    places: list[list[str]],
    options: list[str],
    results: pathlib.Path,
    minutes: float,
) -> None:
    """Call `script --case <JSON>` for each case, one in each place; it prints one JSON line per run."""
    waiting, end = list(cases), time.monotonic() + 60 * minutes
    free, running = list(places), {}
    while (waiting and time.monotonic() < end) or running:
        while waiting and free and time.monotonic() < end:
            case, place = waiting.pop(0), free.pop()
            process = subprocess.Popen(
                [*place, sys.executable, script, *options, "--case", json.dumps(case)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running[process] = (case, place)
        for process in [p for p in running if p.poll() is not None]:
            case, place = running.pop(process)
            free.append(place)
            out, problems = process.communicate()
            if process.returncode:
                print(f"{case}: failed\n{problems[-2000:]}", flush=True)
                continue
            lines = [line for line in out.splitlines() if line.startswith("{")]
            with results.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)
            scores = [str(json.loads(line).get("c2st", "done")) for line in lines]
            print(f"{case}: {', '.join(scores)}", flush=True)
        time.sleep(0.2)
