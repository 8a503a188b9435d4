"""What the tables of a run file hold: written, and checked whenever it is read.

Whatever is wrong with the content is a `RunFileError` that says what; the caller knows the file's name.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aptinfer.errors import RunFileError
from aptinfer.protocols import Draws, Outcome, Status
from aptinfer.storage.blobs import packed, unpacked
from aptinfer.storage.records import digest

STATUSES = tuple(Status)  # their places are what is written: new ones are added at the end
PART = 1 << 16  # rows of a round's parameters per row of the table
BLOCK_BYTES = 1 << 26  # of x per block of outcomes
_CODE = {status: place for place, status in enumerate(STATUSES)}


class Block:
    """Outcomes that arrived together, as columns."""

    def __init__(self, row: Any, status: Any, seconds: Any, reasons: Any, x: Any = None):
        self.row, self.status, self.seconds = unpacked(row), unpacked(status), unpacked(seconds)
        self.reasons = from_text(reasons)
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


def is_number_or_missing(x: np.ndarray) -> np.ndarray:
    """NaN stands for a missing entry in a run that has such."""
    return ~np.isinf(x)


def insert_outcomes(db: sqlite3.Connection, outcomes: Sequence[Outcome]) -> None:
    """Write outcomes, in blocks of bounded size."""
    each = max((outcome.x.nbytes for outcome in outcomes if outcome.x is not None), default=1)
    size = max(BLOCK_BYTES // each, 1)
    for start in range(0, len(outcomes), size):
        db.execute(
            "INSERT INTO outcomes (first, last, row, status, seconds, reasons, x)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            _columns(outcomes[start : start + size]),
        )


def _columns(outcomes: Sequence[Outcome]) -> tuple:
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


def insert_draws(db: sqlite3.Connection, number: int, draws: Draws) -> None:
    """Write more parameters of a round, after all that there are."""
    first = sum(round_sizes(db))
    for start in range(0, len(draws.theta), PART):
        part = Draws(*(np.asarray(column[start : start + PART]) for column in draws))
        columns = packed(part.source), packed(part.value), packed(part.theta)
        db.execute(
            "INSERT INTO draws VALUES (?, ?, ?, ?, ?, ?)", (first + start, len(part.theta), number, *columns)
        )


def round_sizes(db: sqlite3.Connection) -> tuple[int, ...]:
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


def rows_of_round(db: sqlite3.Connection, number: int) -> tuple[int, int]:
    """The first row of a round, and the first after it."""
    sizes = round_sizes(db)
    return sum(sizes[:number]), sum(sizes[: number + 1])


def read_draws(db: sqlite3.Connection, first: int, *, only: bool = False) -> Draws:
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


def read_blocks(db: sqlite3.Connection, first: int, last: int, *, with_x: bool = False) -> Iterator[Block]:
    """Blocks with outcomes of rows first ... last - 1; every row has one outcome at most."""
    columns = "row, status, seconds, reasons" + (", x" if with_x else "")
    query = f"SELECT {columns} FROM outcomes WHERE last >= ? AND first < ? ORDER BY id"
    planned, seen = sum(round_sizes(db)), np.zeros(last - first, bool)
    for row in db.execute(query, (first, last)):
        block = Block(*row)
        if len(block.row) and (block.row.min() < 0 or block.row.max() >= planned):
            raise RunFileError("there are outcomes of rows that were never planned")
        inside = block.row[(block.row >= first) & (block.row < last)] - first
        if seen[inside].any() or len(np.unique(inside)) < len(inside):
            raise RunFileError("a row has two outcomes")
        seen[inside] = True
        yield block


def read_fact(db: sqlite3.Connection, name: str) -> Any:
    """The specification, or the plan."""
    row = db.execute("SELECT value, crc FROM facts WHERE name = ?", (name,)).fetchone()
    found = from_text(*row) if row else None
    if not isinstance(found, dict):
        raise RunFileError(f"its {name} is missing")
    return found


def as_text(value: Any) -> tuple[str, int]:
    """JSON, and the checksum of its text."""
    text = json.dumps(value)
    return text, zlib.crc32(text.encode())


def from_text(text: Any, checksum: int | None = None) -> Any:
    """What JSON holds, if the checksum agrees."""
    try:
        if checksum not in (None, zlib.crc32(text.encode())):
            raise RunFileError("a record is damaged: its checksum does not agree")
        return json.loads(text)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RunFileError(f"a record cannot be read ({error})") from None


def read_array(db: sqlite3.Connection, name: Any) -> np.ndarray:
    """The array that is kept under its own digest."""
    row = db.execute("SELECT data FROM arrays WHERE digest = ?", (str(name),)).fetchone()
    if row is None:
        raise RunFileError("an array is missing")
    array = unpacked(row[0])
    if digest(array) != name:
        raise RunFileError("an array is not the one that belongs there")
    return array
