"""What all samplers share: settings, targets, and what tells whether draws can be trusted."""

import jax.numpy as jnp
import numpy as np
import pytest
from densities import ORIGIN, Truncated

from aptinfer.errors import SamplingWarning
from aptinfer.keys import Key
from aptinfer.samplers import NUTS, Automatic, Resampled, Sampler, SingleSlice, Slice, Target, TemperedSMC
from aptinfer.samplers.draws import Draws, agreement, checked


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


@pytest.mark.parametrize(
    ("r_hat", "effective", "n", "complaint"),
    [
        (1.2, 5000, 1000, "chains have not mixed: R-hat is 1.20, above 1.05. Do this"),
        (np.nan, 40, 1000, "1000 draws are worth only 40 independent ones, less than 100. Do this"),
        (np.nan, np.nan, 1000, "worth only nan"),
        (1.01, 40, 100, None),  # more than a quarter of what was wanted
        (np.nan, 1000, 1000, None),  # particles have no R-hat
    ],
)
def test_draws_that_cannot_be_trusted_are_reported(r_hat, effective, n, complaint):
    draws = Draws(np.zeros((n, 1)), r_hat, effective)
    if complaint is None:
        assert checked(draws, "Do this.") is draws
        return
    with pytest.warns(SamplingWarning, match=complaint):
        checked(draws, "Do this.")


def test_a_prior_needs_its_draws():
    with pytest.raises(TypeError, match="must define both log_prior and draw_prior"):

        class Halfway(Target):
            def log_prior(self, z):
                return jnp.float32(0)

    class Wrong(Truncated):
        def draw_prior(self, rng, n):
            return np.zeros((n, 3))

    with pytest.raises(ValueError, match=r"must return shape \(1000, 2\); got \(1000, 3\)"):
        Resampled()(Key((0,)), Wrong(), ORIGIN, 10)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Automatic(particles=50), "particles must be a whole number of at least 100"),
        (lambda: Automatic(particles=501), "particles must be even"),
        (lambda: TemperedSMC(particles=-1), "particles must be a whole number"),
        (lambda: SingleSlice(thin=0), "thin must be a whole number"),
        (lambda: Slice(chains=1), "chains must be a whole number of at least 2"),
        (lambda: NUTS(warmup=3), "warmup must be a whole number of at least 20"),
        (lambda: Resampled(candidates=0), "candidates must be a whole number"),
    ],
)
def test_settings_are_checked(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_mistyped_setting_is_answered_with_the_nearest():
    with pytest.raises(TypeError, match="Did you mean 'particles'"):
        Automatic(particle=1000)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("sampler", [Automatic(), TemperedSMC(), SingleSlice(), Slice(), NUTS(), Resampled()])
def test_settings_are_samplers(sampler):
    assert isinstance(sampler, Sampler)
    assert hash(sampler) == hash(type(sampler)())
