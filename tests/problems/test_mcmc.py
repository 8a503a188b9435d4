"""Chains on known targets, what happens when they fail, and how their draws are kept."""

import os

import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer import caching, problems
from aptinfer.errors import SamplingError
from aptinfer.problems import mcmc
from aptinfer.problems.__main__ import main
from aptinfer.problems.mcmc import ByMCMC, agreement, chains
from comparisons import assert_same_distribution


def narrow_gaussian(z, x):
    """x ~ N(A z, 0.02² I) for each row of z; the posterior is Gaussian, narrow and tilted."""
    return -0.5 * jnp.sum((z @ A.T - x) ** 2, axis=1) / 0.02**2


def two_modes(z, x):
    """A bump of 30 % at -x and one of 70 % at x along the first axis, prior removed."""
    log_prior = -0.5 * jnp.sum(z**2, axis=1)
    bumps = [jnp.log(w) - 0.5 * jnp.sum((z - s * x) ** 2, axis=1) / 0.3**2 for s, w in ((-1, 0.3), (1, 0.7))]
    return jnp.logaddexp(*bumps) - log_prior


A = jnp.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.7], [0.3, 0.0, 1.0]])


def test_chains_reach_a_narrow_gaussian():
    x = np.array([0.5, -1.0, 0.2])
    z = chains(narrow_gaussian, np.random.default_rng(0), x, 3, 8).reshape(-1, 3)
    a = np.asarray(A, np.float64)
    covariance = np.linalg.inv(np.eye(3) + a.T @ a / 0.02**2)
    mean = covariance @ a.T @ x / 0.02**2
    exact = np.random.default_rng(1).multivariate_normal(mean, covariance, len(z))
    assert_same_distribution(z / 0.02, exact / 0.02)


def test_modes_keep_their_shares():
    # Chains do not cross: shares come from the tempered particles, resampled from 500 at each power.
    z = chains(two_modes, np.random.default_rng(0), np.array([2.0, 0.0]), 2, 8)
    share = np.mean(z[..., 0] > 0)
    assert share == pytest.approx(0.7, abs=5 * np.sqrt(0.7 * 0.3 / mcmc.CHAINS) * 2)
    assert agreement(z)[0] > mcmc.LARGEST_R_HAT  # and that they do not cross is seen


def never_nan(z, x):
    return jnp.where(z[:, 0] > 0, jnp.nan, -0.5 * (z[:, 0] - x[0]) ** 2)


def test_failed_likelihoods_are_impossible_states():
    z = chains(never_nan, np.random.default_rng(0), np.zeros(1), 1, 8)
    assert np.all(z <= 0)
    # N(z; 0, 1) N(0; z, 1) on the negative half: a half-normal of scale 1/√2.
    scale, n = np.sqrt(0.5), z.size
    expected, deviation = -scale * np.sqrt(2 / np.pi), scale * np.sqrt(1 - 2 / np.pi)
    assert z.mean() == pytest.approx(expected, abs=5 * deviation / np.sqrt(n))


def test_no_possible_draw_is_an_error():
    with pytest.raises(SamplingError, match="No draw of the prior can produce x_o"):
        chains(lambda z, x: jnp.full(len(z), -jnp.inf), np.random.default_rng(0), np.zeros(1), 1, 8)


def test_chains_that_disagree_are_an_error():
    reference = ByMCMC("two modes", 2, lambda z: z, two_modes)
    with pytest.raises(SamplingError, match=r"chains on the posterior of 'two modes' have not mixed: R-hat"):
        reference(np.random.default_rng(0), np.array([2.0, 0.0]), 100)


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """A cheap reference, kept in a folder of its own, and how often it was computed."""
    monkeypatch.setattr(caching, "references_folder", lambda: tmp_path / "kept")
    calls = []

    class Counted(ByMCMC):
        def _sample(self, rng, x_o, n):
            calls.append((x_o.tolist(), n))
            return mcmc.Draws(rng.normal(x_o, 1.0, (n, 2)), 1.0, float(n))

    def draw(x_o=(0.0, 1.0), n=5, seed=0, options=(), fresh=False):
        reference = Counted("counted", 2, lambda z: z, two_modes, dict(options))
        return reference.draws(np.random.default_rng(seed), np.array(x_o), n, fresh=fresh)

    return draw, calls, tmp_path / "kept"


def test_draws_are_kept_by_everything_they_depend_on(counted, monkeypatch):
    draw, calls, folder = counted
    first, again = draw(), draw()
    assert len(calls) == 1
    np.testing.assert_array_equal(first.theta, again.theta)
    assert again[1:] == (1.0, 5.0)
    for number, other in enumerate(
        [{"x_o": (0.0, 2.0)}, {"n": 6}, {"seed": 1}, {"options": [("seed", 1)]}, {"fresh": True}], 2
    ):
        draw(**other)
        assert len(calls) == number
    monkeypatch.setattr("aptinfer.__version__", "999")
    draw()
    assert len(calls) == 7
    assert all(path.name.startswith("counted-") for path in folder.iterdir())  # nothing half-written


def test_a_damaged_file_is_replaced(counted):
    draw, calls, folder = counted
    expected = draw().theta
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    np.testing.assert_array_equal(draw().theta, expected)
    assert len(calls) == 2
    draw()
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written_is_no_error(counted, monkeypatch, tmp_path):
    draw, calls, _ = counted
    file = tmp_path / "file"
    file.touch()
    for folder in (file / "inside", None):
        monkeypatch.setattr(caching, "references_folder", lambda folder=folder: folder)
        assert draw().theta.shape == (5, 2)
    assert len(calls) == 2


def test_an_interrupted_write_leaves_nothing(counted, monkeypatch):
    draw, _, folder = counted

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    assert draw().theta.shape == (5, 2)
    assert list(folder.iterdir()) == []


def test_the_command_makes_references_anew(monkeypatch, capsys):
    problem = problems.get("glm")
    made = []

    def draws(self, rng, x_o, n, *, fresh):
        made.append((self.name, n, fresh))
        return mcmc.Draws(np.zeros((n, 10)), 1.0012, 9000.0)

    monkeypatch.setattr(ByMCMC, "draws", draws)
    main(["--references", "glm", "slcp"])
    assert made == [(problem.name, 10_000, True)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("glm, observation 1: 10000 draws, R-hat 1.0012, effective 9000,")
    assert lines[1] == "slcp: drawn on request, exactly"
    with pytest.raises(SystemExit):
        main(["--references", "gml"])
    assert "Did you mean 'glm'?" in capsys.readouterr().err


def test_the_table_says_how_references_are_drawn(capsys):
    main([])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert " MCMC " in lines["sir"]
    assert lines["gaussian_linear"].split()[3:5] == ["exact", "exact"]
