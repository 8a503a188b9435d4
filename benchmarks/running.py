"""Cases that are run each in a process of its own, on a core of its own; results are JSON lines in a file."""

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
    """Call `script --case <JSON>` for each case, so many at a time; what it prints is one JSON line per run.

    After so many minutes nothing new is started.
    """
    waiting, end = list(cases), time.monotonic() + 60 * minutes
    free, running = sorted(os.sched_getaffinity(0))[:jobs], {}
    while (waiting and time.monotonic() < end) or running:
        while waiting and free and time.monotonic() < end:
            case, core = waiting.pop(0), free.pop()
            process = subprocess.Popen(
                ["taskset", "-c", str(core), sys.executable, script, "--case", json.dumps(case)],
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
                print(f"{case}: failed\n{problems[-2000:]}", flush=True)
                continue
            lines = [line for line in out.splitlines() if line.startswith("{")]
            with results.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)
            scores = [str(json.loads(line).get("c2st", "done")) for line in lines]
            print(f"{case}: {', '.join(scores)}", flush=True)
        time.sleep(0.2)
