"""Posteriors: inside the support, normalised, reproducible; several observations; the mode; bounded time."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import aptinfer as apt
from aptinfer.posteriors import DirectPosterior
from aptinfer.posteriors.direct import ACCEPTANCE_DRAWS, FEWEST_ACCEPTED

TRAINER = apt.Trainer(epochs=60, patience=10, learning_rate=5e-3, warmup=10)
MDN = apt.MDN(components=2)
BOX = apt.box([-1, -1], [1, 1])
LOW, HIGH = BOX.support
X_O = [0.8, 0.3]  # near an edge, so that theta space loses mass


def simulate(rng, theta):
    return theta + 0.2 * rng.standard_normal(2)


def infer(
    prior: Any, *, space: Any = None, estimator: Any = MDN, loss: Any = None, **settings: Any
) -> apt.Run:
    method = apt.APT(
        loss=loss, estimator=estimator, embedding=apt.MLP((16,)), space=space or apt.Latent(), trainer=TRAINER
    )
    settings = {"rounds": 2, "simulations": 200, "progress": False} | settings
    return apt.infer(simulate, prior, X_O, method=method, **settings)


CASES = {
    "latent": {"space": apt.Latent()},
    "theta": {"space": apt.Theta()},
    "latent ensemble": {"space": apt.Latent(), "estimator": apt.Ensemble(MDN, 2)},
    "theta ensemble": {"space": apt.Theta(), "estimator": apt.Ensemble(MDN, 2)},
}


@pytest.fixture(scope="module")
def posteriors():
    return {}


@pytest.fixture(params=CASES)
def posterior(request, posteriors) -> DirectPosterior:
    if request.param not in posteriors:
        posteriors[request.param] = infer(BOX, **CASES[request.param]).posterior
    return posteriors[request.param]


@pytest.fixture
def latent(posteriors) -> DirectPosterior:
    if "latent" not in posteriors:
        posteriors["latent"] = infer(BOX, **CASES["latent"]).posterior
    return posteriors["latent"]


def integral(posterior: apt.Posterior, low, high, n=400) -> float:
    """Of the density over a box, on a grid that is dense at the box's edges."""
    z = (np.arange(n) + 0.5) / n * 14 - 7
    weight = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * 14 / n
    axes = [a + (b - a) * ndtr(z) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    volume = np.prod(high - low)
    for _ in low:
        volume = np.multiply.outer(volume, weight)
    return float((np.exp(posterior.log_prob(grid.reshape(-1, len(low)))) * volume.ravel()).sum())


def assert_inside_and_finite(posterior: apt.Posterior, n: int):
    theta = posterior.sample(n, seed=3)
    assert theta.shape == (n, posterior.frame.prior.dim)
    assert theta.dtype == np.float64
    low, high = posterior.frame.prior.support
    assert ((theta > low) & (theta < high)).all()
    assert np.isfinite(posterior.log_prob(theta)).all()


def test_samples_are_inside_and_have_a_density(posterior):
    assert_inside_and_finite(posterior, 200_000)


@pytest.mark.slow
def test_a_million_samples_are_inside_and_have_a_density(posterior):
    assert_inside_and_finite(posterior, 1_000_000)


def test_the_density_integrates_to_one(posterior):
    assert isinstance(posterior, DirectPosterior)
    rate, error = posterior.acceptance
    found = integral(posterior, LOW, HIGH)
    assert abs(found - 1) < 2e-3 + 5 * error / rate
    assert (rate, error) == (1, 0) if posterior.frame.always_inside else rate < 0.99 and 0 < error < 0.01


def test_samples_follow_the_density(posterior):
    theta = posterior.sample(20_000)
    quarter = np.array([LOW, np.array([0.6, 0.2])])
    share = ((theta > quarter[0]) & (theta < quarter[1])).all(axis=1).mean()
    expected = integral(posterior, *quarter)
    assert isinstance(posterior, DirectPosterior)
    rate, error = posterior.acceptance
    assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / 20_000) + 5 * error / rate + 2e-3


@pytest.mark.parametrize("n", [1, 10, 5000])
def test_seeds(posterior, n):
    theta = posterior.sample(n, seed=4)
    assert theta.shape == (n, 2)
    np.testing.assert_array_equal(theta, posterior.sample(n, seed=4))
    assert np.abs(theta - posterior.sample(n, seed=5)).min() > 0
    assert len(np.unique(theta, axis=0)) == n


def test_members_share_the_draws(posteriors):
    posterior = posteriors.get("latent ensemble") or infer(BOX, **CASES["latent ensemble"]).posterior
    for n in (1, 3, 10):  # also where the members cannot have equal shares
        assert posterior.sample(n).shape == (n, 2)


def test_summaries(posterior):
    assert posterior.mean().shape == posterior.std().shape == (2,)
    assert posterior.quantiles().shape == (3, 2)
    assert posterior.quantiles(0.5).shape == (2,)
    assert (np.diff(posterior.quantiles([0, 0.1, 0.5, 0.9, 1]), axis=0) > 0).all()
    theta = posterior.sample(5000, seed=9)
    error = posterior.std() / np.sqrt(5000)
    assert (np.abs(theta.mean(axis=0) - posterior.mean()) < 6 * error).all()
    assert repr(posterior) == "Posterior(theta_1, theta_2; at one observation)"


OTHERS = np.array([[0.8, 0.3], [-0.5, 0.0], [0.1, -0.7]])


def test_several_observations_are_as_one_by_one(posterior):
    several, alone = posterior.given(OTHERS), [posterior.given(x) for x in OTHERS]
    theta = several.sample(50, seed=2)
    assert theta.shape == (3, 50, 2)
    for i, one in enumerate(alone):
        np.testing.assert_array_equal(theta[i], one.sample(50, seed=2 + i))
    for asked, shape in [(theta, (3, 50)), (theta[0], (3, 50)), (theta[0, 0], (3,))]:
        log_prob = several.log_prob(asked)
        assert log_prob.shape == shape
        own = asked if asked.ndim == 3 else [asked] * 3
        np.testing.assert_array_equal(log_prob, [p.log_prob(t) for p, t in zip(alone, own, strict=True)])
    assert several.mean().shape == several.std().shape == (3, 2)
    assert several.quantiles([0.1, 0.9]).shape == (2, 3, 2)
    np.testing.assert_array_equal(several.mean()[0], alone[0].mean())
    assert repr(several) == "Posterior(theta_1, theta_2; at 3 observations)"
    assert several.batched
    assert not alone[0].batched


def test_one_observation_as_a_batch_of_one(latent):
    np.testing.assert_array_equal(latent.given([X_O]).sample(20), latent.given(X_O).sample(20)[None])


def test_log_prob_keeps_the_shape_of_theta(latent):
    theta = latent.sample(300)
    whole = latent.log_prob(theta)
    assert whole.shape == (300,)
    assert np.shape(latent.log_prob(theta[0])) == ()
    np.testing.assert_allclose(latent.log_prob(theta[:7]), whole[:7], rtol=1e-5, atol=1e-5)
    assert latent.log_prob(theta[:0]).shape == (0,)


def test_the_mode_is_at_least_as_high_as_any_draw(posterior):
    mode = posterior.map()
    assert mode.shape == (2,)
    assert posterior.log_prob(mode) >= posterior.log_prob(posterior.sample(2000)).max()
    np.testing.assert_array_equal(mode, posterior.map())


def test_the_mode_of_several_observations(latent):
    modes = latent.given(OTHERS[:2]).map()
    np.testing.assert_array_equal(modes, [latent.given(x).map() for x in OTHERS[:2]])


@pytest.fixture(scope="module", params=[apt.Latent(), apt.Theta()], ids=repr)
def linear_gaussian(request) -> apt.Posterior:
    """theta ~ N(0, I), x ~ N(theta, 0.2^2 I): the posterior is N(x / 1.04, 0.04 / 1.04 I)."""
    return infer(apt.gaussian(np.zeros(2), np.eye(2)), space=request.param).posterior


def test_the_mode_is_near_the_exact_one(linear_gaussian):
    exact, spread = np.array(X_O) / 1.04, np.sqrt(0.04 / 1.04)
    assert (np.abs(linear_gaussian.map() - exact) < 1.5 * spread).all()
    assert (np.abs(linear_gaussian.mean() - exact) < 1.5 * spread).all()
    assert linear_gaussian.acceptance[0] == 1


def test_one_parameter():
    method = apt.NPE(estimator=MDN, embedding=apt.MLP((16,)), trainer=TRAINER)
    run = apt.infer(
        lambda theta: float(theta[0] + 0.1 * np.random.standard_normal()),  # noqa: NPY002
        apt.box([0], [1], names=["rate"]),
        0.6,
        method=method,
        simulations=200,
        progress=False,
    )
    posterior = run.posterior
    assert_inside_and_finite(posterior, 10_000)
    assert abs(integral(posterior, [0.0], np.array([1.0]), n=2000) - 1) < 2e-3
    assert posterior.map().shape == posterior.mean().shape == (1,)
    assert posterior.given(0.3).sample(5).shape == (5, 1)
    assert posterior.given([[0.3], [0.4]]).sample(5).shape == (2, 5, 1)
    with pytest.raises(ValueError, match=r"theta must have shape \(1,\) or \(n, 1\)"):
        posterior.log_prob(np.linspace(0, 1, 5))


def disk() -> apt.CustomPrior:
    """Uniform on the unit disk: a prior without a bijection."""

    def sample(rng, n):
        angle, radius = 2 * np.pi * rng.random(n), np.sqrt(rng.random(n))
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    def log_prob(theta):
        return np.where((theta**2).sum(axis=1) < 1, -np.log(np.pi), -np.inf)

    return apt.CustomPrior(sample, log_prob, names=("a", "b"))


def test_a_prior_without_bijection_from_end_to_end():
    run = infer(disk(), loss=apt.Atomic(atoms=10))
    posterior = run.posterior
    assert (np.linalg.norm(run.simulations.theta, axis=1) < 1).all()
    theta = posterior.sample(20_000)
    assert (np.linalg.norm(theta, axis=1) < 1).all()
    assert np.isfinite(posterior.log_prob(theta)).all()
    assert np.isneginf(posterior.log_prob([0.8, 0.8]))
    assert isinstance(posterior, DirectPosterior)
    rate, error = posterior.acceptance
    assert run.rounds[-1].notes["acceptance"] == pytest.approx(rate, abs=0.05)
    n = 600
    axis = (np.arange(n) + 0.5) / n * 2 - 1
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = np.exp(posterior.log_prob(grid)).sum() * (2 / n) ** 2
    assert abs(total - 1) < 5e-3 + 5 * error / rate


class Elsewhere:
    """A frame whose prior contains next to nothing of what the estimator draws."""

    def __init__(self, posterior: DirectPosterior, share: float, least_accepted: float = 1e-3):
        self.least_accepted = least_accepted
        self.share, self._frame, self.asked = share, posterior.frame, 0
        self.prior, self.always_inside = self, False
        self.names, self.dim = posterior.names, posterior.frame.prior.dim

    def __getattr__(self, name):
        return getattr(self._frame, name)

    def contains(self, theta):
        self.asked += len(theta)
        return np.random.default_rng(self.asked).random(len(theta)) < self.share


@pytest.mark.parametrize("share", [0.0, 2e-4])
@pytest.mark.parametrize("n", [1000, 50_000])
def test_rejection_gives_up_in_bounded_time(latent, share, n):
    frame: Any = Elsewhere(latent, share)
    posterior = replace(latent, frame=frame)
    started = time.perf_counter()
    with pytest.raises(apt.SamplingError, match=r"only \d+ of \d+ draws .*acceptance rate .*apt.Latent\(\)"):
        posterior.sample(n)
    assert time.perf_counter() - started < 10
    assert frame.asked <= FEWEST_ACCEPTED / apt.Theta().least_accepted + n


def test_rejection_goes_on_where_it_can_succeed(latent):
    frame: Any = Elsewhere(latent, 0.01)
    assert replace(latent, frame=frame).sample(5000).shape == (5000, 2)


def test_rejection_goes_on_for_longer_where_it_is_asked_to(latent):
    """The same share is refused by default, above."""
    frame: Any = Elsewhere(latent, 2e-4, least_accepted=1e-4)
    assert replace(latent, frame=frame).sample(50).shape == (50, 2)


def test_a_density_without_mass_inside_is_refused(latent):
    frame: Any = Elsewhere(latent, 0.0)
    with pytest.raises(apt.SamplingError, match=f"only 0 of {ACCEPTANCE_DRAWS} draws .*acceptance rate 0"):
        _ = replace(latent, frame=frame).acceptance
