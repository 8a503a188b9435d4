"""The run file: one SQLite database per run, in which every simulation is safe once it is recorded.

A round's parameters are written in one transaction before the first of them is simulated, outcomes in blocks
as they arrive, and what a round has learned together with what the method remembers when it is closed. So a
run can stop at any moment, and what is in the file is enough to go on as if nothing had happened.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from aptinfer import scratch
from aptinfer.errors import RunFileError
from aptinfer.protocols import Draws, Outcome, Rows, Simulations, Status, Tally
from aptinfer.storage import schema, tables
from aptinfer.storage.blobs import packed, unpacked
from aptinfer.storage.records import Reader, Writer
from aptinfer.storage.specification import differences
from aptinfer.storage.writer import WriterLock
from aptinfer.store import changed_shape


class RunFileReader:
    """What a run file holds, read anew at every call, also while another process writes to it.

    Args:
        path: the file.
        shared: what both the file's writer and its reader have, by name (see `records.py`).
        yours: what the user has passed again, by name.
    """

    def __init__(
        self, path: Path, shared: Mapping[str, Any] | None = None, yours: Mapping[str, Any] | None = None
    ):
        self.path, self.shared, self.yours = path, dict(shared or {}), dict(yours or {})

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with schema.explained(self.path), closing(schema.connect(self.path, write=False)) as db:
            db.execute("BEGIN")  # one state of the file for all that is read
            with self._about_the_file():
                yield db

    @contextmanager
    def _about_the_file(self) -> Iterator[None]:
        """Adds the file's name to what is wrong with its content."""
        try:
            yield
        except RunFileError as error:
            if str(self.path) in str(error):
                raise
            raise RunFileError(f"{self.path}: {error}. The file was left as it is.") from None
        except (MemoryError, RecursionError) as error:
            raise RunFileError(f"{self.path} cannot be read ({type(error).__name__}).") from None

    def fact(self, name: str) -> Any:
        """The specification, or the plan."""
        with self._database() as db:
            return tables.read_fact(db, name)

    def sizes(self) -> tuple[int, ...]:
        """Simulations of every round that has been begun."""
        with self._database() as db:
            return tables.round_sizes(db)

    def closed(self) -> tuple[int, bool]:
        """How many rounds are closed, and whether the last of them said that nothing is left to learn."""
        with self._database() as db:
            (count,) = db.execute("SELECT count(*) FROM rounds").fetchone()
            row = db.execute("SELECT finished, crc FROM rounds ORDER BY number DESC LIMIT 1").fetchone()
            last = tables.from_text(*row) if row else {}
            return count, bool(isinstance(last, dict) and last.get("complete"))

    def finished(self) -> tuple[list[Any], Any]:
        """What every closed round left, and what the method remembers after the last."""
        with self._database() as db:
            read = Reader(lambda name: tables.read_array(db, name), self.shared, self.yours)
            rows = db.execute("SELECT number, finished, crc FROM rounds ORDER BY number").fetchall()
            begun = len(tables.round_sizes(db))
            if [number for number, *_ in rows] != list(range(len(rows))) or len(rows) > begun:
                raise RunFileError("a round is missing")
            found = [read(tables.from_text(*text)) for _, *text in rows]
            memory = db.execute("SELECT number, value, crc FROM memory").fetchone()
            if rows and (memory is None or memory[0] != len(rows) - 1):
                raise RunFileError("what the method remembers is missing")
            return found, read(tables.from_text(*memory[1:])) if rows else None

    def tally(self, number: int) -> Tally:
        """How a round's simulations have ended so far."""
        with self._database() as db:
            first, last = tables.rows_of_round(db, number)
            tally = Tally()
            for block in tables.read_blocks(db, first, last):
                inside = (block.row >= first) & (block.row < last)
                counts = np.bincount(block.status[inside], minlength=len(tables.STATUSES))
                tally.endings.update({s: int(n) for s, n in zip(tables.STATUSES, counts, strict=True) if n})
                tally.seconds += float(block.seconds[inside].sum())
                tally.first_failure = tally.first_failure or next(block.failures(first, last), None)
            tally.failed = tally.endings.total() - tally.endings[Status.DONE]
            return tally

    def simulations(self, first: int = 0) -> Simulations:
        """Every row from round `first` on; those without data have x = 0 and are not `done`.

        x that is too large for memory lies in a scratch file beside this one, which needs no looking after.
        """
        with self._database() as db:
            columns = tables.read_draws(db, first)
            start = tables.rows_of_round(db, first)[0]
            end = start + len(columns.theta)
            done, x = np.zeros(end - start, bool), None
            missing = tables.read_fact(db, "specification").get("missing")
            is_number = tables.is_number_or_missing if missing else np.isfinite
            for block in tables.read_blocks(db, start, end, with_x=True):
                if not is_number(block.x).all():
                    raise RunFileError("a block of outcomes holds data that are not finite")
                row = block.row[block.done] - start
                inside = (row >= 0) & (row < end - start)
                if not inside.any():
                    continue
                if x is None:
                    x = self._zeros((end - start, *block.x.shape[1:]), block.x.dtype)
                if x.shape[1:] != block.x.shape[1:]:
                    raise RunFileError("its data have several shapes")
                if (kind := np.result_type(x, block.x)) != x.dtype:
                    x, narrow = self._zeros(x.shape, kind), x
                    x[...] = narrow
                done[row[inside]], x[row[inside]] = True, block.x if inside.all() else block.x[inside]
            x = np.zeros(end - start) if x is None else x
            sizes = tables.round_sizes(db)
            number = np.repeat(np.arange(first, len(sizes)), sizes[first:])
            return Simulations(columns.value, columns.theta, columns.source, number, x, done)

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return scratch.zeros(shape, dtype, self.path.parent)

    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without data, in the order of their row."""
        with self._database() as db:
            blocks = tables.read_blocks(db, 0, sum(tables.round_sizes(db)))
            found = [failure for block in blocks for failure in block.failures()]
            return tuple(sorted(found, key=lambda outcome: outcome.index))


class RunFile(RunFileReader):
    """A run file being written: a `Store`. Close it, or use it as a context."""

    def __init__(
        self, path: Path, shared: Mapping[str, Any] | None = None, yours: Mapping[str, Any] | None = None
    ):
        super().__init__(path, shared, yours)
        self._lock = WriterLock(path)
        try:
            self._db = schema.connect(path, write=True)
        except BaseException:
            self._lock.release()
            raise
        self._identity = schema.identity(path)
        self._event: tuple[int, ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End writing; the file can still be read through this object."""
        if self._lock is not None:
            schema.settle(self._db)
            self._db.close()
            self._lock.release()
            self._lock = None

    def set_plan(self, plan: Mapping[str, Any]) -> None:
        with self._writing() as db:
            db.execute("UPDATE facts SET value = ?, crc = ? WHERE name = 'plan'", tables.as_text(plan))

    def plan(self, number: int, draw: Callable[[], Draws]) -> Rows:
        """The rows of a round that have no outcome yet; `draw` is asked only for a round not begun before."""
        if number == len(self.sizes()):
            self._write_draws(number, draw())
        with self._database() as db:
            first, last = tables.rows_of_round(db, number)
            theta = tables.read_draws(db, number, only=True).theta
            waiting = np.ones(last - first, bool)
            for block in tables.read_blocks(db, first, last):
                waiting[block.row[(block.row >= first) & (block.row < last)] - first] = False
            return Rows(first + np.flatnonzero(waiting), theta[waiting])

    def extend(self, draws: Draws) -> None:
        """More rows for the only round of a run, which is opened again."""
        with self._writing() as db:
            assert len(tables.round_sizes(db)) == 1
            db.execute("DELETE FROM rounds")
            db.execute("DELETE FROM memory")
            tables.insert_draws(db, 0, draws)

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Make outcomes durable: when this returns, they survive a loss of power."""
        for outcome in outcomes:
            if outcome.x is not None:
                self._check_shape(outcome)
        with self._writing() as db:
            tables.insert_outcomes(db, outcomes)

    def close_round(self, finished: Any, memory: Any) -> None:
        """Write what a round has learned, and what the method remembers, at once."""
        writer = Writer(self.shared, trained=True)
        learned, remembered = tables.as_text(writer(finished)), tables.as_text(writer(memory))
        with self._writing() as db:
            arrays = ((name, packed(array)) for name, array in writer.arrays.items())
            db.executemany("INSERT OR IGNORE INTO arrays VALUES (?, ?)", arrays)
            db.execute("INSERT INTO rounds VALUES (?, ?, ?)", (finished.number, *learned))
            db.execute("INSERT OR REPLACE INTO memory VALUES (0, ?, ?, ?)", (finished.number, *remembered))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._check_identity()
        with schema.explained(self.path), schema.transaction(self._db):
            yield self._db

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        if self._lock is not None:
            self._check_identity()
        with super()._database() as db:
            yield db

    def _check_identity(self) -> None:
        """See that the path still leads to the file that we write to: nothing else would tell."""
        if schema.identity(self.path) != self._identity:
            raise RunFileError(
                f"{self.path} was removed, renamed or replaced while this run was writing to it. What the "
                f"run had recorded is in the file that was there before: put it back, then continue with "
                f"apt.resume({str(self.path)!r}, simulator)."
            )

    def _write_draws(self, number: int, draws: Draws) -> None:
        with self._writing() as db:
            tables.insert_draws(db, number, draws)

    def _check_shape(self, outcome: Outcome) -> None:
        assert outcome.x is not None
        if self._event is None:
            with self._database() as db:
                row = db.execute("SELECT x FROM outcomes ORDER BY id LIMIT 1").fetchone()
                kept = unpacked(row[0]) if row else np.zeros(0)
                self._event = kept.shape[1:] if len(kept) else outcome.x.shape
        if outcome.x.shape != self._event:
            raise changed_shape(self._event, outcome)


def create_or_compare(path: Path, specification: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Make a new run file, or see that the one that is there is of the same run.

    Raises:
        RunFileError: the file is of another run, or of none. The difference is in the message.
    """
    facts = [
        (name, *tables.as_text(fact)) for name, fact in (("specification", specification), ("plan", plan))
    ]
    try:
        if not path.exists():
            schema.create(path, facts)
    except (OSError, sqlite3.Error) as error:
        raise RunFileError(
            f"the run file {path} cannot be made: {error}. Is there room, and may you write to that folder?"
        ) from error
    kept = RunFileReader(path)
    lines = differences(kept.fact("specification"), specification)
    lines += differences(_size_of(kept.fact("plan")), _size_of(plan))
    if lines:
        raise RunFileError(
            f"{path} holds another run:\n  " + "\n  ".join(lines) + "\nContinue it as it is, take another "
            f"file, or add to it with apt.resume({str(path)!r}, simulator, rounds=...)."
        )


def _size_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan.get(name) for name in ("rounds", "simulations")}
