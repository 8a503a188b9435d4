"""Every sampler against densities of which exact draws are known."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
import pytest
from densities import ORIGIN, Banana, Correlated, Truncated, TwoModes, assert_exact

from aptinfer.errors import SamplingError, SamplingWarning
from aptinfer.keys import Key
from aptinfer.samplers import (
    NUTS,
    Automatic,
    Draws,
    Resampled,
    Sampler,
    SingleSlice,
    Slice,
    Target,
    TemperedSMC,
)

pytestmark = pytest.mark.usefixtures("strict")

KEY = Key((0,))
PLANE, SPACE = Correlated(2, 0.9), Correlated(10, 0.9)
SMALL = Automatic(particles=500)
CASES = [
    (SMALL, PLANE),
    (SMALL, SPACE),
    (SMALL, Banana()),
    (SMALL, Truncated()),
    (SMALL, TwoModes()),
    (TemperedSMC(500), PLANE),
    (TemperedSMC(500), SPACE),
    (TemperedSMC(500), Banana()),
    (TemperedSMC(500), Truncated()),
    (TemperedSMC(500), TwoModes()),
    (SingleSlice(), PLANE),
    (SingleSlice(), Truncated()),
    (Slice(), PLANE),
    (Slice(thin=40), Banana()),
    (Slice(), Truncated()),
]


@pytest.mark.parametrize(
    ("sampler", "target"), CASES, ids=lambda v: type(v).__name__ + str(getattr(v, "dim", ""))
)
def test_draws_follow_the_density(sampler, target):
    mean = np.linspace(-1, 1, target.dim, dtype=np.float32)
    draws = sampler(KEY, target, mean, 2000)
    assert draws.values.shape == (2000, target.dim)
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


def test_few_effective_draws_are_reported():
    steep = Correlated(2, 0.9999)
    with pytest.warns(
        SamplingWarning, match=r"1000 draws are worth only \d+ independent ones, less than 100"
    ):
        SingleSlice(thin=1, warmup=0)(KEY, steep, ORIGIN, 1000)


def test_resampled_prior_draws():
    assert_exact(Resampled(20_000)(KEY, Truncated(), ORIGIN, 1000), Truncated())
    with pytest.warns(SamplingWarning, match="much narrower than the prior"):
        Resampled(1000)(KEY, TwoModes(), ORIGIN, 1000)


@dataclass(frozen=True, eq=False)
class Counted(Target):
    """N(mean, 0.1²), counting how often it is traced; no other instance shares its programs."""

    traces: list = field(default_factory=list)
    dim: int = 2

    def log_likelihood(self, params, z):
        self.traces.append(1)
        return -50.0 * jnp.sum((z - params["mean"]) ** 2)


@pytest.mark.parametrize(
    "sampler",
    [SMALL, TemperedSMC(500), SingleSlice(), Slice()],
    ids=lambda v: type(v).__name__,
)
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


@pytest.mark.parametrize(
    "sampler", [SMALL, TemperedSMC(500), SingleSlice(), Slice()], ids=lambda v: type(v).__name__
)
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


@dataclass(frozen=True)
class Rare(Target):
    """Possible on the share of the prior where z_1 exceeds `above`; NaN elsewhere."""

    above: float
    dim: int = 2

    def log_likelihood(self, params, z):
        return jnp.where(z[0] > self.above, -0.5 * z[1] ** 2, jnp.nan)


@pytest.mark.parametrize("sampler", [SMALL, SingleSlice(), Slice()], ids=lambda v: type(v).__name__)
def test_nothing_possible_is_an_error(sampler):
    with pytest.raises(SamplingError, match=r"none of 100000 draws from the prior has a finite .* check x_o"):
        sampler(KEY, Rare(10.0), ORIGIN, 10)


def test_a_small_possible_region_is_enough():
    draws = SMALL(KEY, Rare(3.0), ORIGIN, 4000)  # one prior draw in 740
    assert draws.values[:, 0].min() > 3
    # The mean of N(0, 1) beyond 3 is φ(3) / (1 - Φ(3)) = 3.2831, with standard deviation 0.2659.
    error = 5 * 0.2659 / np.sqrt(min(draws.effective, 4000))
    assert abs(draws.values[:, 0].mean() - 3.2831) < error


@dataclass(frozen=True)
class Flat(Target):
    """Improper: constant wherever it is looked at."""

    dim: int = 2

    def log_likelihood(self, params, z):
        return 0.5 * jnp.sum(z**2)


def test_an_improper_density_does_not_hang():
    with pytest.warns(SamplingWarning):
        draws = SingleSlice(thin=2, tune=3, warmup=0)(KEY, Flat(), ORIGIN, 5)
    assert np.isfinite(draws.values).all()


def test_a_prior_needs_its_draws():
    with pytest.raises(TypeError, match="must define both log_prior and draw_prior"):

        class Halfway(Target):
            def log_prior(self, z):
                return jnp.float32(0)

    class Wrong(Truncated):
        def draw_prior(self, rng, n):
            return np.zeros((n, 3))

    with pytest.raises(ValueError, match=r"must return shape \(1000, 2\); got \(1000, 3\)"):
        SMALL(KEY, Wrong(), ORIGIN, 10)


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
    assert Draws.__doc__
