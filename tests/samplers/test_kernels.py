"""Laws of the kernels: exact draws stay exact. And the parts of tempering, each on its own."""

import numpy as np
import pytest
from densities import ORIGIN, Banana, Correlated, Truncated
from scipy.stats import ks_2samp

from aptinfer.keys import Key
from aptinfer.samplers import slice_kernel
from aptinfer.samplers.draws import agreement
from aptinfer.samplers.local_mixture import LocalMixture, move
from aptinfer.samplers.tempering import effective_size, next_power, resampled

pytestmark = pytest.mark.usefixtures("strict")

CHAINS = 2000
KEY = Key((0,))


def directions(z: np.ndarray) -> np.ndarray:
    """Coordinates, and two mixtures of them that see how they depend on each other."""
    z = z.astype(np.float64)
    return np.stack([z[:, 0], z[:, 1], z[:, 0] * z[:, 1], z[:, 1] - z[:, 0] ** 2], axis=1)


def smallest_p(z: np.ndarray, target) -> float:
    """Kolmogorov and Smirnov's p-value for the worst of four functions, against exact draws."""
    exact = directions(target.exact(np.random.default_rng(5), 50_000, ORIGIN))
    return min(ks_2samp(a, b).pvalue for a, b in zip(directions(z).T, exact.T, strict=True))


def exact_starts(target) -> np.ndarray:
    return target.exact(np.random.default_rng(1), CHAINS, ORIGIN).astype(np.float32)


@pytest.mark.parametrize("target", [Banana(), Truncated()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("width", [0.05, 3.0])
def test_slices_leave_the_target_invariant(target, width):
    z = exact_starts(target)
    start = slice_kernel.Chains(z, np.full_like(z, width))
    end, records, evaluations = slice_kernel.advance(KEY, target, ORIGIN, start, sweeps=2, records=3)
    assert smallest_p(end.z, target) > 1e-3
    assert records.shape == (CHAINS, 3, 2)
    np.testing.assert_array_equal(records[:, -1], end.z)
    assert np.mean(end.z == z) < 0.01
    # Two ends and one point inside at least, for every coordinate of every sweep.
    assert evaluations >= 3 * 2 * 6 * CHAINS


def test_the_law_sees_a_kernel_that_is_not_invariant(monkeypatch):
    # As if the density were raised to the power 1.2.
    target = Truncated()
    z = exact_starts(target)

    def raised(target, params, z):
        return 1.2 * log_density(target, params, z)

    log_density = slice_kernel.log_density
    monkeypatch.setattr(slice_kernel, "log_density", raised)
    start = slice_kernel.Chains(z, np.ones_like(z))
    # Four sweeps per record have not been compiled yet, for this target and number of chains.
    end, _, _ = slice_kernel.advance(KEY, target, ORIGIN, start, sweeps=4, records=3)
    assert smallest_p(end.z, target) < 1e-3


@pytest.mark.parametrize("limit", [1, 2])
def test_few_expansions_leave_the_target_invariant(monkeypatch, limit):
    monkeypatch.setattr(slice_kernel, "EXPANSIONS", limit)
    z = exact_starts(Banana())
    start = slice_kernel.Chains(z, np.full_like(z, 0.5))
    end, _, _ = slice_kernel.advance(KEY, Banana(), ORIGIN, start, sweeps=10 + limit, records=1)
    assert smallest_p(end.z, Banana()) > 1e-3


def test_widths_are_tuned_to_the_target():
    z = np.zeros((50, 2), np.float32)
    narrow, wide = (
        slice_kernel.tuned(KEY, Correlated(2, rho), ORIGIN, z, tune=30, sweeps=10).widths.mean()
        for rho in (0.999, 0.0)
    )
    # Conditional standard deviations are √0.1 and √(0.1 · 0.002); brackets end a few of them wide.
    assert 2 < wide / np.sqrt(0.1) < 10
    assert 2 < narrow / np.sqrt(0.1 * 0.002) < 10


@pytest.mark.parametrize("target", [Banana(), Truncated()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_mixture_moves_leave_the_target_invariant(target, shift):
    # Also by a mixture that was fitted to particles in the wrong place: it costs acceptance, never truth.
    z = exact_starts(target)
    others = (0.7 * target.exact(np.random.default_rng(2), CHAINS, ORIGIN) + shift).astype(np.float32)
    mixture = LocalMixture.crossed(np.random.default_rng(3), others, others)
    walkers = move(target, ORIGIN, KEY.words(), z, mixture, np.float32(1), np.int32(20))
    assert smallest_p(np.asarray(walkers.z), target) > 1e-3
    assert np.mean(np.asarray(walkers.accepted)) > 2


def test_mixture_moves_know_the_power():
    # At power zero the target is the prior, in the box of which draws are uniform.
    target = Truncated()
    z = target.draw_prior(np.random.default_rng(1), CHAINS).astype(np.float32)
    mixture = LocalMixture.crossed(np.random.default_rng(3), z, z)
    walkers = move(target, ORIGIN, KEY.words(), z, mixture, np.float32(0), np.int32(20))
    uniform = target.draw_prior(np.random.default_rng(4), 50_000)
    assert min(ks_2samp(np.asarray(walkers.z)[:, i], uniform[:, i]).pvalue for i in (0, 1)) > 1e-3
    assert smallest_p(np.asarray(walkers.z), target) < 1e-6


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


def autoregressive(chains: int, records: int, memory: float) -> np.ndarray:
    """Stationary chains of one coordinate with correlation `memory` between neighbours."""
    rng = np.random.default_rng(0)
    z = [rng.normal(size=chains)]
    for _ in range(records - 1):
        z.append(memory * z[-1] + np.sqrt(1 - memory**2) * rng.normal(size=chains))
    return np.stack(z, axis=1)[..., None]


@pytest.mark.parametrize(("chains", "records"), [(4, 2000), (400, 40)])
@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_effective_size_of_chains(chains, records, memory):
    _, effective = agreement(autoregressive(chains, records, memory))
    n = chains * records
    # Of a mean over `records` neighbours; the estimate itself is good to about a tenth.
    lags = np.arange(1, records)
    assert effective == pytest.approx(n / (1 + 2 * np.sum((1 - lags / records) * memory**lags)), rel=0.25)


def test_r_hat_of_chains_that_agree_and_that_do_not():
    chains = autoregressive(100, 10, 0.0)
    assert agreement(chains)[0] < 1.02
    assert agreement(chains + np.repeat([0.0, 3.0], 50)[:, None, None])[0] > 1.5
    # Equal means, unequal spreads: only the folded ranks see it.
    assert agreement(chains * np.repeat([0.2, 3.0], 50)[:, None, None])[0] > 1.2
    assert np.isnan(agreement(chains[:, :3])[0])
