"""Run the paper's experiments, or go on with them: pieces whose lines are there already are not run again.

    python -m experiments.run --quick                 everything, small: minutes on two cores
    python -m experiments.run --figures 5 6 --seeds 3 --minutes 9 --processes 12
    python -m experiments.run --list                  what there is to run

Small networks and single chains run on processor cores, one seed each; the others on the accelerator, in this
process, their seeds side by side. Where there is none, all of them run on cores, one seed each. With
`--at-once 6`, so many processes share the accelerator.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue

from experiments import figures, lines
from experiments.pieces import Piece, Scale, breadth_first, one_seed_each

ROOT = Path(__file__).resolve().parents[1]
QUICK_OUT = Path("build") / "reproduce"
RESERVE, MOST_RESERVE = 0.15, 2.0  # share of the time allowed, and minutes: to end a round, and to measure


class Clock:
    """The time that is left."""

    def __init__(self, minutes: float | None):
        self.end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self.deadline = self.end if minutes is None else self.end - 60 * min(RESERVE * minutes, MOST_RESERVE)
        self.started_any = False

    def allows(self, piece: Piece) -> bool:
        """Whether a piece would end in time; the first one is always tried."""
        fits = time.monotonic() + 60 * piece.minutes <= self.end
        first, self.started_any = not self.started_any, True
        return fits or first

    @property
    def minutes(self) -> float:
        return (self.end - time.monotonic()) / 60


def run_here(piece: Piece, folder: Path, deadline: float) -> bool:
    """Run a piece in this process; whether it went well."""
    print(f"{piece.name} ...", flush=True)
    started = time.monotonic()
    try:
        lines.append(figures.module(piece.figure).run(piece, folder, deadline), folder)
    except Exception:  # other pieces go on
        traceback.print_exc()
        return False
    print(f"{piece.name}: {time.monotonic() - started:.0f} s", flush=True)
    return True


def run_in_processes(pieces: list[Piece], folder: Path, clock: Clock, places: Sequence[int | None]) -> bool:
    """Run pieces in processes of their own, one at a time in each place: a core's number, or None for the
    accelerator."""
    free: SimpleQueue[int | None] = SimpleQueue()
    for place in places:
        free.put(place)
    failed = threading.Event()

    def one(piece: Piece) -> None:
        core = free.get()
        try:
            if not clock.allows(piece):
                return
            command = [sys.executable, "-m", "experiments.run", "--out", str(folder)]
            command += ["--piece", json.dumps(asdict(piece))]
            if clock.end < float("inf"):
                command += ["--minutes", f"{clock.minutes:.3f}"]
            paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            environment = os.environ | {"PYTHONPATH": paths}
            if core is None:
                environment.setdefault(lines.SHARING, str(len(places)))  # the user may know of others
            else:
                command += ["--core", str(core)]
                environment["JAX_PLATFORMS"] = "cpu"
            ended = subprocess.run(command, env=environment)
            if ended.returncode:
                failed.set()
        finally:
            free.put(core)

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(one, pieces))
    return not failed.is_set()


def available_cores() -> list[int]:
    """Those that this process may use; where the system does not say, all."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pin(core: int) -> None:
    """Keep this process on one core, where the system can: others have theirs."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def run_all(
    wanted: list[Piece],
    folder: Path,
    minutes: float | None,
    processes: int | None,
    *,
    accelerated: bool,
    at_once: int = 1,
) -> bool:
    clock = Clock(minutes)
    # An accelerator's pieces need a core or two of their own.
    processes = processes or max(1, len(available_cores()) - 2 * accelerated * at_once)
    on_cores = [piece for piece in wanted if piece.single_core or not accelerated]
    others = [piece for piece in wanted if piece not in on_cores]
    ended_well = []
    helper = threading.Thread(
        target=lambda: ended_well.append(
            run_in_processes(on_cores, folder, clock, available_cores()[-processes:])
        )
    )
    helper.start()
    if at_once > 1:
        ended_well.append(run_in_processes(others, folder, clock, [None] * at_once))
    else:
        ended_well += [run_here(piece, folder, clock.deadline) for piece in others if clock.allows(piece)]
    helper.join()
    return all(ended_well)


def left_to_run(
    names: Iterable[str],
    scale: Scale,
    folders: Iterable[Path],
    *,
    accelerated: bool,
    at_once: int = 1,
    together: bool = False,
) -> list[Piece]:
    """Pieces of these figures that have no lines yet, in the order in which they are to be run.

    Where several share an accelerator, the seeds of small networks do so too: each has a process of its own,
    and none waits for the epochs of another. Unless seeds are to stay `together`, for want of cores.
    """
    left = []
    for name in names:
        pieces, known = figures.module(name).pieces(scale), lines.read(name, *folders)
        if not accelerated:
            pieces = one_seed_each(pieces)
        elif at_once > 1 and not together:
            pieces = [one for piece in pieces for one in ([piece] if piece.wide else one_seed_each([piece]))]
        seeds = [lines.seeds_left(piece, known) for piece in pieces]
        left += [replace(piece, seeds=some) for piece, some in zip(pieces, seeds, strict=True) if some]
    return breadth_first(left)


def chosen(pieces: list[Piece], parts: list[str]) -> list[Piece]:
    """Pieces whose name contains one of these parts: first those with the first of them."""
    return list(dict.fromkeys(piece for part in parts for piece in pieces if part in piece.name))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--figures", nargs="+", choices=figures.NAMES, default=figures.NAMES)
    parser.add_argument("--quick", action="store_true", help="one seed, at most 3 rounds, small images")
    parser.add_argument("--seeds", type=int, help="at most so many seeds of each figure")
    parser.add_argument("--minutes", type=float, help="start nothing that would not end in time")
    parser.add_argument("--out", type=Path, help="where lines go (experiments/results, or build/reproduce)")
    parser.add_argument("--at-once", type=int, default=1, help="processes that share the accelerator")
    parser.add_argument("--together", action="store_true", help="with --at-once: seeds stay side by side")
    parser.add_argument(
        "--processes", type=int, help="cores for what belongs on cores; by default nearly all"
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="pieces whose name contains one of these, in this order"
    )
    parser.add_argument("--list", action="store_true", help="show what is left to run")
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.piece:
        if options.core is not None:
            pin(options.core)
        entries = json.loads(options.piece)
        piece = Piece(**entries | {"seeds": tuple(entries["seeds"])})
        sys.exit(not run_here(piece, options.out, Clock(options.minutes).deadline))
    if options.at_once > 1:  # none of them takes nearly all of its memory
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    accelerated = jax.default_backend() != "cpu"
    folder = options.out or (QUICK_OUT if options.quick else lines.RESULTS)
    folders = (folder,) if options.quick else (lines.RESULTS, folder)
    scale = Scale(options.quick, options.seeds)
    how = {"accelerated": accelerated, "at_once": options.at_once}
    left = left_to_run(options.figures, scale, folders, together=options.together, **how)
    wanted = chosen(left, options.only)
    if options.list:
        print("\n".join(f"{piece.name} ({piece.minutes:g} minutes)" for piece in wanted))
        return
    ended_well = run_all(wanted, folder, options.minutes, options.processes, **how)
    sys.exit(not ended_well)


if __name__ == "__main__":
    main()
