"""The tables of a run file, and how one is opened.

`application_id` says that it is a run file and `user_version` of which format. A file whose tables are not
exactly those of its format is refused: triggers or views of a stranger would run with our statements.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from aptinfer.errors import RunFileError

APPLICATION = 0x61707466  # "aptf"
FORMAT = 1
TABLES = (
    # specification, plan: JSON, with the CRC-32 of its text
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    # a part of a round's parameters, rows first, first + 1, ...; written before any of them is simulated
    "CREATE TABLE draws (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, round INTEGER NOT NULL,"
    " source BLOB NOT NULL, value BLOB NOT NULL, theta BLOB NOT NULL)",
    # outcomes that arrived together; x, of those that succeeded, stands last: the rest is read without it
    "CREATE TABLE outcomes (id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,"
    " row BLOB NOT NULL, status BLOB NOT NULL, seconds BLOB NOT NULL, reasons TEXT NOT NULL,"
    " x BLOB NOT NULL)",
    # what a closed round left, and what the method remembers after the last one: JSON
    "CREATE TABLE rounds (number INTEGER PRIMARY KEY, finished TEXT NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE memory (id INTEGER PRIMARY KEY CHECK (id = 0), number INTEGER NOT NULL,"
    " value TEXT NOT NULL, crc INTEGER NOT NULL)",
    # arrays that JSON refers to, by digest
    "CREATE TABLE arrays (digest TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",
)
# MIGRATIONS[n] are the statements that turn format n into n + 1.
MIGRATIONS: dict[int, Sequence[str]] = {}
BUSY_SECONDS = 30.0
PAGE = 8192
NETWORKED = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs")


def create(path: Path, facts: Sequence[tuple[str, str, int]]) -> bool:
    """Make a run file that appears whole, with its facts inside; false if the path is taken."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute(f"PRAGMA page_size = {PAGE}")
            db.execute("PRAGMA synchronous = FULL")
            with transaction(db):
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {FORMAT}")
                for table in TABLES:
                    db.execute(table)
                db.executemany("INSERT INTO facts VALUES (?, ?, ?)", facts)
        return _published(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _published(draft: Path, path: Path) -> bool:
    """Give a finished file its name, unless something has that name already."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        os.rename(draft, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):
            os.fsync(folder)
        os.close(folder)
    return True


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection to a run file, checked; `RunFileError` if it is none, newer than us, or damaged."""
    if not path.is_file():
        what = "is not a file" if path.exists() else "there is no such run file"
        raise RunFileError(f"{path}: {what}.")
    with explained(path):
        db = _connected(path, write=write)
        try:
            _guard(db, path, write=write)
            _check(db, path)
            if write:
                _migrate(db)
                db.execute(f"PRAGMA journal_mode = {journal_mode(path)}")
                db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            db.close()
            raise
    return db


def _connected(path: Path, *, write: bool) -> sqlite3.Connection:
    address = path.absolute().as_uri() + ("?mode=rw" if write else "?mode=ro")
    db = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException as error:  # also MemoryError, which damaged files may cause
        db.close()
        # A reader of a finished file in a folder that it may not write to cannot make the files of WAL.
        folder_refuses = isinstance(error, sqlite3.OperationalError) and not write
        if not folder_refuses or path.with_name(path.name + "-wal").exists():
            raise
        db = sqlite3.connect(address + "&immutable=1", uri=True, isolation_level=None)
    return db


def _guard(db: sqlite3.Connection, path: Path, *, write: bool) -> None:
    """Trust nothing in the file: no functions from its schema, no value larger than the file could hold."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    if not write:
        held = [part for part in (path, path.with_name(path.name + "-wal")) if part.exists()]
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(sum(part.stat().st_size for part in held), 1_000_000))


def _check(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        raise RunFileError(f"{path} is a database, but not a run file of aptinfer. It was left as it is.")
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > FORMAT:
        raise RunFileError(
            f"{path} has format {found}, and this version of aptinfer reads formats up to {FORMAT}. Use a "
            f"newer version: pip install --upgrade aptinfer. The file was left as it is."
        )
    if found == FORMAT:
        tables = db.execute(
            "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
        ).fetchall()
        if sorted(str(sql) for (sql,) in tables) != sorted(TABLES):
            raise RunFileError(f"{path}: its tables are not those of a run file. It was left as it is.")
    elif found not in MIGRATIONS:
        raise RunFileError(f"{path} has the unknown format {found}. It was left as it is.")


def _migrate(db: sqlite3.Connection) -> None:
    """Bring an older format up to date, all at once or not at all."""
    with transaction(db):
        (found,) = db.execute("PRAGMA user_version").fetchone()
        for number in range(found, FORMAT):
            for statement in MIGRATIONS[number]:
                db.execute(statement)
        if found != FORMAT:
            db.execute(f"PRAGMA user_version = {FORMAT}")


def settle(db: sqlite3.Connection) -> None:
    """Leave a single file behind, from which readers make no others; if one is reading, a complete file."""
    for statement in ("busy_timeout = 100", "wal_checkpoint(TRUNCATE)", "journal_mode = DELETE"):
        with contextlib.suppress(sqlite3.Error):
            db.execute(f"PRAGMA {statement}").fetchall()


def identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None if to none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def journal_mode(path: Path) -> str:
    """WAL, so that a file can be read while it is written; not over a network, which shares no memory."""
    return "DELETE" if _file_system(path).startswith(NETWORKED) else "WAL"


def _file_system(path: Path) -> str:
    """The kind of file system that a path is on; empty where it cannot be told."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real, best, kind = os.path.realpath(path), "", ""
    for _, folder, found, *_ in (line.split(" ") for line in mounts if line.count(" ") >= 3):
        folder = folder.replace("\\040", " ")
        inside = real == folder or real.startswith(folder.rstrip("/") + "/")
        if inside and len(folder) >= len(best):
            best, kind = folder, found
    return kind


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors as `RunFileError`, with the file's name and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text or "disk I/O" in text:
            why = f"there is no room to write ({text}). Everything recorded before is safe:"
            if "full" not in text:
                why = f"there is no room to write, or the disk fails, or {path.name}-wal is gone ({text}):"
            raise RunFileError(
                f"{path}: {why} make room, then continue with apt.resume({str(path)!r}, simulator)."
            ) from error
        if "locked" in text or "busy" in text:
            raise RunFileError(
                f"{path} has been locked by another process for {BUSY_SECONDS:g} s ({text})."
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise RunFileError(
                f"{path} cannot be opened for this ({text}). Check its permissions."
            ) from error
        raise RunFileError(
            f"{path} is damaged, or no run file at all ({text}). It was left as it is."
        ) from error
    except UnicodeDecodeError as error:
        raise RunFileError(f"{path} is damaged ({error}). It was left as it is.") from error
