"""Runs that are killed without warning, at random moments, and end as if nothing had happened."""

import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from killed import SIMULATIONS, infer
from runs import assert_same_bits, assert_sound

import aptinfer as apt
from aptinfer import programs
from aptinfer.storage.runfile import RunFileReader

SCRIPT = Path(__file__).with_name("killed.py")


def noted(calls: Path) -> list[tuple[bytes, int]]:
    """The parameters and the process of every call of the simulator so far."""
    data = calls.read_bytes() if calls.exists() else b""
    return [
        (data[i : i + 16], int.from_bytes(data[i + 16 : i + 24], "little")) for i in range(0, len(data), 24)
    ]


def gone(pid: int) -> bool:
    """Whether a process has ended within some seconds."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def committed(file: Path) -> set[bytes]:
    """The parameters of every simulation that is in the file."""
    if not file.exists():
        return set()
    simulations = RunFileReader(file).simulations()
    return {theta.tobytes() for theta in simulations.theta[simulations.done]}


def killed_run(
    tmp_path: Path, kills: int, seed: int, longest: float, rounds: int, wait: float, processes: int = 0
) -> int:
    """Kill a run so many times, resume it each time, and compare it with one left alone; counts kills."""
    file, rng, hits = tmp_path / "run.apt", np.random.default_rng(seed), 0
    plain = infer(None, str(tmp_path / "plain"), rounds)
    for kill in range(kills):
        before, calls = committed(file), tmp_path / f"calls-{kill}"
        settings = (str(rounds), str(wait), str(processes))
        process = subprocess.Popen([sys.executable, SCRIPT, file, calls, *settings])
        while not calls.exists() and process.poll() is None:
            time.sleep(0.002)
        try:
            process.wait(timeout=float(rng.uniform(0, longest)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            hits += 1
        assert process.returncode in (0, -9)
        if process.returncode == 0:
            break
        assert not before & {theta for theta, _ in noted(calls)}, "a committed simulation was run again"
        assert before <= committed(file), "a committed simulation was lost"
        if sys.platform.startswith("linux"):
            assert all(gone(pid) for pid in {pid for _, pid in noted(calls)}), "a worker was left behind"
        if file.exists():
            assert_sound(file)
    run = infer(str(file), str(tmp_path / "last"), rounds)
    assert_same_bits(plain, run)
    assert_same_bits(plain, apt.open(file))
    assert len(committed(file)) == rounds * SIMULATIONS
    return hits


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """What is compiled here is read by the processes that are killed."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path / "cache"),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    programs.forget_all()  # so that they are compiled anew, into this cache
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        monkeypatch.setenv(name.upper(), str(value))
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.slow
def test_killed_and_resumed(tmp_path, cache):
    assert killed_run(tmp_path, 4, seed=0, longest=1.5, rounds=3, wait=0.005) >= 1


def test_killed_while_processes_work_for_it(tmp_path, cache):
    assert killed_run(tmp_path, 2, seed=1, longest=1.0, rounds=2, wait=0.02, processes=2) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "kills"), [(0, 100), (2, 40)])
def test_killed_a_hundred_times(tmp_path, cache, processes, kills):
    hits = 0
    while hits < kills:
        folder = tmp_path / str(hits)
        folder.mkdir()
        sizes = {"longest": 2.0, "rounds": 6, "wait": 0.05}
        hits += killed_run(folder, kills - hits, seed=hits, processes=processes, **sizes)
