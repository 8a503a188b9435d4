"""The command line: `aptinfer run model.py`, then `status`, `resume` and `sample`.

A model is a plain Python file that defines `simulator`, `prior` and `x_o`, and optionally `method`, `rounds`,
`simulations`, `budget`, `seed`, `missing`, `max_failed`, `stop`, `executor` and `overlap`. Mistakes are
answered in a sentence, not with a traceback; `--debug` shows it. Exit codes: 0 done, 1 the run failed, 2 a
mistake in the call or in the model, 130 interrupted.

JAX is loaded by the commands that need it, not for help or `status`.
"""

import argparse
import difflib
import json
import runpy
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptinfer.errors import AptinferError, RunFileError

if TYPE_CHECKING:
    from aptinfer.posteriors import Posterior
    from aptinfer.run import Run

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130
NEEDED = ("simulator", "prior", "x_o")
SIZES = ("rounds", "simulations", "budget")
OPTIONAL = ("method", *SIZES, "seed", "missing", "max_failed", "stop", "executor", "overlap")


class Mistake(Exception):  # noqa: N818
    """Something in the call or in the model is not as it should be."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["demo"]:  # has options and help of its own
        from aptinfer.demo import main as demo

        demo(given[1:])
        return
    options = _parser().parse_args(_joined(given))
    warnings.showwarning = _show_warning
    try:
        sys.exit(options.command(options) or 0)
    except KeyboardInterrupt as error:
        _complain("interrupted.", *getattr(error, "__notes__", ()))
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILED)
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        elif isinstance(error, AptinferError | Mistake | ValueError | TypeError):
            _complain(str(error), *getattr(error, "__notes__", ()))
        else:
            _complain(f"{type(error).__name__}: {error}", "--debug shows where.")
        sys.exit(MISTAKE if isinstance(error, Mistake | ValueError | TypeError | RunFileError) else FAILED)


def run(options: argparse.Namespace) -> int:
    """Infer, and keep the run in a file."""
    import aptinfer as apt

    model = _model(options.model)
    settings, flags = {name: model[name] for name in OPTIONAL if name in model}, _flags(options)
    if "budget" in flags or ("budget" in settings and set(SIZES) & set(flags)):
        settings = {name: value for name, value in settings.items() if name not in SIZES}  # one or the other
    settings |= flags
    path = options.file or Path(f"{Path(options.model).stem}.apt")
    print(f"Run file: {path}{_contents(path)}", flush=True)
    result = apt.infer(*(model[name] for name in NEEDED), file=path, listen=_tell, **settings)
    return _report(result, path)


def _contents(path: Path) -> str:
    """What a run goes on with: whoever has repaired a simulator wants to know of failures that are kept."""
    from aptinfer.storage.runfile import RunFileReader

    if not path.is_file():
        return ""
    try:
        reader = RunFileReader(path.absolute())
        tallies = [reader.tally(number) for number in range(len(reader.sizes()))]
    except RunFileError:  # which `infer` tells better
        return ""
    there, failed = sum(t.endings.total() for t in tallies), sum(t.failed for t in tallies)
    return f", which goes on with the {there:,} simulations that it holds ({failed:,} of them failed)"


def resume(options: argparse.Namespace) -> int:
    """Carry on with a run."""
    import aptinfer as apt

    model = _model(options.model)
    settings = {name: model[name] for name in ("stop", "executor", "overlap", "max_failed") if name in model}
    settings |= _flags(options)
    for name in ("prior", "method"):  # passed only where they cannot be read from the file
        if name in model and _needed(options.file, name):
            settings[name] = model[name]
    return _report(apt.resume(options.file, model["simulator"], listen=_tell, **settings), options.file)


def status(options: argparse.Namespace) -> int:
    """How far a run is."""
    from aptinfer.storage.runfile import RunFileReader
    from aptinfer.storage.writer import holder_of

    reader = RunFileReader(options.file.absolute())
    plan, sizes, (closed, complete) = reader.fact("plan"), reader.sizes(), reader.closed()
    tally = reader.tally(len(sizes) - 1) if sizes else None
    writer = holder_of(reader.path)
    found = {
        "rounds": plan.get("rounds"),
        "closed": closed,
        "finished": bool(complete or closed == plan.get("rounds")),
        "round": len(sizes),
        "simulated": tally.endings.total() if tally else 0,
        "of": sizes[-1] if sizes else plan.get("simulations"),
        "failed": tally.failed if tally else 0,
        "writer": writer and f"process {writer.get('pid')} on {writer.get('host')}",
    }
    if options.json:
        print(json.dumps(found))
        return 0
    idle = "finished" if found["finished"] else "not running"
    doing = f"being written by {found['writer']}" if writer else idle
    print(f"{options.file}: {doing}")
    print(f"  rounds      {closed} of {found['rounds']} closed")
    if not found["finished"]:
        failed = f", {found['failed']} failed" if found["failed"] else ""
        stage = (
            "training"
            if sizes and found["simulated"] == found["of"] and closed < len(sizes)
            else "simulating"
        )
        print(f"  round {found['round']:<5} {found['simulated']} of {found['of']} simulated{failed}; {stage}")
    return 0


def sample(options: argparse.Namespace) -> int:
    """Draws from a posterior."""
    posterior = _posterior(options)
    if options.x_o is not None:
        posterior = posterior.given(options.x_o)
    draws = posterior.sample(options.n, seed=options.seed)
    if options.out is not None and options.out.suffix == ".npy":
        import numpy as np

        np.save(options.out, draws)
        return 0
    lines = [",".join(posterior.names), *(",".join(map(repr, row)) for row in draws.tolist())]
    text = "\n".join(lines) + "\n"
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
    return 0


def problems(options: argparse.Namespace) -> int:
    """The problems that come with the library."""
    from aptinfer.problems.__main__ import table

    print(table())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aptinfer", description="Bayesian inference for simulators.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, function: Any, about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(command=function)
        added.add_argument("--debug", action="store_true", help="show tracebacks")
        return added

    command("demo", None, "two moons from start to finish, with a picture (aptinfer demo --help)")
    command("problems", problems, "list the problems that come with the library")
    begin = command("run", run, "infer the parameters of a model, in a run file that survives anything")
    begin.add_argument(
        "model", help="a Python file that defines simulator, prior and x_o; or a problem's name"
    )
    begin.add_argument("--file", type=Path, help="the run file (default: the model's name, with .apt)")
    begin.add_argument("--seed", type=int, help="equal seeds give equal results")
    begin.add_argument("--budget", type=int, help="simulations in all, in place of rounds and their sizes")
    again = command("resume", resume, "carry on with a run, or add to it")
    again.add_argument("file", type=Path, help="a run file")
    again.add_argument("model", help="the Python file, or the problem, that it was begun with")
    for parts in (begin, again):
        parts.add_argument("--rounds", type=int)
        parts.add_argument("--simulations", type=int, help="per round")
        parts.add_argument("--max-failed", type=float, help="share of a round's simulations that may fail")
        parts.add_argument("--processes", type=int, metavar="N", help="simulate in N worker processes")
    shown = command("status", status, "how far a run is, also while it runs")
    shown.add_argument("file", type=Path, help="a run file")
    shown.add_argument("--json", action="store_true", help="for programs")
    drawn = command("sample", sample, "draw from the posterior of a run, or from a saved one")
    drawn.add_argument("file", type=Path, help="a run file, or what posterior.save() wrote")
    drawn.add_argument("-n", type=int, default=1000, help="how many draws (default: %(default)s)")
    drawn.add_argument("--seed", type=int, default=0)
    drawn.add_argument("--out", type=Path, help="a file ending in .npy, or in anything else for CSV")
    drawn.add_argument("--x-o", type=_numbers, help="another observation: numbers with commas between them")
    drawn.add_argument("--model", help="the Python file, if the prior or the method hold functions of yours")
    return parser


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, got {text!r}") from None


def _joined(given: Sequence[str]) -> list[str]:
    """The arguments, with an observation that begins with a minus made part of its option."""
    words = iter(given)
    return [f"{word}={next(words, '')}" if word == "--x-o" else word for word in words]


def _model(name: str) -> dict[str, Any]:
    """What a Python file defines, or a problem of the library."""
    path = Path(name)
    if path.suffix != ".py":
        from aptinfer import problems

        if path.exists():
            raise Mistake(
                f"{name} is not a Python file. A model is a .py file that defines {', '.join(NEEDED)}."
            )
        problem = problems.get(name)
        return {"simulator": problem.simulator, "prior": problem.prior, "x_o": problem.observation}
    if not path.is_file():
        raise Mistake(f"there is no file {name}. A model is a .py file that defines {', '.join(NEEDED)}.")
    sys.path.insert(0, str(path.absolute().parent))  # as Python does for a script
    try:
        found = runpy.run_path(name)
    except (Exception, SystemExit) as error:
        raise Mistake(
            f"{name} cannot be run: {_where(error, path)}{type(error).__name__}: {error}"
        ) from error
    missing = [needed for needed in NEEDED if needed not in found]
    if missing:
        raise Mistake(f"{name} does not define {' and '.join(missing)}. A model defines {', '.join(NEEDED)}.")
    for defined, setting in _nearly_settings(found).items():
        _complain(f"warning: {name} defines {defined!r}, which is no setting: is {setting!r} meant?")
    return found


def _nearly_settings(found: dict[str, Any]) -> dict[str, str]:
    """Values whose names look like those of settings that are not there, with these."""
    absent = [name for name in OPTIONAL if name not in found]
    close = {
        name: difflib.get_close_matches(name, absent, n=1, cutoff=0.8)
        for name, value in found.items()
        if name not in OPTIONAL and isinstance(value, bool | int | float)
    }
    return {name: names[0] for name, names in close.items() if names}


def _where(error: BaseException, path: Path) -> str:
    """The line of the user's file in which something went wrong."""
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name
    ]
    return f"line {lines[-1]}: " if lines else ""


def _flags(options: argparse.Namespace) -> dict[str, Any]:
    """Settings that were given on the command line."""
    names = (*SIZES, "seed", "max_failed")
    given = {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}
    if options.processes is not None:
        from aptinfer.executors import Processes

        given["executor"] = Processes(options.processes)
    return given


def _needed(file: Path, name: str) -> bool:
    """Whether a run's prior or method holds something of the user, which its file does not."""
    from aptinfer.storage.runfile import RunFileReader

    return '"yours"' in json.dumps(RunFileReader(file.absolute()).fact("specification").get(name))


def _posterior(options: argparse.Namespace) -> "Posterior":
    import aptinfer as apt

    model = _model(options.model) if options.model else {}
    with options.file.open("rb") if options.file.is_file() else _absent(options.file) as file:
        is_run = file.read(6) == b"SQLite"
    if not is_run:
        return apt.load_posterior(options.file, prior=model.get("prior"))
    wanted = {n: model[n] for n in ("prior", "method") if n in model and _needed(options.file, n)}
    return apt.open(options.file, **wanted).posterior


def _absent(path: Path) -> Any:
    raise Mistake(f"there is no file {path}.")


def _report(result: "Run", path: Path) -> int:
    """The result in words, and what to do next."""
    if result.rounds:
        print(f"\n{result.summary()}")
    if result.interrupted:
        print(f"\nInterrupted. Carry on with: aptinfer resume {path} MODEL")
        return INTERRUPTED
    print(f"\nDraws: aptinfer sample {path} -n 1000 --out draws.csv")
    return 0


def _tell(event: Any) -> None:
    """One line per finished round, for logs; a terminal has a live display besides."""
    if type(event).__name__ == "RoundFinished":
        failed = f", {event.failed} failed" if event.failed else ""
        epochs = f", {event.history.epochs} epochs" if event.history else ""
        print(f"round {event.number + 1}: simulated{failed}{epochs}", flush=True)


def _show_warning(
    message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None
) -> None:
    _complain(f"warning: {message}")


def _complain(*sentences: str) -> None:
    print("aptinfer:", " ".join(sentences), file=sys.stderr)
