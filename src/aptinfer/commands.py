"""Simulators that are programs: any language, one process per simulation.

    theta ─► {"parameters": {...}, "seed": ...} on standard input ─► program ─► numbers on standard output
             or in its arguments, or in a file                                  or in a file

Every simulation has a folder of its own as its working directory. No shell reads the command, so parameters
are never interpreted.

This module is imported by worker processes: it must not import JAX.
"""

import contextlib
import copy
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from aptinfer.blas import ONE_THREAD
from aptinfer.checks import nearest, positive_float, suggests_keywords
from aptinfer.protocols import Outcome, Rows, Status
from aptinfer.simulators import BaseSimulator, RowGenerators, judged

FORMATS = ("json", "csv", "npy")
LAST_WORDS = 2000  # characters of standard error that are kept with a failure

_PLACE = re.compile(r"\{\{|\}\}|\{(\w+)\}")


@suggests_keywords
class CommandSimulator(BaseSimulator):
    """A program as simulator: one process for each simulation, in a folder of its own.

    The program gets, on standard input and as a file, a JSON object such as

        {"parameters": {"growth": 0.5, "death": 2.0}, "theta": [0.5, 2.0], "seed": 1804289383, "row": 17}

    and its arguments may hold `{growth}` for any parameter by its name in the prior, `{seed}`, `{row}`,
    `{input}` (the path of that JSON file) and `{output}` (the path of the file it is to write); `{{` stands
    for a brace. `seed` is a whole number from 0 to 2**31 - 1 that belongs to the row: a program that draws
    its random numbers from it gives equal results in equal runs. It is in the environment, too, as
    APTINFER_SEED.

    The simulation fails if the program ends with another code than 0 (`Status.RAISED`), is killed by a signal
    (`Status.CRASHED`), takes too long (`Status.TIMEOUT`), or writes no numbers, or NaN (`Status.INVALID`).
    The reason holds what it wrote to standard error.

    Args:
        command: the program and its arguments. Those that name existing files are made absolute, since the
            program runs in another folder.
        output: what it writes: "json" (a number or nested lists), "csv" (a header is skipped) or "npy" on
            standard output; or a file name with such an ending, like "result.csv", written in its folder.
        input: name of the JSON file in its folder.
        timeout: seconds after which it is killed, together with all that it has started.
        keep_failed: keep the folders of failed simulations; their reasons say where.
        scratch: where folders are made; the system's temporary folder by default.
    """

    chunk = 1

    def __init__(
        self,
        command: Sequence[str | os.PathLike],
        *,
        output: str = "json",
        input: str = "input.json",
        timeout: float | None = None,
        keep_failed: bool = False,
        scratch: str | os.PathLike | None = None,
    ):
        self.command = _checked_command(command)
        self.output, self.format = _checked_output(output)
        self.input = _file_name("input", input)
        self.timeout = None if timeout is None else positive_float("CommandSimulator timeout", timeout)
        self.keep_failed = bool(keep_failed)
        self.scratch = None if scratch is None else os.path.abspath(scratch)
        if self.scratch is not None and not os.path.isdir(self.scratch):
            raise ValueError(f"CommandSimulator scratch must be an existing folder, got {str(scratch)!r}.")
        self.names: tuple[str, ...] | None = None

    def named(self, names: tuple[str, ...]) -> "CommandSimulator":
        places = {m[1] for argument in self.command for m in _PLACE.finditer(argument) if m[1]}
        known = [*names, "seed", "row", "input", "output"]
        for place in sorted(places):
            if place not in known:
                raise ValueError(
                    f"CommandSimulator command has {{{place}}}, which is no parameter of the prior. "
                    f"{nearest(place, known)} Write {{{{{place}}}}} for the text itself."
                )
        named = copy.copy(self)
        named.names = tuple(names)
        return named

    def one_by_one(self, seed: int, rows: Rows) -> Iterator[list[Outcome]]:
        generators = RowGenerators(seed)
        for index, theta in zip(rows.index.tolist(), rows.theta, strict=True):
            yield [self._one(int(generators(index).integers(2**31)), index, theta)]

    def _one(self, seed: int, index: int, theta: np.ndarray) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix=f"aptinfer-row-{index}-", dir=self.scratch))
        kept = False
        try:
            outcome = self._run(folder, seed, index, theta)
            kept = self.keep_failed and outcome.status is not Status.DONE
            return outcome._replace(reason=f"{outcome.reason}\nIts folder: {folder}") if kept else outcome
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _run(self, folder: Path, seed: int, index: int, theta: np.ndarray) -> Outcome:
        values = theta.tolist()
        names = self.names or tuple(f"theta_{i + 1}" for i in range(len(values)))
        parameters = dict(zip(names, values, strict=True))
        content = {"parameters": parameters, "theta": values, "seed": seed, "row": index}
        (folder / self.input).write_text(json.dumps(content), encoding="utf-8")
        written = folder / (self.output or "standard-output")
        places = {"seed": seed, "row": index, "input": folder / self.input, "output": written} | parameters
        command = [_filled(argument, places) for argument in self.command]
        started = time.perf_counter()
        code = self._finished(command, folder, written, seed)
        seconds = time.perf_counter() - started
        words = (folder / "standard-error").read_text(errors="replace").strip()[-LAST_WORDS:]
        if code != 0:
            status, how = _ending(code, self.timeout)
            return Outcome(index, None, status, f"{how}\n{words}".strip(), seconds)
        try:
            x = _numbers(written, self.format)
        except (OSError, ValueError, EOFError) as error:
            how = f"no {self.format} numbers in its {self.output or 'standard output'}: {error}"
            return Outcome(index, None, Status.INVALID, f"{how}\n{words}".strip(), seconds)
        return judged(index, x, seconds, missing=self.missing)

    def _finished(self, command: list[str], folder: Path, written: Path, seed: int) -> int | None:
        """Run the program to its end and return its code; None if it took too long."""
        printed = folder / "standard-output" if self.output else written
        with (
            (folder / self.input).open("rb") as incoming,
            # Files rather than pipes: what the program leaves running cannot keep us waiting for their end.
            printed.open("wb") as outgoing,
            (folder / "standard-error").open("wb") as errors,
        ):
            process = subprocess.Popen(
                command,
                stdin=incoming,
                stdout=outgoing,
                stderr=errors,
                cwd=folder,
                env=os.environ | ONE_THREAD | {"APTINFER_SEED": str(seed)},
                start_new_session=True,
            )
        try:
            return process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:  # too late, interrupted, or its worker is told to end
                _kill_group(process)


def _kill_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _ending(code: int | None, timeout: float | None) -> tuple[Status, str]:
    """The status of a program that did not end with code 0, in words too."""
    if code is None:
        return Status.TIMEOUT, f"still running after timeout={timeout:g} s"
    if code < 0:
        known = {member.value: member.name for member in signal.Signals}
        return Status.CRASHED, f"killed by {known.get(-code, f'signal {-code}')}"
    return Status.RAISED, f"exit code {code}"


def _filled(argument: str, places: dict) -> str:
    """An argument with values in its places; numbers with all their digits."""
    return _PLACE.sub(lambda m: str(places[m[1]]) if m[1] else m[0][0], argument)


def _numbers(path: Path, kind: str) -> np.ndarray | None:
    """What a program wrote; ValueError if it is not numbers."""
    content = path.read_bytes()
    if not content.strip():
        raise ValueError("it is empty")
    if kind == "npy":
        return np.load(io.BytesIO(content), allow_pickle=False)
    text = content.decode(errors="replace")
    shown = text.strip()[:80]
    if kind == "csv":
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            return _csv(lines)
        except ValueError:
            if len(lines) > 1:
                return _csv(lines[1:])
            raise ValueError(f"it begins {shown!r}") from None
    try:
        value = json.loads(text)
        return None if value is None else np.array(value, np.float64)  # null within a list becomes NaN
    except (TypeError, ValueError):
        raise ValueError(f"it begins {shown!r}") from None


def _csv(lines: list[str]) -> np.ndarray:
    """One line is a vector, several are a table."""
    table = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    return table[0] if len(table) == 1 else table


def _checked_command(command: Sequence[str | os.PathLike]) -> tuple[str, ...]:
    if isinstance(command, str | bytes) or not isinstance(command, Sequence) or not command:
        raise TypeError(
            f"CommandSimulator command must be a list of the program and its arguments, such as "
            f'["./model", "--rate", "{{growth}}"]; got {command!r}. No shell reads it.'
        )
    program, *arguments = (os.fspath(part) if isinstance(part, os.PathLike) else part for part in command)
    if not all(isinstance(part, str) for part in (program, *arguments)):
        raise TypeError(f"CommandSimulator command must hold texts or paths; got {command!r}.")
    found = shutil.which(program)
    if found is None:
        raise ValueError(
            f"CommandSimulator command: {program!r} is no program that can be run. Give its path, and make "
            f"it executable (chmod +x); scripts can be run as [sys.executable, 'model.py']."
        )
    return (os.path.abspath(found), *map(_absolute, arguments))


def _absolute(argument: str) -> str:
    """A file of the present folder by its whole path, any other argument as it is."""
    return os.path.abspath(argument) if os.path.isfile(argument) else argument


def _checked_output(output: str) -> tuple[str | None, str]:
    """The file that is written, or None for standard output; and its format."""
    if output in FORMATS:
        return None, output
    name = _file_name("output", output)
    ending = name.rpartition(".")[2]
    if ending not in FORMATS:
        raise ValueError(
            f"CommandSimulator output must be 'json', 'csv' or 'npy' for standard output, or the name of a "
            f"file with such an ending, such as 'result.csv'; got {output!r}."
        )
    return name, ending


def _file_name(argument: str, name: object) -> str:
    if not isinstance(name, str) or not name or Path(name).name != name:
        raise ValueError(
            f"CommandSimulator {argument} must be the name of a file, without a folder: each simulation has "
            f"a folder of its own. Got {name!r}."
        )
    return name
