"""Which entries of x are learned, and in what order, is decided anew while simulations are few."""

from typing import Any

import numpy as np
import pytest

import aptinfer as apt
from aptinfer.columns import NoDensityError, fit_columns
from aptinfer.methods import snl
from aptinfer.screening import informative

PRIOR = apt.gaussian(np.zeros(1), np.eye(1))
X_O = np.zeros(20)
X_O[0] = 0.5


@apt.BatchSimulator
def mostly_noise(rng, theta):
    """The first entry says much of theta, the second a little, the others nothing."""
    return theta * np.concatenate([[1.0, 0.3], np.zeros(18)]) + rng.standard_normal((len(theta), 20))


def kept(rounds: int) -> list[int]:
    method = apt.SNL(
        estimator=apt.MDN(1),
        embedding=apt.MLP((8,)),
        trainer=apt.Trainer(batch=50, epochs=2),
        screen=True,
    )
    settings: dict[str, Any] = {"method": method, "rounds": rounds, "simulations": 80, "progress": False}
    posterior: Any = apt.infer(mostly_noise, PRIOR, X_O, **settings).posterior
    return list(posterior.scaling.kept)


def test_an_entry_that_few_rows_had_nothing_to_say_for_comes_in_later():
    assert kept(rounds=1) == [0]
    assert kept(rounds=4) == [0, 1]


def test_with_enough_rows_it_is_decided_for_ever(monkeypatch):
    monkeypatch.setattr(snl, "SETTLED", 80)
    assert kept(rounds=4) == [0]


def test_an_entry_without_a_density_stays_out(monkeypatch):
    calls = []

    def without_density(*arguments, **settings):
        calls.append(len(arguments[0]))
        if len(calls) > 1:
            raise NoDensityError("it repeats")
        return fit_columns(*arguments, **settings)

    monkeypatch.setattr(snl, "fit_columns", without_density)
    assert kept(rounds=4) == [0]
    assert calls == [80, 160, 240, 320]


@pytest.mark.parametrize("width", [1.0, 0.1])
def test_noise_is_known_whatever_parameters_were_drawn_from(width):
    rng = np.random.default_rng(0)
    narrow = np.exp(rng.standard_normal((300, 2)) @ [[width, 0.9 * width], [0, 0.4 * width]])
    theta = np.concatenate([rng.standard_normal((200, 2)), narrow])
    x = rng.standard_normal((500, 20))
    x[:, 3] += theta[:, 0]
    x[:, 7] += 2 * theta[:, 1]
    np.testing.assert_array_equal(np.flatnonzero(informative(theta, x, rng)), [3, 7])
