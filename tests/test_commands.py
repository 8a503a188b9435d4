"""Programs as simulators: what they are given, what they may write, and how they fail."""

import os
import signal
import stat
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import uniform

import aptinfer as apt
from aptinfer.protocols import Rows, Status

SEED = 5
PYTHON = [sys.executable, "-I", "-S"]
ROWS = Rows(np.arange(3, 5), np.array([[0.1, -2e-17], [1 / 3, 4.0]]))
ECHO = "import json, sys; d = json.load(sys.stdin); print([*d['theta'], d['seed'], d['row']])"


def simulate(*command, some=ROWS, names=("growth", "death"), **settings):
    return apt.CommandSimulator([*command], **settings).named(names)(SEED, some)


def program(tmp_path, text):
    path = tmp_path / "model"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_parameters_come_by_standard_input_with_all_their_digits():
    outcomes = simulate(*PYTHON, "-c", ECHO)
    x = np.array([o.x for o in outcomes])
    np.testing.assert_array_equal(x[:, :2], ROWS.theta)
    np.testing.assert_array_equal(x[:, 3], [3, 4])
    assert (x[:, 2] == x[:, 2].astype(np.int32)).all()
    assert x[0, 2] != x[1, 2]


def test_parameters_come_by_arguments_a_file_and_the_environment():
    code = """import json, os, sys
growth, row, path, braces, seed = sys.argv[1:]
content = json.load(open(path))
assert braces == '{' + 'growth}', braces
assert content['parameters']['growth'] == float(growth)
assert seed == os.environ['APTINFER_SEED'] == str(content['seed'])
print([float(growth), content['parameters']['death'], int(row)])"""
    outcomes = simulate(
        *PYTHON, "-c", code, "{growth}", "{row}", "{input}", "{{growth}}", "{seed}", input="p.json"
    )
    assert [o.reason for o in outcomes] == ["", ""]
    np.testing.assert_array_equal([o.x for o in outcomes], np.column_stack([ROWS.theta, [3, 4]]))


def test_no_shell_reads_the_parameters(tmp_path):
    (outcome,) = simulate(
        "echo",
        "[{a}, 1]; touch broken $(touch broken)",
        some=Rows(np.arange(1), np.ones((1, 1))),
        names=("a",),
    )
    assert outcome.status is Status.INVALID
    assert "[1.0, 1]; touch broken $(touch broken)" in outcome.reason
    assert not Path("broken").exists()


WRITTEN = {
    "json": ("print('[[1, 2.5], [3, -4e-3]]')", [[1, 2.5], [3, -4e-3]]),
    "json number": ("print(7)", [7.0]),
    "csv": ("print('1,2.5,3')", [1, 2.5, 3]),
    "csv table": ("print('a,b\\n1,2\\n3,4\\n')", [[1, 2], [3, 4]]),
    "csv file": ("open('result.csv', 'w').write('1,2\\n'); print('progress: 100 %')", [1, 2]),
    "json at {output}": ("import sys; open(sys.argv[1], 'w').write('[5, 6]')", [5, 6]),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_a_program_may_write(kind):
    code, expected = WRITTEN[kind]
    output = {"csv file": "result.csv", "json at {output}": "x.json"}.get(kind, kind.split()[0])
    (outcome,) = simulate(
        *PYTHON, "-c", code, "{output}", some=Rows(np.arange(1), np.ones((1, 2))), output=output
    )
    assert outcome.reason == ""
    np.testing.assert_array_equal(outcome.x, np.array(expected, float))


@pytest.mark.parametrize("output", ["npy", "x.npy"])
def test_arrays_of_numpy(output, tmp_path):
    np.save(tmp_path / "kept.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    command = (
        ["cp", f"{tmp_path}/kept.npy", "{output}"] if output == "x.npy" else ["cat", f"{tmp_path}/kept.npy"]
    )
    (outcome,) = simulate(*command, some=Rows(np.arange(1), np.ones((1, 2))), output=output)
    np.testing.assert_array_equal(outcome.x, np.arange(6, dtype=np.float32).reshape(2, 3), strict=True)


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], object))
    (outcome,) = simulate(
        "cat", f"{tmp_path}/evil.npy", some=Rows(np.arange(1), np.ones((1, 2))), output="npy"
    )
    assert outcome.status is Status.INVALID
    assert "allow_pickle" in outcome.reason


FAILING = {
    "exit code": ("echo 'no convergence' >&2; exit 3", Status.RAISED, "exit code 3\nno convergence"),
    "signal": ("kill -SEGV $$", Status.CRASHED, "killed by SIGSEGV"),
    "nothing": ("echo 'cannot write' >&2", Status.INVALID, "it is empty\ncannot write"),
    "text": ("echo Segmentation fault", Status.INVALID, "it begins 'Segmentation fault'"),
    "an object": ("echo '{\"x\": 1}'", Status.INVALID, "no json numbers in its standard output"),
    "NaN": ("echo '[1, NaN]'", Status.INVALID, "returned NaN or infinity"),
    "null": ("echo null", Status.INVALID, "returned None"),
    "null inside": ("echo '[1, null]'", Status.INVALID, "returned NaN or infinity"),
    "ragged": ("echo '[[1], [1, 2]]'", Status.INVALID, "no json numbers"),
}


@pytest.mark.parametrize("kind", FAILING)
def test_failures_have_a_status_and_a_reason(kind, tmp_path):
    text, status, reason = FAILING[kind]
    outcomes = simulate(program(tmp_path, text), scratch=tmp_path)
    assert [o.status for o in outcomes] == [status] * 2
    assert reason in outcomes[0].reason
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "folders are removed"


def test_folders_are_kept_if_asked_and_only_of_failures(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    text = 'echo here > notes; [ "$1" -eq 4 ] && exit 1; echo 1'
    outcomes = simulate(program(tmp_path, text), "{row}", scratch=scratch, keep_failed=True)
    assert [o.status for o in outcomes] == [Status.DONE, Status.RAISED]
    (kept,) = scratch.iterdir()
    assert f"Its folder: {kept}" in outcomes[1].reason
    assert (kept / "notes").read_text() == "here\n"


def test_a_timeout_kills_all_that_the_program_started(tmp_path):
    model = program(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    started = time.monotonic()
    (outcome,) = simulate(model, some=Rows(np.arange(1), np.ones((1, 2))), timeout=0.5)
    assert time.monotonic() - started < 10
    assert outcome.status is Status.TIMEOUT
    assert "still running after timeout=0.5 s" in outcome.reason
    child = int((tmp_path / "child").read_text())
    time.sleep(0.2)
    if sys.platform.startswith("linux"):
        stat_file = Path(f"/proc/{child}/stat")
        assert not stat_file.exists() or stat_file.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_program_that_leaves_something_running_is_not_waited_for(tmp_path):
    model = program(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child; echo 1")
    started = time.monotonic()
    (outcome,) = simulate(model, some=Rows(np.arange(1), np.ones((1, 2))))
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert time.monotonic() - started < 30
    assert outcome.status is Status.DONE


def test_same_bits_in_workers_and_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(
        "import random, sys\nrandom.seed(int(sys.argv[1]))\nprint([random.random(), random.gauss(0, 1)])\n"
    )
    simulator = apt.CommandSimulator([*PYTHON, "model.py", "{seed}"])
    some = Rows(np.arange(6), np.zeros((6, 1)))
    inline = {o.index: o.x for o in apt.Inline()(simulator, SEED, some)}
    workers = {o.index: o.x for o in apt.Processes(2)(simulator, SEED, some)}
    assert len({value for x in inline.values() if x is not None for value in x}) == 12
    for index, x in inline.items():
        np.testing.assert_array_equal(workers[index], x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: apt.CommandSimulator("./model --a {a}"), "must be a list of the program and its arguments"),
        (lambda: apt.CommandSimulator([]), "must be a list of the program"),
        (
            lambda: apt.CommandSimulator(["no-such-program"]),
            "'no-such-program' is no program that can be run",
        ),
        (lambda: apt.CommandSimulator(["cat", 3]), "must hold texts or paths"),  # pyright: ignore
        (lambda: apt.CommandSimulator(["cat"], output="xml"), "output must be 'json', 'csv' or 'npy'"),
        (
            lambda: apt.CommandSimulator(["cat"], output="/tmp/x.csv"),
            "must be the name of a file, without a folder",
        ),
        (lambda: apt.CommandSimulator(["cat"], timeout=0), "timeout must be a finite number above 0"),
        (lambda: apt.CommandSimulator(["cat"], scratch="/no/such"), "scratch must be an existing folder"),
        (lambda: apt.CommandSimulator(["cat"], ouput="csv"), "Did you mean 'output'"),  # pyright: ignore
    ],
)
def test_mistakes_are_seen_when_it_is_made(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_a_mistyped_parameter_is_seen_before_the_first_simulation():
    simulator = apt.CommandSimulator(["echo", "{grwth}"])
    prior = apt.Prior(growth=uniform(0, 1))
    with pytest.raises(ValueError, match=r"has \{grwth\}, which is no parameter.*Did you mean 'growth'"):
        apt.infer(simulator, prior, [1.0])
