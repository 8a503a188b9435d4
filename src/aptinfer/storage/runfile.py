"""The run file: one SQLite database per run, in which every simulation is safe once it is recorded.

A round's parameters are written in one transaction before the first of them is simulated, outcomes in blocks
as they arrive, and what a round has learned together with what the method remembers when it is closed. So a
run can stop at any moment, and what is in the file is enough to go on as if nothing had happened.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from aptinfer import scratch
from aptinfer.errors import RunFileError
from aptinfer.protocols import Draws, Outcome, Rows, Simulations, Status, Tally
from aptinfer.storage import schema
from aptinfer.storage.blobs import packed, unpacked
from aptinfer.storage.records import Reader, Writer, digest
from aptinfer.storage.specification import differences
from aptinfer.storage.writer import WriterLock
from aptinfer.store import changed_shape

STATUSES = tuple(Status)  # their places are what is written: new ones are added at the end
PART = 1 << 16  # rows of a round's parameters per row of the table
BLOCK_BYTES = 1 << 26  # of x per block of outcomes
_CODE = {status: place for place, status in enumerate(STATUSES)}


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
            return _fact(db, name)

    def sizes(self) -> tuple[int, ...]:
        """Simulations of every round that has been begun."""
        with self._database() as db:
            return _sizes(db)

    def closed(self) -> tuple[int, bool]:
        """How many rounds are closed, and whether the last of them said that nothing is left to learn."""
        with self._database() as db:
            (count,) = db.execute("SELECT count(*) FROM rounds").fetchone()
            row = db.execute("SELECT finished, crc FROM rounds ORDER BY number DESC LIMIT 1").fetchone()
            last = _loads(*row) if row else {}
            return count, bool(isinstance(last, dict) and last.get("complete"))

    def finished(self) -> tuple[list[Any], Any]:
        """What every closed round left, and what the method remembers after the last."""
        with self._database() as db:
            read = Reader(lambda name: _stored_array(db, name), self.shared, self.yours)
            rows = db.execute("SELECT number, finished, crc FROM rounds ORDER BY number").fetchall()
            if [number for number, *_ in rows] != list(range(len(rows))) or len(rows) > len(_sizes(db)):
                raise RunFileError("a round is missing")
            found = [read(_loads(*text)) for _, *text in rows]
            memory = db.execute("SELECT number, value, crc FROM memory").fetchone()
            if rows and (memory is None or memory[0] != len(rows) - 1):
                raise RunFileError("what the method remembers is missing")
            return found, read(_loads(*memory[1:])) if rows else None

    def tally(self, number: int) -> Tally:
        """How a round's simulations have ended so far."""
        with self._database() as db:
            first, last = _range(db, number)
            tally = Tally()
            for block in _blocks(db, first, last):
                inside = (block.row >= first) & (block.row < last)
                counts = np.bincount(block.status[inside], minlength=len(STATUSES))
                tally.endings.update({s: int(n) for s, n in zip(STATUSES, counts, strict=True) if n})
                tally.seconds += float(block.seconds[inside].sum())
                tally.first_failure = tally.first_failure or next(block.failures(first, last), None)
            tally.failed = tally.endings.total() - tally.endings[Status.DONE]
            return tally

    def simulations(self, first: int = 0) -> Simulations:
        """Every row from round `first` on; those without data have x = 0 and are not `done`.

        x that is too large for memory lies in a scratch file beside this one, which needs no looking after.
        """
        with self._database() as db:
            columns = _draws(db, first)
            start = _range(db, first)[0]
            end = start + len(columns.theta)
            done, x = np.zeros(end - start, bool), None
            is_number = _is_number_or_missing if _fact(db, "specification").get("missing") else np.isfinite
            for block in _blocks(db, start, end, with_x=True):
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
            sizes = _sizes(db)
            number = np.repeat(np.arange(first, len(sizes)), sizes[first:])
            return Simulations(columns.value, columns.theta, columns.source, number, x, done)

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return scratch.zeros(shape, dtype, self.path.parent)

    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes without data, in the order of their row."""
        with self._database() as db:
            found = [failure for block in _blocks(db, 0, sum(_sizes(db))) for failure in block.failures()]
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
            db.execute("UPDATE facts SET value = ?, crc = ? WHERE name = 'plan'", _dumps(plan))

    def plan(self, number: int, draw: Callable[[], Draws]) -> Rows:
        """The rows of a round that have no outcome yet; `draw` is asked only for a round not begun before."""
        if number == len(self.sizes()):
            self._write_draws(number, draw())
        with self._database() as db:
            first, last = _range(db, number)
            theta = _draws(db, number, only=True).theta
            waiting = np.ones(last - first, bool)
            for block in _blocks(db, first, last):
                waiting[block.row[(block.row >= first) & (block.row < last)] - first] = False
            return Rows(first + np.flatnonzero(waiting), theta[waiting])

    def extend(self, draws: Draws) -> None:
        """More rows for the only round of a run, which is opened again."""
        with self._writing() as db:
            assert len(_sizes(db)) == 1
            db.execute("DELETE FROM rounds")
            db.execute("DELETE FROM memory")
            _insert_draws(db, 0, draws)

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Make outcomes durable: when this returns, they survive a loss of power."""
        for outcome in outcomes:
            if outcome.x is not None:
                self._check_shape(outcome)
        each = max((outcome.x.nbytes for outcome in outcomes if outcome.x is not None), default=1)
        size = max(BLOCK_BYTES // each, 1)
        with self._writing() as db:
            for start in range(0, len(outcomes), size):
                db.execute(
                    "INSERT INTO outcomes (first, last, row, status, seconds, reasons, x)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    _block(outcomes[start : start + size]),
                )

    def close_round(self, finished: Any, memory: Any) -> None:
        """Write what a round has learned, and what the method remembers, at once."""
        writer = Writer(self.shared, trained=True)
        learned, remembered = _dumps(writer(finished)), _dumps(writer(memory))
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
            _insert_draws(db, number, draws)

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
    facts = [(name, *_dumps(fact)) for name, fact in (("specification", specification), ("plan", plan))]
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


class _Block:
    """Outcomes that arrived together, as columns."""

    def __init__(self, row: Any, status: Any, seconds: Any, reasons: Any, x: Any = None):
        self.row, self.status, self.seconds = unpacked(row), unpacked(status), unpacked(seconds)
        self.reasons = _loads(reasons)
        n = len(self.row) if self.row.ndim == 1 else -1
        if self.row.dtype != np.int64 or self.status.dtype != np.uint8 or self.seconds.dtype != np.float64:
            raise RunFileError("a block of outcomes has columns of wrong types")
        if self.status.shape != (n,) or self.seconds.shape != (n,) or (self.status >= len(STATUSES)).any():
            raise RunFileError("a block of outcomes has columns of different lengths, or an unknown status")
        if not isinstance(self.reasons, dict):
            raise RunFileError("a block of outcomes has no reasons")
        self.done = self.status == _CODE[Status.DONE]
        if x is not None:
            self.x = unpacked(x)
            if (
                len(self.x.shape) < 1
                or len(self.x) != self.done.sum()
                or self.x.dtype not in (np.float32, np.float64)
            ):
                raise RunFileError("a block of outcomes does not hold the data of its rows")

    def failures(self, first: int = 0, last: float = np.inf) -> Iterator[Outcome]:
        """The failed rows among first ... last - 1."""
        reasons = {
            row: reason
            for reason, rows in self.reasons.items()
            for row in (rows if isinstance(rows, list) else ())
        }
        for place in np.flatnonzero(~self.done & (self.row >= first) & (self.row < last)):
            row = int(self.row[place])
            status, seconds = STATUSES[self.status[place]], float(self.seconds[place])
            yield Outcome(row, None, status, str(reasons.get(row, "")), seconds)


def _is_number_or_missing(x: np.ndarray) -> np.ndarray:
    """NaN stands for a missing entry in a run that has such."""
    return ~np.isinf(x)


def _block(outcomes: Sequence[Outcome]) -> tuple:
    """Outcomes as a row of the table."""
    row = np.fromiter((o.index for o in outcomes), np.int64, len(outcomes))
    status = np.fromiter((_CODE[o.status] for o in outcomes), np.uint8, len(outcomes))
    seconds = np.fromiter((o.seconds for o in outcomes), np.float64, len(outcomes))
    reasons: dict[str, list[int]] = {}
    for outcome in outcomes:
        if outcome.reason:
            reasons.setdefault(outcome.reason, []).append(outcome.index)
    data = [o.x for o in outcomes if o.status is Status.DONE]
    x = np.array(data) if data else np.zeros(0)
    columns = packed(row), packed(status), packed(seconds), json.dumps(reasons), packed(x)
    return int(row.min()), int(row.max()), *columns


def _insert_draws(db: sqlite3.Connection, number: int, draws: Draws) -> None:
    first = sum(_sizes(db))
    for start in range(0, len(draws.theta), PART):
        part = Draws(*(np.asarray(column[start : start + PART]) for column in draws))
        columns = packed(part.source), packed(part.value), packed(part.theta)
        db.execute(
            "INSERT INTO draws VALUES (?, ?, ?, ?, ?, ?)", (first + start, len(part.theta), number, *columns)
        )


def _sizes(db: sqlite3.Connection) -> tuple[int, ...]:
    """Rows of every round that has been begun; rounds and rows follow one another without gaps."""
    sizes: list[int] = []
    for first, count, number in db.execute("SELECT first, count, round FROM draws ORDER BY first"):
        if not all(isinstance(n, int) and n >= 0 for n in (first, count, number)) or first != sum(sizes):
            raise RunFileError("parameters are missing")
        if number == len(sizes):
            sizes.append(0)
        elif number != len(sizes) - 1:
            raise RunFileError("rounds are out of order")
        sizes[number] += count
    return tuple(sizes)


def _range(db: sqlite3.Connection, number: int) -> tuple[int, int]:
    """The first row of a round, and the first after it."""
    sizes = _sizes(db)
    return sum(sizes[:number]), sum(sizes[: number + 1])


def _draws(db: sqlite3.Connection, first: int, *, only: bool = False) -> Draws:
    """The parameters from round `first` on, or of that round only."""
    query = "SELECT count, value, theta, source FROM draws WHERE round >= ? AND round <= ? ORDER BY first"
    parts = []
    for count, *blobs in db.execute(query, (first, first if only else 1 << 62)):
        part = Draws(*map(unpacked, blobs))
        dims = {column.shape[1:] for column in (part.value, part.theta)}
        wrong = any(column.dtype.kind != kind for column, kind in zip(part, "ffi", strict=True))
        if wrong or len(dims) != 1 or part.theta.ndim != 2 or part.source.ndim != 1:
            raise RunFileError("a round's parameters have wrong types or shapes")
        if {len(column) for column in part} != {count}:
            raise RunFileError("a round's parameters are incomplete")
        if not (np.isfinite(part.value).all() and np.isfinite(part.theta).all()):
            raise RunFileError("a round's parameters are not finite")
        parts.append(part)
    if not parts:
        return Draws(np.zeros((0, 0), np.float32), np.zeros((0, 0)), np.zeros(0, np.int32))
    if len({part.theta.shape[1] for part in parts}) > 1:
        raise RunFileError("rounds have different numbers of parameters")
    return Draws(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _blocks(db: sqlite3.Connection, first: int, last: int, *, with_x: bool = False) -> Iterator[_Block]:
    """Blocks with outcomes of rows first ... last - 1; every row has one outcome at most."""
    columns = "row, status, seconds, reasons" + (", x" if with_x else "")
    query = f"SELECT {columns} FROM outcomes WHERE last >= ? AND first < ? ORDER BY id"
    planned, seen = sum(_sizes(db)), np.zeros(last - first, bool)
    for row in db.execute(query, (first, last)):
        block = _Block(*row)
        if len(block.row) and (block.row.min() < 0 or block.row.max() >= planned):
            raise RunFileError("there are outcomes of rows that were never planned")
        inside = block.row[(block.row >= first) & (block.row < last)] - first
        if seen[inside].any() or len(np.unique(inside)) < len(inside):
            raise RunFileError("a row has two outcomes")
        seen[inside] = True
        yield block


def _fact(db: sqlite3.Connection, name: str) -> Any:
    row = db.execute("SELECT value, crc FROM facts WHERE name = ?", (name,)).fetchone()
    found = _loads(*row) if row else None
    if not isinstance(found, dict):
        raise RunFileError(f"its {name} is missing")
    return found


def _size_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan.get(name) for name in ("rounds", "simulations")}


def _dumps(value: Any) -> tuple[str, int]:
    """JSON, and the checksum of its text."""
    text = json.dumps(value)
    return text, zlib.crc32(text.encode())


def _loads(text: Any, checksum: int | None = None) -> Any:
    try:
        if checksum not in (None, zlib.crc32(text.encode())):
            raise RunFileError("a record is damaged: its checksum does not agree")
        return json.loads(text)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RunFileError(f"a record cannot be read ({error})") from None


def _stored_array(db: sqlite3.Connection, name: Any) -> np.ndarray:
    row = db.execute("SELECT data FROM arrays WHERE digest = ?", (str(name),)).fetchone()
    if row is None:
        raise RunFileError("an array is missing")
    array = unpacked(row[0])
    if digest(array) != name:
        raise RunFileError("an array is not the one that belongs there")
    return array
