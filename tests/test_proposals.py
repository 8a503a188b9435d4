"""Proposals: what they draw, their densities over the prior, and which loss takes which."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy import stats

import aptinfer as apt
from aptinfer.estimators.mog import GaussianTerms, HostMixture, density_ratio
from aptinfer.keys import Key
from aptinfer.posteriors import DirectPosterior, Posterior
from aptinfer.proposals.truncated import FromRegion, rejected, split
from aptinfer.protocols import Draws
from aptinfer.spaces import LatentFrame, StandardisedFrame

DIM = 3
FRAME = LatentFrame(apt.box([-1] * DIM, [1] * DIM), np.float64)
MEAN, WIDTH = np.array([0.5, -0.3, 0.8]), 0.4
TRAINER = apt.Trainer(epochs=40, patience=10, learning_rate=5e-3, warmup=10)


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian(Posterior):
    """A posterior N(mean, width^2 I) in latent space."""

    mean: np.ndarray = field(default_factory=lambda: MEAN)  # pyright: ignore
    width: float = WIDTH
    frame = FRAME
    observation, event = np.zeros(1), (1,)

    def draw(self, key, n):
        z = self.mean + self.width * key.generator().standard_normal((n, DIM))
        return z, self.frame.to_theta(z)

    def log_prob_inside(self, values):
        return stats.norm.logpdf(values, self.mean, self.width).sum(axis=1)

    def at(self, observation):
        raise NotImplementedError


def assert_share(found, n, exact):
    assert abs(found - exact) < 5 * np.sqrt(exact * (1 - exact) / n)


def ball(posterior: Gaussian, outside: float) -> tuple[float, float]:
    """Squared radius of the highest-density region, and the prior's mass in it."""
    radius = posterior.width**2 * stats.chi2(DIM).ppf(1 - outside)
    return radius, float(stats.ncx2(DIM, np.sum(posterior.mean**2)).cdf(radius))


def assert_uniform_under_the_prior(z, posterior, outside):
    """Distances from the centre follow the prior, cut at the region's edge."""
    radius, mass = ball(posterior, outside)
    distance = np.sum((z - posterior.mean) ** 2, axis=1)
    assert distance.max() <= radius * 1.1  # the cut is a quantile of draws
    law = stats.ncx2(DIM, np.sum(posterior.mean**2))
    middle = law.ppf(mass / 2)
    assert_share((distance < middle).mean(), len(z) / 4, 0.5)  # draws may depend on each other a little


def test_truncation_draws_the_prior_inside_the_region():
    posterior = Gaussian()
    proposal = FromRegion(posterior, 0.01, source=1)
    drawn = proposal.draw(Key((3,)), 2000)
    assert_uniform_under_the_prior(drawn.value, posterior, 0.01)
    mass = ball(posterior, 0.01)[1]
    assert abs(proposal.log_mass - np.log(mass)) < 0.15
    values = np.random.default_rng(0).standard_normal((20_000, DIM))
    ratio = np.exp(proposal.log_ratio(values, values))
    assert set(np.unique(ratio)) == {0.0, np.exp(-proposal.log_mass)}
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio)) + 0.1  # P(T) is known to 3 %


def test_splitting_reaches_regions_that_rejection_cannot():
    posterior = Gaussian(mean=np.array([2.0, -2.0, 1.0]), width=0.05)
    cut = float(stats.norm.logpdf(0, 0, 0.05) * DIM - 0.5 * stats.chi2(DIM).ppf(0.99))
    mass = ball(posterior, 0.01)[1]
    assert mass < 1e-4
    with pytest.raises(apt.SamplingError, match=r"of \d+ prior draws lie in the region.*apt.Latent"):
        rejected(Key((0,)), FRAME, posterior.log_prob_inside, cut, 1000)
    found = [split(Key((seed,)), DIM, posterior.log_prob_inside, cut, 1000) for seed in range(4)]
    logs = np.log([region.mass for region in found]) - np.log(mass)
    assert abs(logs.mean()) < 4 * max(logs.std(), 0.1) / 2
    assert_uniform_under_the_prior(found[0].value, posterior, 0.01)


def test_truncation_takes_splitting_where_rejection_gives_up():
    posterior = Gaussian(mean=np.array([2.0, -2.0, 1.0]), width=0.05)
    drawn = apt.Truncated(0.01).after(posterior, 4).draw(Key((0,)), 500)
    assert drawn.value.shape == (500, DIM)
    assert (drawn.source == 4).all()
    highest = posterior.log_prob_inside(posterior.mean[None])
    assert (posterior.log_prob_inside(drawn.value) > highest - 20).all()


@pytest.mark.parametrize(
    "choice", [apt.LastPosterior(), apt.Defensive(0.3), apt.Defensive(0.5, apt.Truncated(0.01))]
)
def test_densities_over_the_prior_average_to_one(choice):
    values = np.random.default_rng(1).standard_normal((50_000, DIM))
    ratio = np.exp(choice.after(Gaussian(), 1).log_ratio(values, values))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio)) + 0.1


def test_a_share_of_defensive_draws_is_the_prior_s():
    drawn = apt.Defensive(0.3).after(Gaussian(width=0.01), 2).draw(Key((0,)), 4000)
    near = (np.abs(drawn.value - MEAN) < 0.08).all(axis=1)
    assert_share(near.mean(), 4000, 0.7)
    np.testing.assert_allclose(FRAME.to_theta(drawn.value), drawn.theta, atol=1e-6)


def test_closed_forms_take_the_prior_as_one_more_component():
    rng = np.random.default_rng(2)
    prior = GaussianTerms(np.zeros(2), np.eye(2))
    covariances = np.array([0.3 * np.eye(2), 0.1 * np.eye(2)])
    last = HostMixture(np.array([0.4, 0.6]), rng.normal(size=(2, 2)), covariances)
    mixed = apt.Defensive(0.25).reshaped(last, prior, 1)
    value = rng.normal(size=(7, 2))

    def density(mixture):
        parts = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
        return sum(w * stats.multivariate_normal(m, c).pdf(value) for w, m, c in parts)

    expected = 0.25 * stats.norm.pdf(value).prod(axis=1) + 0.75 * density(last)
    np.testing.assert_allclose(density(mixed), expected)
    assert np.isfinite(density_ratio(mixed, prior).log_weights).all()


@pytest.fixture(scope="module")
def trained():
    """Posteriors of one Gaussian, alone and as an ensemble."""

    def simulator(rng, theta):
        return theta + 0.5 * rng.standard_normal(2)

    def posterior(estimator):
        method = apt.NPE(estimator=estimator, trainer=TRAINER)
        prior = apt.gaussian(np.zeros(2), np.eye(2))
        run = apt.infer(simulator, prior, [0.8, -0.4], method=method, simulations=400, progress=False)
        assert isinstance(run.posterior, DirectPosterior)
        return run.posterior

    return posterior(apt.MDN(1)), posterior(apt.Ensemble(apt.MDN(1), 3))


def test_tempered_particles_meet_the_closed_form(trained):
    from aptinfer.proposals.mixtures import mixtures_at

    single, prior = trained[0], GaussianTerms(np.zeros(2), np.eye(2))
    for power, number in ((0.5, 1), (2.0, 3), ((0.5, 2.0), 2)):
        choice = apt.Tempered(power)
        drawn = choice.after(single, number).draw(Key((0,)), 2000).value
        known = choice.reshaped(mixtures_at(single, single=True)[0], prior, number)
        root = np.linalg.inv(np.linalg.cholesky(known.covariances[0]))
        whitened = (drawn - known.means[0]) @ root.T
        assert np.abs(whitened.mean(axis=0)).max() < 5 / np.sqrt(500)  # particles of common descent
        assert np.abs(np.cov(whitened.T) - np.eye(2)).max() < 5 * np.sqrt(2 / 500)


def test_every_round_may_have_a_power_of_its_own_and_the_last_one_stays():
    prior = GaussianTerms(np.zeros(2), np.eye(2))
    # Its precision is 10, nine more than the prior's.
    last = HostMixture(np.ones(1), np.ones((1, 2)), 0.1 * np.eye(2)[None])
    choice = apt.Tempered((0.01, 0.1, 1))
    precisions = [1 / choice.reshaped(last, prior, number).covariances[0, 0, 0] for number in (1, 2, 3, 4, 9)]
    np.testing.assert_allclose(precisions, [1.09, 1.9, 10, 10, 10])


def test_active_draws_are_where_members_disagree(trained):
    _, members = trained
    drawn = apt.Active(candidates=10).after(members, 1).draw(Key((0,)), 1000)
    typical = members.draw(Key((1,)), 1000)[0]
    spread = [members.members_log_prob(value).std(axis=0) for value in (drawn.value, typical)]
    error = np.sqrt(sum(s.var() / len(s) for s in spread))
    assert spread[0].mean() - spread[1].mean() > 5 * error
    assert len(np.unique(drawn.value, axis=0)) == 1000


class Corner:
    """A user's proposal: uniform in the corner of the box."""

    def sample(self, rng, n):
        return rng.uniform(0, 1, (n, DIM))


def test_a_user_s_object_is_a_proposal():
    from aptinfer.proposals import as_choice

    for given in (Corner(), lambda posterior: Corner()):
        drawn = as_choice(given).after(Gaussian(), 3).draw(Key((0,)), 50)
        assert (drawn.theta > 0).all()
        np.testing.assert_allclose(FRAME.to_theta(drawn.value), drawn.theta, atol=1e-5)


class Wrong:
    def __init__(self, theta):
        self.theta = theta

    def sample(self, rng, n):
        return self.theta


@pytest.mark.parametrize(
    ("theta", "complaint"),
    [
        (np.zeros((4, DIM)), r"must return theta of shape \(5, 3\).*got \(4, 3\)"),
        (np.full((5, DIM), np.nan), "theta of the proposal must be finite"),
        (np.full((5, DIM), 2.0), "5 parameters outside the prior's support"),
    ],
)
def test_bad_draws_of_a_user_are_refused(theta, complaint):
    from aptinfer.proposals import as_choice

    with pytest.raises(ValueError, match=complaint):
        as_choice(Wrong(theta)).after(Gaussian(), 1).draw(Key((0,)), 5)


def test_which_proposal_goes_with_which_loss():
    with pytest.raises(ValueError, match=r"SNPEB weights every row by the density.*Tempered.*apt.APT"):
        apt.SNPEB(proposal=apt.Tempered())
    with pytest.raises(ValueError, match=r"SNPEB weights every row by the density.*apt.Truncated"):
        apt.SNPEB(proposal=Corner())
    with pytest.raises(ValueError, match=r"TSNPE weights every row"):
        apt.TSNPE(proposal=apt.Active())
    with pytest.raises(TypeError, match=r"proposal must be a choice such as apt.LastPosterior\(\)"):
        apt.APT(proposal=apt.Truncated)
    frame = FRAME
    closed = apt.APT(estimator=apt.MDN(4), proposal=apt.Truncated())
    with pytest.raises(ValueError, match=r"Truncated.* is no mixture of Gaussians.*apt.Atomic"):
        closed.settled(frame)
    with pytest.raises(ValueError, match=r"of a mixture of 4 Gaussians is no mixture"):
        apt.APT(estimator=apt.MDN(4), proposal=apt.Tempered()).settled(frame)
    with pytest.raises(ValueError, match=r"apt.Ensemble\(...\), proposal=apt.Active"):
        apt.APT(proposal=apt.Defensive(proposal=apt.Active())).settled(frame)
    with pytest.raises(ValueError, match="needs a posterior with a density in latent space"):
        apt.APT(proposal=apt.Tempered()).settled(StandardisedFrame(frame.prior, np.float64))
    for choice in (apt.LastPosterior(), apt.Defensive()):
        apt.APT(estimator=apt.MDN(4), proposal=choice).settled(frame)
        apt.SNPEB(proposal=choice).settled(frame)
    apt.APT(estimator=apt.MDN(1), proposal=apt.Tempered()).settled(frame)
    for choice in (apt.Tempered(), apt.Active(), apt.Truncated(), Corner()):
        apt.APT(estimator=apt.Ensemble(apt.NSF(), 2), proposal=choice).settled(frame)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: apt.Defensive(1.0), "Defensive share must be a share between 0 and 1, got 1.0"),
        (lambda: apt.Defensive(proposal=3), "proposal must be a choice"),
        (lambda: apt.TSNPE(all_rows="no"), "TSNPE all_rows must be True or False, got 'no'"),  # pyright: ignore[reportArgumentType]
        (lambda: apt.Truncated(0.7), "Truncated outside must be a share below 0.5"),
        (lambda: apt.Tempered(-1), "Tempered power must be a finite number above 0"),
        (lambda: apt.Tempered(()), "Tempered power must be a number, or a tuple with one for each round"),
        (lambda: apt.Tempered((0.1, -1)), "Tempered power must be a finite number above 0"),
        (lambda: apt.Active(1), "Active candidates must be a whole number of at least 2"),
        (lambda: apt.Active().after(Gaussian(), 1), r"apt.Ensemble\(...\), proposal=apt.Active"),
        (lambda: apt.Tempered().after(Gaussian(), 1), "needs a posterior with a density in latent space"),
    ],
)
def test_bad_settings_are_refused(build, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        build()


@dataclass(frozen=True)
class HalfSpace:
    """The prior on one side of a plane: z_1 above `edge`, or below it."""

    edge: float
    above: bool
    source: int

    def inside(self, value):
        return (value[:, 0] > self.edge) == self.above

    def draw(self, key, n):
        z = key.generator().standard_normal((20 * n, 2)).astype(np.float32)
        z = z[self.inside(z)][:n]
        return Draws(z, z.astype(float), np.full(n, self.source, np.int32))

    def log_ratio(self, value, theta):
        mass = stats.norm.sf(self.edge) if self.above else stats.norm.cdf(self.edge)
        return np.where(self.inside(value), -np.log(mass), -np.inf)


class Apart(apt.Truncated):
    """Regions that exclude each other, and leave out most of the posterior between them."""

    def after(self, posterior, number):
        return HalfSpace(0.9, True, number) if number % 2 else HalfSpace(0.3, False, number)


class Crossed(apt.Truncated):
    """Regions that hold the posterior, none inside the other."""

    def after(self, posterior, number):
        return HalfSpace(-0.9, True, number) if number % 2 else HalfSpace(2.1, False, number)


CASES = {
    "regions that miss the posterior": (apt.TSNPE(proposal=Apart(), all_rows=True), True),
    "the same, without weights": (apt.TSNPE(proposal=Apart(), all_rows=True), False),
    "the newest region": (apt.TSNPE(proposal=Crossed()), True),
    "the same, and it misses the posterior": (apt.TSNPE(proposal=Apart()), False),
}


@pytest.mark.parametrize("name", CASES)
def test_truncated_regions_need_not_be_nested(name, monkeypatch):
    noise, x_o = 0.4, np.array([0.7, -0.3])

    def simulator(rng, theta):
        return theta + noise * rng.standard_normal(2)

    method, right = CASES[name]
    if "without weights" in name:
        monkeypatch.setattr(apt.TSNPE, "weights", lambda self, task, _: np.ones(len(task.simulations.done)))
    method = replace(method, estimator=apt.MDN(2), trainer=apt.Trainer(learning_rate=3e-3))
    prior = apt.gaussian(np.zeros(2), np.eye(2))
    run = apt.infer(simulator, prior, x_o, method=method, rounds=3, simulations=800, progress=False)
    theta = run.posterior.sample(20_000, seed=1)
    width = noise / np.sqrt(1 + noise**2)
    mean = np.abs(theta.mean(axis=0) - x_o / (1 + noise**2)).max() / width
    spread = np.abs(theta.std(axis=0) / width - 1).max()
    # Three coefficients of x, from the effective rows, of which early stopping loses half.
    bound = 3 * np.sqrt(2 * 3 / run.rounds[-1].notes["effective_rows"])
    assert (mean < bound and spread < bound) == right
