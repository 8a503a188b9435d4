"""Damaged and hostile files: a typed error or a working run, never a crash, a hang or code that runs."""

import copy
import functools
import json
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import simulate

import aptinfer as apt
from aptinfer.storage.blobs import packed, unpacked
from aptinfer.storage.records import Reader, digest

FLIPS, CUTS, EDITS = 120, 20, 150
HOSTILE = [
    None, True, -1, 10**9, 10**30, 1e308, "'; DROP TABLE rounds; --", "os.system", "../../etc/passwd", [], {},
    [[[]]] * 3, {"is": "os.system"}, {"is": "executors.Processes", "n": 4}, {"is": "Dask", "client": "tcp://x"},
    {"is": "CommandSimulator", "command": ["touch", "/tmp/owned"]}, {"is": "equinox.nn.Lambda", "fn": None},
    {"is": "methods.learning.importlib"}, {"function": "os.system"}, {"function": "jax.nn.__loader__"},
    {"array": "'; --"}, {"array": 7}, {"shared": "frame"}, {"shared": "__class__"}, {"yours": "os.system"},
    {"float": "1"}, {"dict": []}, {"list": 3}, {"unknown": 1}, {"is": None},
    {"is": "MDN", "components": 10**12},
]  # fmt: skip


def used(path: Path) -> None:
    """Everything that a user does with a file from someone else."""
    run = apt.open(path)
    _ = run.simulations, run.failures
    if run.rounds:
        assert np.isfinite(run.posterior.sample(5)).all()
        run.posterior.log_prob(run.posterior.sample(5))


def survives(path: Path, use=used) -> bool:
    """Whether the file is refused, as it should be, rather than used."""
    try:
        use(path)
    except apt.AptinferError as error:
        return bool(str(error))
    return False


def test_flipped_bytes_and_cut_ends(finished, tmp_path):
    rng, whole, path = np.random.default_rng(0), finished.read_bytes(), tmp_path / "run.apt"
    refused = 0
    for _ in range(FLIPS):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 20)):
            data[place] = rng.integers(256)
        path.write_bytes(data)
        refused += survives(path)
    for end in rng.integers(0, len(whole), CUTS):
        path.write_bytes(whole[:end])
        refused += survives(path)
    assert refused > 0.5 * (FLIPS + CUTS)  # the others hit unused pages


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The way to every entry of a JSON value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*path, key))


def with_entry(value: Any, path: tuple, new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


TEXTS = [("facts", "value", "name"), ("rounds", "finished", "number"), ("memory", "value", "id")]


def test_records_with_right_checksums_and_wrong_content(finished, tmp_path):
    """An entry of a record is replaced by something hostile, by someone who knows the format."""
    rng, path = np.random.default_rng(1), tmp_path / "run.apt"
    refused = 0
    for _ in range(EDITS):
        shutil.copy(finished, path)
        table, column, key = TEXTS[rng.integers(len(TEXTS))]
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(f"SELECT {key}, {column} FROM {table}").fetchall()
            chosen, text = rows[rng.integers(len(rows))]
            record = json.loads(text)
            ways = list(places(record))
            new = json.dumps(
                with_entry(record, ways[rng.integers(len(ways))], HOSTILE[rng.integers(len(HOSTILE))])
            )
            db.execute(
                f"UPDATE {table} SET {column} = ?, crc = ? WHERE {key} = ?",
                (new, zlib.crc32(new.encode()), chosen),
            )
            db.commit()
        refused += survives(path)
    assert refused > 0.7 * EDITS
    assert not Path("/tmp/owned").exists()


def _array(array: np.ndarray):
    """Puts an array in the place of all networks' weights, with the right checksum and digest."""

    def edit(db: sqlite3.Connection):
        stored = db.execute("SELECT digest, data FROM arrays").fetchall()
        weights = [name for name, data in stored if unpacked(data).dtype == np.float32]
        # All rounds' networks: the first array by its digest may belong to one that nobody reads.
        db.execute("INSERT INTO arrays (digest, data) VALUES (?, ?)", (digest(array), packed(array)))
        for table, column, key in TEXTS[1:]:
            for number, text in db.execute(f"SELECT {key}, {column} FROM {table}").fetchall():
                new = functools.reduce(lambda t, old: t.replace(old, digest(array)), weights, text)
                change = (new, zlib.crc32(new.encode()), number)
                db.execute(f"UPDATE {table} SET {column} = ?, crc = ? WHERE {key} = ?", change)

    return edit


def _statement(*statement):
    return lambda db: db.execute(*statement)


HUGE = b"<f8 99999999 99999999 00000000\n" + bytes(80)
ATTACKS = {
    "NaN weights": _array(np.full((1, 8, 2), np.nan, np.float32)),
    "weights of another shape": _array(np.zeros((1, 3, 3), np.float32)),
    "weights without a member": _array(np.zeros((0, 8, 2), np.float32)),
    "a giant declared size": _statement("UPDATE outcomes SET x = ?", (HUGE,)),
    "a giant size of weights": _statement("UPDATE arrays SET data = ?", (HUGE,)),
    "a truncated blob": _statement("UPDATE draws SET theta = substr(theta, 1, 100)"),
    "text for a blob": _statement("UPDATE draws SET value = 'value'"),
    "a pickle for a blob": _statement("UPDATE draws SET value = ?", (b"\x80\x04cos\nsystem\n",)),
    "rows of another round": _statement("UPDATE draws SET round = 7 WHERE first > 0"),
    "rows that were never planned": _statement("DELETE FROM draws WHERE round = 2"),
    "outcomes twice": _statement(
        "INSERT INTO outcomes SELECT id + 1000, first, last, row, status, seconds, reasons, x FROM outcomes"
    ),
    "an unknown status": _statement("UPDATE outcomes SET status = ?", (packed(np.full(40, 99, np.uint8)),)),
    "data of no row": _statement("UPDATE outcomes SET x = ?", (packed(np.zeros((1, 2))),)),
    "NaN data": _statement("UPDATE outcomes SET x = ?", (packed(np.full((40, 2), np.nan)),)),
    "reasons of no kind": _statement("UPDATE outcomes SET reasons = '[[[['"),
    "deep nesting": _statement(
        "UPDATE facts SET value = ?, crc = ?", ("[" * 100_000, zlib.crc32(b"[" * 100_000))
    ),
    "no specification": _statement("DELETE FROM facts"),
    "no memory": _statement("DELETE FROM memory"),
    "a missing round": _statement("DELETE FROM rounds WHERE number = 0"),
    "a trigger": _statement("CREATE TRIGGER t AFTER INSERT ON outcomes BEGIN DELETE FROM draws; END"),
    "a view in place of a table": lambda db: [
        db.execute("ALTER TABLE rounds RENAME TO old"),
        db.execute("CREATE VIEW rounds AS SELECT number, finished, crc FROM old"),
    ],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused(attack, finished, tmp_path):
    path = tmp_path / "run.apt"
    shutil.copy(finished, path)
    with closing(sqlite3.connect(path)) as db:
        ATTACKS[attack](db)
        db.commit()
    before = path.read_bytes()
    assert survives(path)
    assert path.read_bytes() == before
    assert survives(path, lambda p: apt.resume(p, simulate, rounds=4, progress=False))


@pytest.mark.parametrize("written", HOSTILE)
def test_only_our_own_records_are_built(written):
    """Reading gives plain values, our own settings, or an error: never something of someone else."""

    def no_array(name):
        raise apt.RunFileError("no such array")

    try:
        found = Reader(no_array, {"frame": "the frame"})(written)
    except apt.RunFileError:
        return
    assert found is None or isinstance(found, bool | int | float | str | tuple | apt.MDN)


def test_arrays_survive_packing():
    for array in (
        np.zeros((0, 3)),
        np.array(3, np.float32),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([True, False]),
    ):
        np.testing.assert_array_equal(unpacked(packed(array)), array)
        assert unpacked(packed(array)).shape == array.shape
    with pytest.raises(TypeError, match="object"):
        packed(np.array([None]))
