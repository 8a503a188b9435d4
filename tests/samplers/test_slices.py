"""Slice sampling: the kernel's law, one chain that persists, and many at once."""

import numpy as np
import pytest
from densities import (
    ORIGIN,
    Banana,
    Correlated,
    Counted,
    Flat,
    Rare,
    Truncated,
    TwoModes,
    assert_exact,
    smallest_p,
)

from aptinfer.errors import SamplingError, SamplingWarning
from aptinfer.keys import Key
from aptinfer.samplers import SingleSlice, Slice, TemperedSMC, slice_kernel, target

pytestmark = pytest.mark.usefixtures("strict")

KEY = Key((0,))
PLANE = Correlated(2, 0.9)


def after_sweeps(target, width: float, sweeps: int = 10) -> np.ndarray:
    """Exact draws after some sweeps, in batches of as many chains as `Slice` has: one compiled program."""
    starts = target.exact(np.random.default_rng(1), 2000, ORIGIN).astype(np.float32).reshape(20, 100, 2)
    ends = []
    for batch, z in enumerate(starts):
        chains = slice_kernel.Chains(z, np.full_like(z, width))
        end, records, evaluations = slice_kernel.advance(
            KEY.child(batch), target, ORIGIN, chains, sweeps=sweeps, records=1
        )
        np.testing.assert_array_equal(records[:, -1], end.z)
        assert np.mean(end.z == z) < 0.01
        # Two ends and one point inside at least, for either coordinate in every sweep.
        assert evaluations >= 3 * 2 * sweeps * len(z)
        ends.append(end.z)
    return np.concatenate(ends)


@pytest.mark.parametrize("target", [PLANE, Truncated()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("width", [0.05, 3.0])
def test_slices_leave_the_target_invariant(target, width):
    assert smallest_p(after_sweeps(target, width), target) > 1e-3


def test_few_expansions_leave_the_target_invariant(monkeypatch):
    monkeypatch.setattr(slice_kernel, "EXPANSIONS", 2)
    # Eleven sweeps have not been compiled yet: the limit is part of the program.
    assert smallest_p(after_sweeps(Banana(), 0.5, sweeps=11), Banana()) > 1e-3


def test_the_law_sees_a_kernel_that_is_not_invariant(monkeypatch):
    log_density = target.log_density
    monkeypatch.setattr(slice_kernel, "log_density", lambda *args: 1.5 * log_density(*args))
    assert smallest_p(after_sweeps(Truncated(), 1.0, sweeps=12), Truncated()) < 1e-6


def test_widths_are_tuned_to_the_target():
    z = np.zeros((100, 2), np.float32)
    tuned = slice_kernel.tuned(KEY, PLANE, ORIGIN, z, tune=30, sweeps=10)
    # A coordinate given the other has variance 0.1 (1 - 0.9²); brackets end a few standard deviations wide.
    assert 2 < tuned.widths.mean() / np.sqrt(0.1 * 0.19) < 10


@pytest.mark.parametrize("target", [PLANE, Truncated()], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("sampler", [SingleSlice(), Slice()], ids=lambda v: type(v).__name__)
def test_draws_follow_the_density(sampler, target):
    mean = np.array([0.3, -0.6], np.float32)
    draws = sampler(KEY, target, mean, 2000)
    assert draws.values.shape == (2000, 2)
    assert draws.values.dtype == np.float32
    assert draws.effective > 500
    assert_exact(draws, target, mean)


def test_a_single_chain_misses_a_mode():
    draws = SingleSlice()(KEY, TwoModes(), ORIGIN, 500)
    shares = np.mean(draws.values[:, 0] > 0)
    assert shares in (0, 1)
    # Nothing in the chain tells: many effective draws, and R-hat near one.
    assert draws.r_hat < 1.05


def test_chains_that_stay_in_their_modes_are_reported():
    with pytest.warns(SamplingWarning, match=r"chains have not mixed: R-hat is .* let Automatic\(\) sample"):
        draws = Slice(start=TemperedSMC(500))(KEY, TwoModes(), ORIGIN, 1000)
    assert draws.r_hat > 1.3
    assert {-1.0, 1.0} == set(np.sign(draws.values[:, 0]))


@pytest.mark.parametrize("sampler", [SingleSlice(), Slice()], ids=lambda v: type(v).__name__)
def test_other_params_and_another_n_compile_nothing(sampler):
    target = Counted()
    first = sampler(KEY, target, {"mean": np.zeros(2, np.float32)}, 300)
    traced = len(target.traces)
    assert traced > 0
    second = sampler(KEY, target, {"mean": np.ones(2, np.float32)}, 450)
    sampler(KEY, target, {"mean": np.ones(2, np.float32)}, 1)
    assert len(target.traces) == traced
    # The prior N(0, 1) pulls the mean of one a hundredth towards itself.
    assert np.abs(first.values.mean(0)).max() < 0.05
    assert np.abs(second.values.mean(0) - 0.99).max() < 0.05


@pytest.mark.parametrize("sampler", [SingleSlice(), Slice()], ids=lambda v: type(v).__name__)
def test_a_seed_fixes_the_draws(sampler):
    first, again, other = (sampler(Key((seed,)), PLANE, ORIGIN, 200).values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.filterwarnings("ignore::aptinfer.errors.SamplingWarning")
def test_a_single_chain_persists():
    sampler = SingleSlice(warmup=0)
    first = sampler(KEY, PLANE, ORIGIN, 200)
    np.testing.assert_array_equal(first.state.z[0], first.values[-1])
    second = sampler(Key((1,)), PLANE, ORIGIN, 200, state=first.state)
    np.testing.assert_array_equal(second.state.widths, first.state.widths)
    # In a target of two modes the chain goes on in the one where it was, whatever the key.
    modes = TwoModes()
    where = sampler(KEY, modes, ORIGIN, 100)
    for seed in range(2, 6):
        on = sampler(Key((seed,)), modes, ORIGIN, 100, state=where.state)
        assert np.sign(on.values[0, 0]) == np.sign(where.values[0, 0])


@pytest.mark.parametrize("sampler", [SingleSlice(), Slice()], ids=lambda v: type(v).__name__)
def test_nothing_possible_is_an_error(sampler):
    with pytest.raises(SamplingError, match=r"none of 100000 draws from the prior has a finite .* check x_o"):
        sampler(KEY, Rare(10.0), ORIGIN, 10)


def test_an_improper_density_does_not_hang():
    with pytest.warns(SamplingWarning):
        draws = SingleSlice(thin=2, tune=3, warmup=0)(KEY, Flat(), ORIGIN, 5)
    assert np.isfinite(draws.values).all()
