"""Speed of aptinfer against sbi, both measured in the same run.

Each library runs in a process and an environment of its own. For every case both are prepared
once, then timed in turn (ours, peer, ours, peer, ...) so that a change in the machine's load
meets both alike; while one works the other waits. The ratio is the peer's median over ours:
above 1, aptinfer is faster.

    python benchmarks/vs_sbi.py --peer-python path/to/python/of/the/sbi/environment
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from workers import cases

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT_RESULTS = HERE / "results" / "vs_sbi.jsonl"
OURS, PEER = "aptinfer", "sbi"
SETTLE_SECONDS = 0.3  # thread pools spin for a while after work before they sleep
REPETITIONS = {"step": 7, "end_to_end": 1, "sampling": 3}


class WorkerError(RuntimeError):
    """A worker died, ran out of time or reported an exception."""


class Worker:
    """A worker process that answers one JSON line for each JSON line it is sent."""

    def __init__(self, module, python, verbose):
        self.module = module
        self.process = subprocess.Popen(
            [python, "-m", module],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            text=True,
        )
        self.replies = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.replies.put(line)
        self.replies.put(None)

    def ask(self, timeout, **message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        try:
            line = self.replies.get(timeout=timeout)
        except queue.Empty:
            self.close(kill=True)
            raise WorkerError(f"{self.module}: no answer within {timeout} s") from None
        if line is None:
            raise WorkerError(f"{self.module}: the process ended (see --verbose)")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(f"{self.module}:\n{reply['error']}")
        return reply

    def close(self, kill=False):
        if kill:
            self.process.kill()
        else:
            # A worker that is gone already needs no farewell.
            with contextlib.suppress(OSError):
                self.process.stdin.write('{"command": "quit"}\n')
                self.process.stdin.close()
        self.process.wait(timeout=30)


def c2st(samples, reference, seed=0):
    """Classifier two-sample test, five-fold accuracy: 0.5 if alike, 1 if told apart."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    mean, std = reference.mean(axis=0), reference.std(axis=0)
    data = (np.concatenate([samples, reference]) - mean) / std
    labels = np.repeat([0, 1], [len(samples), len(reference)])
    hidden = 10 * samples.shape[1]
    classifier = MLPClassifier((hidden, hidden), max_iter=1000, random_state=seed)
    folds = KFold(n_splits=5, shuffle=True, random_state=seed)
    return float(cross_val_score(classifier, data, labels, cv=folds).mean())


def measure_case(case, settings, workers, repetitions, timeout, c2st_samples, seed):
    """Prepare every worker, then time them in turn; one dictionary per library."""
    outcome = {}
    for name, worker in workers.items():
        reply = worker.ask(timeout, command="prepare", case=case, settings=settings, seed=seed)
        outcome[name] = {"case": case, "seconds": [], "details": [], "prepare": reply}
    for repetition in range(repetitions):
        for name, worker in workers.items():
            time.sleep(SETTLE_SECONDS)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "samples.npy")
                reply = worker.ask(
                    timeout,
                    command="measure",
                    case=case,
                    settings=settings,
                    seed=seed + 1 + repetition,
                    repeat=1,
                    samples_path=path,
                )
                detail = reply["details"][0]
                if settings.get("task") == "two_moons":
                    detail["c2st"] = two_moons_c2st(np.load(path), c2st_samples)
            outcome[name]["seconds"] += reply["seconds"]
            outcome[name]["details"].append(detail)
    for name, worker in workers.items():
        worker.ask(timeout, command="release", case=case)
        outcome[name]["median"] = statistics.median(outcome[name]["seconds"])
    return outcome


def peer_run(settings):
    """What a run of the peer depends on, where it is long enough to be kept; otherwise None."""
    if settings["kind"] != "end_to_end":
        return None
    return json.dumps({key: value for key, value in settings.items() if key != "ours"})


def two_moons_c2st(samples, count):
    reference = cases.two_moons_posterior(count, np.random.default_rng(0))
    return c2st(samples[:count], reference)


def record(case, settings, outcome, infos, load):
    ours, peer = outcome.get(OURS), outcome.get(PEER)
    return {
        "case": case,
        "unit": settings["unit"],
        "seconds_ours": ours and ours["median"],
        "seconds_peer": peer and peer["median"],
        "ratio": peer["median"] / ours["median"] if ours and peer else None,
        "repetitions_ours": ours and ours["seconds"],
        "repetitions_peer": peer and peer["seconds"],
        "details_ours": ours and {"prepare": ours["prepare"], "measure": ours["details"]},
        "details_peer": peer and {"prepare": peer["prepare"], "measure": peer["details"]},
        "peer_measured_in": peer and peer["case"],
        "info_ours": infos.get(OURS),
        "info_peer": infos.get(PEER),
        "settings": settings,
        "machine": machine(),
        "load_before": load,
        "commit": commit(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def machine():
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if "model name" in line), model)
    return {"system": platform.system(), "processor": model, "cores": os.cpu_count()}


def commit():
    """The commit measured, with a plus sign where the tree differs from it."""
    try:
        name = git("rev-parse", "--short", "HEAD")
        return name + ("+" if git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def git(*arguments):
    command = ["git", "-C", str(HERE.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def show(seconds):
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.2f} ms"


def remarks(entry):
    """What a reader should see beside the seconds: C2ST, epochs, acceptance, size of the networks."""
    parts = []
    for name, side in (("ours", "details_ours"), ("peer", "details_peer")):
        details = entry[side]
        if details is None:
            continue
        for key in ("c2st", "epochs_per_round", "acceptance_rate", "samples", "parameters"):
            value = details["measure"][-1].get(key, details["prepare"]["details"].get(key))
            if isinstance(value, list):
                value = f"{sum(value)} in all"
            elif isinstance(value, float):
                value = f"{value:.3g}"
            if value is not None:
                parts.append(f"{name} {key.replace('_', ' ')} {value}")
    return "; ".join(parts)


def table(entries):
    lines = [
        "| case | unit | aptinfer | sbi | sbi / aptinfer | remarks |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for entry in entries:
        ratio = "-" if entry["ratio"] is None else f"{entry['ratio']:.2f}"
        cells = [
            entry["case"],
            entry["unit"],
            show(entry["seconds_ours"]),
            show(entry["seconds_peer"]),
            ratio,
            remarks(entry),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peer-python",
        default=os.environ.get("SBI_PYTHON"),
        help="Python of an environment with sbi (default: the variable SBI_PYTHON)",
    )
    parser.add_argument("--python", default=sys.executable, help="Python with aptinfer")
    parser.add_argument("--cases", nargs="+", choices=cases.CASES, default=list(cases.CASES))
    parser.add_argument("--only", choices=[OURS, PEER], help="measure one library alone")
    parser.add_argument("--repetitions", type=int, help=f"default by kind: {REPETITIONS}")
    parser.add_argument("--rounds", type=int, help="fewer rounds, for a quick trial")
    parser.add_argument("--cores", type=int, help="let both libraries use this many cores only")
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="what steps are timed with: processor, with --cores 1, on a machine that does other work",
    )
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for each command")
    parser.add_argument("--c2st-samples", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=pathlib.Path, default=DEFAULT_RESULTS)
    parser.add_argument("--verbose", action="store_true", help="show what the workers print")
    arguments = parser.parse_args()
    if arguments.only != OURS and arguments.peer_python is None:
        parser.error("give --peer-python or set SBI_PYTHON")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.cores:  # the workers inherit this and size their thread pools by it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    pythons = {OURS: arguments.python, PEER: arguments.peer_python}
    names = [name for name in (OURS, PEER) if arguments.only in (None, name)]
    workers, entries, peer_runs, failed = {}, [], {}, False
    try:
        for name in names:
            workers[name] = Worker(f"workers.{name}_worker", pythons[name], arguments.verbose)
        infos = {name: worker.ask(300, command="info") for name, worker in workers.items()}
        for name, info in infos.items():
            print(f"{name}: {json.dumps(info)}", flush=True)
        for case in arguments.cases:
            settings = {**cases.CASES[case], "clock": arguments.clock}
            if arguments.rounds and "rounds" in settings:
                settings["rounds"] = arguments.rounds
            load, start = os.getloadavg()[0], time.perf_counter()
            peer = peer_run(settings)
            reused = {PEER: peer_runs[peer]} if peer in peer_runs else {}
            outcome = measure_case(
                case,
                settings,
                {name: worker for name, worker in workers.items() if name not in reused},
                arguments.repetitions or REPETITIONS[settings["kind"]],
                arguments.timeout,
                arguments.c2st_samples,
                arguments.seed,
            )
            outcome |= reused
            if peer is not None and PEER in outcome:
                peer_runs[peer] = outcome[PEER]
            entry = record(case, settings, outcome, infos, load)
            entries.append(entry)
            arguments.results.parent.mkdir(parents=True, exist_ok=True)
            with open(arguments.results, "a") as file:
                file.write(json.dumps(entry) + "\n")
            print(f"{case}: done in {time.perf_counter() - start:.0f} s", flush=True)
    except WorkerError as error:
        print(error, file=sys.stderr)
        failed = True
    finally:
        for worker in workers.values():
            worker.close(kill=failed)
    print("\n" + table(entries))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
