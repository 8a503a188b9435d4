"""Tempered particles, the moves that know them, and the default sampler."""

import numpy as np
import pytest
from densities import (
    ORIGIN,
    Banana,
    Correlated,
    Counted,
    Rare,
    Truncated,
    TwoModes,
    assert_exact,
    p_value,
    smallest_p,
)

from aptinfer.errors import SamplingError, SamplingWarning
from aptinfer.keys import Key
from aptinfer.samplers import Automatic, Resampled, TemperedSMC
from aptinfer.samplers.local_mixture import LocalMixture, walk
from aptinfer.samplers.tempering import effective_size, next_power, resampled

pytestmark = pytest.mark.usefixtures("strict")

KEY = Key((0,))
PLANE = Correlated(2, 0.9)
SMALL = Automatic(particles=500)  # as many as TemperedSMC(500) has, so that they share compiled programs


def after_moves(target, others: np.ndarray, power: float) -> np.ndarray:
    """Exact draws of the target at that power after twenty moves, by the mixture of `others`."""
    rng = np.random.default_rng(1)
    mixture = LocalMixture.crossed(np.random.default_rng(3), others, others)
    ends = []
    for batch in range(4):
        z = target.exact(rng, 500, ORIGIN) if power else target.draw_prior(rng, 500)
        walkers = walk(KEY.child(batch), target, ORIGIN, z.astype(np.float32), mixture, power, 20)
        assert walkers.accepted > 2
        ends.append(walkers.z)
    return np.concatenate(ends)


@pytest.mark.parametrize("target", [Banana(), Truncated()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_mixture_moves_leave_the_target_invariant(target, shift):
    # Also by a mixture that was fitted to particles in the wrong place: it costs acceptance, never truth.
    others = (0.7 * target.exact(np.random.default_rng(2), 500, ORIGIN) + shift).astype(np.float32)
    assert smallest_p(after_moves(target, others, 1.0), target) > 1e-3


def test_mixture_moves_know_the_power():
    # At power zero the target is the prior, which is uniform in the box.
    target = Truncated()
    uniform = target.draw_prior(np.random.default_rng(4), 50_000)
    z = after_moves(target, uniform[:500].astype(np.float32), 0.0)
    assert min(p_value(z[:, i], uniform[:, i]) for i in (0, 1)) > 1e-3
    assert smallest_p(z, target) < 1e-6


def test_the_next_power_leaves_half_effective():
    log_l = np.random.default_rng(0).normal(0, 50, 1000)
    power, weights = next_power(0.1, log_l)
    assert 0.1 < power < 1
    assert 1 / np.sum(weights**2) == pytest.approx(500, rel=1e-3)
    assert next_power(0.0, log_l / 1000)[0] == 1.0
    # Log-likelihoods far beyond the range of exp, as an untrained network gives them.
    steep, weights = next_power(0.0, 1e12 * log_l)
    assert 0 < steep < 1e-10
    assert 1 / np.sum(weights**2) == pytest.approx(500, rel=1e-3)


def test_resampling_keeps_expected_counts_and_halves():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(100))
    chosen = resampled(rng, weights)
    for half in (np.arange(50), np.arange(50, 100)):
        counts = np.bincount(chosen[half] - half[0], minlength=50)
        expected = 50 * weights[half] / weights[half].sum()
        assert np.all(np.abs(counts - expected) < 1)


def test_families_tell_the_effective_size():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 3))
    assert effective_size(z, np.arange(2000)) == pytest.approx(2000, rel=0.1)
    # Ten copies of each are worth a tenth; ten descendants that have forgotten each other, everything.
    assert effective_size(np.repeat(z, 10, axis=0), np.repeat(np.arange(2000), 10)) < 2300
    assert effective_size(z, np.arange(2000) // 10) > 1400
    assert effective_size(np.ones((100, 1)), np.arange(100)) != effective_size(z, np.arange(2000))


@pytest.mark.parametrize(
    "target",
    [PLANE, Correlated(10, 0.9), Banana(), Truncated(), TwoModes()],
    ids=lambda v: f"{type(v).__name__}-{v.dim}",
)
@pytest.mark.parametrize("sampler", [SMALL, TemperedSMC(500)], ids=lambda v: type(v).__name__)
def test_draws_follow_the_density(sampler, target):
    mean = np.linspace(-1, 1, target.dim, dtype=np.float32)
    draws = sampler(KEY, target, mean, 2000)
    assert draws.values.shape == (2000, target.dim)
    assert draws.values.dtype == np.float32
    assert draws.effective > 1000
    assert_exact(draws, target, mean)


@pytest.mark.parametrize("sampler", [SMALL, TemperedSMC(500)], ids=lambda v: type(v).__name__)
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


@pytest.mark.parametrize("n", [1, 7, 100_000])
def test_any_number_of_draws(n):
    draws = SMALL(KEY, PLANE, ORIGIN, n)
    assert draws.values.shape == (n, 2)
    assert np.isfinite(draws.values).all()


@pytest.mark.parametrize("sampler", [SMALL, TemperedSMC(500)], ids=lambda v: type(v).__name__)
def test_a_seed_fixes_the_draws(sampler):
    first, again, other = (sampler(Key((seed,)), PLANE, ORIGIN, 200).values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("sampler", [SMALL, TemperedSMC(500)], ids=lambda v: type(v).__name__)
def test_nothing_possible_is_an_error(sampler):
    with pytest.raises(SamplingError, match=r"none of 100000 draws from the prior has a finite .* check x_o"):
        sampler(KEY, Rare(10.0), ORIGIN, 10)


def test_a_small_possible_region_is_enough():
    draws = SMALL(KEY, Rare(3.0), ORIGIN, 4000)  # one prior draw in 740
    assert draws.values[:, 0].min() > 3
    # The mean of N(0, 1) beyond 3 is φ(3) / (1 - Φ(3)) = 3.2831, with standard deviation 0.2659.
    error = 5 * 0.2659 / np.sqrt(min(draws.effective, 4000))
    assert abs(draws.values[:, 0].mean() - 3.2831) < error


def test_resampled_prior_draws():
    assert_exact(Resampled(20_000)(KEY, Truncated(), ORIGIN, 1000), Truncated())
    with pytest.warns(SamplingWarning, match="much narrower than the prior"):
        Resampled(1000)(KEY, TwoModes(), ORIGIN, 1000)
