"""The command line: what users type, and how their mistakes are answered."""

import json
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.cli import main

MODEL = """
import numpy as np
import aptinfer as apt

def simulator(rng, theta):
    return theta + 0.2 * rng.standard_normal(2)

prior = apt.box([-1, -1], [1, 1], names=["a", "b"])
x_o = [0.2, 0.3]
method = apt.NPE(estimator=apt.MDN(1), embedding=apt.Flatten(), trainer=apt.Trainer(epochs=3))
simulations = 60
"""


def call(*arguments) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return exit.value.code  # pyright: ignore[reportReturnType]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and its finished run."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("warnings.showwarning", None)
        assert call("run", "model.py", "--simulations", "40") == 0
    return folder


@pytest.fixture(autouse=True)
def warnings_as_before(monkeypatch):
    monkeypatch.setattr("warnings.showwarning", None)


def test_run_keeps_a_file_and_flags_override_the_model(folder):
    run = apt.open(folder / "model.apt")
    assert len(run.simulations.done) == 40
    assert run.posterior.names == ("a", "b")


def test_status(folder, capsys):
    assert call("status", folder / "model.apt") == 0
    assert "finished" in capsys.readouterr().out
    assert call("status", folder / "model.apt", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "rounds": 1,
        "closed": 1,
        "finished": True,
        "round": 1,
        "simulated": 40,
        "of": 40,
        "failed": 0,
        "writer": None,
    }


def test_sample_writes_csv_or_npy(folder, capsys):
    expected = apt.open(folder / "model.apt").posterior.sample(5, seed=2)
    assert call("sample", folder / "model.apt", "-n", 5, "--seed", 2) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "a,b"
    np.testing.assert_array_equal([[float(word) for word in row.split(",")] for row in rows], expected)
    assert call("sample", folder / "model.apt", "-n", 5, "--seed", 2, "--out", folder / "draws.npy") == 0
    np.testing.assert_array_equal(np.load(folder / "draws.npy"), expected)
    apt.open(folder / "model.apt").posterior.save(folder / "saved.safetensors")
    for file in ("model.apt", "saved.safetensors"):
        assert call("sample", folder / file, "-n", 3, "--x-o", "0.1,0.1", "--out", folder / "draws.csv") == 0
    assert len((folder / "draws.csv").read_text().splitlines()) == 4


def test_an_observation_may_begin_with_a_minus(folder):
    assert (
        call("sample", folder / "model.apt", "-n", 3, "--x-o", "-0.1,0.1", "--out", folder / "draws.npy") == 0
    )
    posterior = apt.open(folder / "model.apt").posterior.given([-0.1, 0.1])
    np.testing.assert_array_equal(np.load(folder / "draws.npy"), posterior.sample(3))


def test_a_model_may_say_budget_and_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gaps = MODEL.replace("[0.2, 0.3]", "[0.2, float('nan')]").replace(
        "simulations = 60", "budget = 60\nmissing = True"
    )
    (tmp_path / "gaps.py").write_text(gaps)
    assert call("run", "gaps.py") == 0
    assert len(apt.open("gaps.apt").simulations.done) == 60
    assert call("run", "gaps.py", "--simulations", 50, "--file", "other.apt") == 0
    assert len(apt.open("other.apt").simulations.done) == 50


def test_names_that_look_like_settings_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typo.py").write_text(MODEL + "round = 1\nseeds = 3\nsigma = 0.2\ndef simulation(): pass\n")
    assert call("run", "typo.py") == 0
    told = capsys.readouterr().err
    assert "'round', which is no setting: is 'rounds' meant?" in told
    assert "'seeds', which is no setting: is 'seed' meant?" in told
    assert "sigma" not in told
    assert "simulation" not in told


def test_whoever_repairs_a_simulator_is_told_of_failures_that_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    broken = MODEL.replace("return theta", "assert theta[0] < 0\n    return theta") + "max_failed = 0.1\n"
    (tmp_path / "model.py").write_text(broken)
    assert call("run", "model.py") == 1
    assert "a repaired simulator needs another file" in capsys.readouterr().err
    (tmp_path / "model.py").write_text(MODEL + "max_failed = 0.9\n")
    assert call("run", "model.py") == 0
    assert re.search(r"goes on with the \d+ simulations that it holds \(\d+ of them", capsys.readouterr().out)


def test_resume_adds_simulations(folder, tmp_path, capsys):
    (tmp_path / "run.apt").write_bytes((folder / "model.apt").read_bytes())
    assert call("resume", tmp_path / "run.apt", folder / "model.py", "--simulations", 50) == 0
    assert "50 simulations in 1 rounds" in capsys.readouterr().out
    assert len(apt.open(tmp_path / "run.apt").simulations.done) == 50


def test_problems_are_listed_and_can_be_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("problems") == 0
    assert "two_moons" in capsys.readouterr().out
    assert call("run", "two_mons") == 2
    assert "two_moons" in capsys.readouterr().err


MISTAKES = {
    "no such model": (["run", "absent.py"], "there is no file absent.py"),
    "not Python": (["run", "notes.txt"], "not a Python file"),
    "syntax": (["run", "syntax.py"], r"cannot be run: SyntaxError"),
    "raises": (["run", "raises.py"], r"raises.py cannot be run: line 3: ZeroDivisionError: division by zero"),
    "incomplete": (["run", "incomplete.py"], "does not define prior and x_o"),
    "wrong observation": (["run", "wrong.py"], "x_o must be finite"),
    "no run file": (["status", "absent.apt"], "no such run file"),
    "not a run file": (["status", "notes.txt"], "no run file at all"),
    "no rounds": (["run", "model.py", "--rounds", "0"], "rounds must be a whole number"),
    "nothing to sample": (["sample", "absent.apt"], "there is no file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_in_a_sentence(mistake, tmp_path, monkeypatch, capsys):
    files = {
        "notes.txt": "some notes\n" * 100,
        "model.py": MODEL,
        "syntax.py": "def f(:\n",
        "raises.py": "\n\n1 / 0\n",
        "incomplete.py": "simulator = print\n",
        "wrong.py": MODEL + "\nx_o = [float('nan'), 1]\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    arguments, says = MISTAKES[mistake]
    assert call(*arguments) == 2
    error = capsys.readouterr().err
    assert says.replace("\\", "") in error
    assert error.startswith("aptinfer:")
    assert "Traceback" not in error
    assert call(*arguments, "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_run_that_fails_and_an_interrupted_one_have_their_exit_codes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.py").write_text(MODEL + "\nsimulator = lambda theta: None\n")
    assert call("run", "failing.py") == 1
    assert "all of the first 50 simulations" in capsys.readouterr().err
    stops = "\ndef simulator(rng, theta):\n    raise KeyboardInterrupt\n"
    (tmp_path / "stopped.py").write_text(MODEL + stops)
    assert call("run", "stopped.py") == 130
    assert "apt.resume" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["demo", "--help"], ["status", "FILE"]])
def test_help_and_status_do_not_load_jax(arguments, folder):
    code = textwrap.dedent(
        """
        import sys
        from aptinfer.cli import main
        try:
            main(sys.argv[1:])
        except SystemExit as exit:
            print(exit.code, {"jax", "equinox", "numpyro"} & set(sys.modules))
        """
    )
    arguments = [str(folder / "model.apt") if a == "FILE" else a for a in arguments]
    found = subprocess.check_output([sys.executable, "-c", code, *arguments], text=True)
    assert found.splitlines()[-1] == "0 set()"
