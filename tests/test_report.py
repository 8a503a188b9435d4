"""Tables and pictures of a tiny run."""

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.report import plots, summary

TRAINER = apt.Trainer(epochs=3)


@pytest.fixture(scope="module")
def run():
    def simulator(rng, theta):
        return None if theta[0] > 0.95 else theta[:2] + 0.1 * rng.standard_normal(2)

    prior = apt.box([-1, 0, 2], [1, 1, 3], names=["growth", "death", "spare"])
    method = apt.APT(estimator=apt.Ensemble(apt.MDN(components=2), members=2), trainer=TRAINER)
    return apt.infer(simulator, prior, [0.2, 0.3], method=method, rounds=2, simulations=100, progress=False)


def test_summary_says_it_all(run):
    text = run.summary()
    lines = text.splitlines()
    assert lines[0] == "Posterior after round 2 of 2"
    death = next(line for line in lines if line.startswith("death")).split()
    expected = [run.posterior.mean()[1], run.posterior.std()[1], *run.posterior.quantiles()[:, 1]]
    np.testing.assert_allclose([float(v) for v in death[1:]], expected, atol=1e-3)
    rows = [line.split() for line in lines if line.startswith(("1 ", "2 "))]
    assert [row[1] for row in rows] == ["100", "100"]
    assert [int(row[2]) for row in rows] == [r.failed for r in run.rounds]
    assert [row[3] for row in rows] == ["3", "3"]
    assert all("epoch limit" in " ".join(row) for row in rows)
    assert "far tails" in text
    assert lines[-1] == (
        "APT(loss=MixtureProposal(), estimator=Ensemble(estimator=MDN(components=2), members=2), "
        "embedding=MLP(), trainer=Trainer(epochs=3)); prior on growth, death, spare; "
        "200 simulations in 2 rounds; seed 0."
    )


def test_summary_of_a_run_cut_short(run):
    assert "round 1 of 2, stopped there" in replace(run, rounds=run.rounds[:1]).summary()
    assert "interrupted there" in replace(run, rounds=run.rounds[:1], interrupted=True).summary()


def test_summary_shows_acceptance_in_theta_space(run):
    finished = [replace(r, notes={"acceptance": 0.875}) for r in run.rounds]
    text = replace(run, rounds=tuple(finished)).summary()
    assert "inside prior" in text
    assert "87.5 %" in text


def test_tables_refuse_several_observations(run):
    several = run.posterior.given([[0.1, 0.2], [0.3, 0.4]])
    with pytest.raises(ValueError, match="2 observations"):
        summary.marginals(several)
    with pytest.raises(ValueError, match="2 observations"):
        plots.pairs(several)


@pytest.mark.parametrize(
    ("numbers", "written"),
    [
        ([1.23456, 0.0123, -1.0], ["1.2346", "0.0123", "-1.0000"]),
        ([1234.5, 500.0, 0.0], ["1234", "500", "0"]),
        ([1e-9, 2e-10, 0.0], ["1.000e-09", "2.000e-10", "0.000e+00"]),
        ([1e8, 1e3, 1e8 + 1], ["1.0000000e+08", "1.0000000e+03", "1.0000000e+08"]),
        ([2.0, 0.0, 2.0], ["2", "0", "2"]),
    ],
)
def test_numbers_have_the_digits_their_spread_deserves(numbers, written):
    assert summary._significant(np.array(numbers)) == written


def test_markdown_table():
    table = summary.Table(("name", "n"), [("a", "10")])
    assert table.markdown() == "| name |  n |\n| ---- | -: |\n| a    | 10 |"


def test_settings_name_only_what_differs():
    @dataclass(frozen=True)
    class Own:
        apply: object = np.tanh
        size: int = 3

    assert summary.describe(apt.APT()) == "APT()"
    assert summary.describe(Own(apply=np.sin)) == "Own(apply=sin)"
    assert summary.describe(np.ones(3)) == "ndarray"


def test_pairs(run, tmp_path):
    path = tmp_path / "posterior.png"
    figure = run.plot(str(path), truth=[0.2, 0.3, 2.5])
    assert path.read_bytes().startswith(b"\x89PNG")
    visible = [axis for axis in figure.axes if axis.get_visible()]
    assert len(visible) == 6
    assert [axis.get_xlabel() for axis in visible[-3:]] == ["growth", "death", "spare"]
    assert [axis.get_ylabel() for axis in visible if axis.get_ylabel()] == ["death", "spare"]


def test_pairs_checks_the_truth(run):
    with pytest.raises(ValueError, match="growth, death, spare"):
        plots.pairs(run.posterior, truth=[0.2])


def test_density_of_a_line_of_draws(run):
    axis = plots._figure((2, 2)).subplots()
    draws = np.stack([np.zeros(100), np.arange(100.0)], axis=1)
    plots._density(axis, draws, [plots._range(column, None) for column in draws.T])
    assert axis.images


def test_rounds_beside_exact_draws(run):
    exact = np.random.default_rng(0).normal(size=(300, 3))
    figure = plots.rounds_and_exact(run, exact, shown=(1, 2, 4))
    assert [axis.get_title().split("\n")[0] for axis in figure.axes] == ["round 1", "round 2", "exact"]


def test_plotting_leaves_pyplot_alone(run):
    """In a process of its own, as other tests may have imported pyplot."""
    code = (
        "import sys, types, numpy as np\n"
        "from aptinfer.report.plots import pairs\n"
        "draws = np.random.default_rng(0).normal(size=(500, 2))\n"
        "posterior = types.SimpleNamespace(names=('a', 'b'), batched=False, sample=lambda n, seed: draws)\n"
        "pairs(posterior)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_matplotlib_is_explained(run, monkeypatch):
    for name in [m for m in sys.modules if m.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install aptinfer\[plot\]"):
        run.plot()
