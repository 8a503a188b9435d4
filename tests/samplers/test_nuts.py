"""NUTS, whose kernels are BlackJAX's: without our strict dtypes."""

import sys

import numpy as np
import pytest
from densities import ORIGIN, Correlated, assert_exact

from aptinfer.keys import Key
from aptinfer.samplers import NUTS

KEY = Key((0,))


def test_draws_follow_the_density_at_any_params(monkeypatch):
    target = Correlated(10, 0.9)
    sampler = NUTS(warmup=200)
    mean = np.linspace(-1, 1, 10, dtype=np.float32)
    draws = sampler(KEY, target, mean, 2000)
    assert draws.r_hat < 1.02
    assert draws.effective > 1000
    assert_exact(draws, target, mean)
    # Other params and another n, with a density that can no longer be traced: nothing is compiled.
    monkeypatch.setattr(Correlated, "log_likelihood", None)
    again = sampler(KEY, target, -mean, 1500)
    assert again.values.shape == (1500, 10)
    assert_exact(again, target, -mean)


def test_the_package_it_needs_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match=r"pip install 'aptinfer\[nuts\]'"):
        NUTS()(KEY, Correlated(2, 0.5), ORIGIN, 10)
