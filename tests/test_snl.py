"""SNL and SNRE: the posterior is the learned likelihood times the prior, whatever the coordinates."""

import itertools
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import aptinfer as apt
from aptinfer.methods import snl as snl_module
from aptinfer.methods.losses import MaximumLikelihood
from aptinfer.methods.snl import NeuralLikelihood
from aptinfer.posteriors import SampledPosterior

TRAINER = apt.Trainer(epochs=40, patience=10, learning_rate=5e-3, warmup=10)
X_O = np.array([0.8, 0.3])  # near an edge of the box
BOX = apt.box([-1, -1], [1, 1])
SAMPLER = apt.samplers.Automatic(particles=200)
SMALL = {"embedding": apt.MLP((16,)), "trainer": TRAINER, "sampler": SAMPLER}


def triangle() -> apt.CustomPrior:
    """Density 2 on the triangle below the diagonal of the unit square; by sample and log_prob alone."""

    def sample(rng, n):
        return np.sort(rng.uniform(size=(n, 2)))[:, ::-1]

    def log_prob(theta):
        inside = (theta[:, 0] < 1) & (theta[:, 1] > 0) & (theta[:, 1] < theta[:, 0])
        return np.where(inside, np.log(2), -np.inf)

    return apt.CustomPrior(sample, log_prob, ["a", "b"])


def simulate(rng, theta):
    return theta + 0.3 * rng.standard_normal(2)


def infer(method: Any, prior: Any = BOX, **settings) -> apt.Run:
    settings = {"rounds": 1, "simulations": 300, "progress": False} | settings
    return apt.infer(simulate, prior, X_O, method=method, **settings)


CASES = {
    "latent": (apt.SNL(estimator=apt.Ensemble(apt.MDN(2), 2), **SMALL), BOX),
    "theta": (apt.SNL(estimator=apt.MDN(2), space=apt.Theta(), **SMALL), BOX),
    "custom": (apt.SNL(estimator=apt.MDN(2), **SMALL), triangle()),
    "ratio": (apt.SNRE(estimator=apt.Ensemble(apt.RatioNetwork(32, 2), 2), **SMALL), BOX),
}


@pytest.fixture(scope="module")
def runs():
    return {}


@pytest.fixture
def run_of(runs):
    def run(name: str) -> apt.Run:
        if name not in runs:
            method, prior = CASES[name]
            runs[name] = infer(method, prior)
        return runs[name]

    return run


@pytest.fixture
def latent(run_of) -> SampledPosterior:
    return run_of("latent").posterior


def grid(low, high, n=200):
    """Midpoints of cells, and the volume of one."""
    axes = [low[j] + (np.arange(n) + 0.5) / n * (high[j] - low[j]) for j in range(2)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return points, np.prod((np.asarray(high) - low) / n)


def log_likelihood(posterior: SampledPosterior, value: np.ndarray) -> np.ndarray:
    """By the members one after another: averages of densities for SNL, of log ratios for SNRE."""
    model: Any = posterior.model
    x = posterior.scaling(X_O)
    weights, rest = eqx.partition(
        getattr(model, "estimators", (None,))[0] or model.estimator, eqx.is_inexact_array
    )
    found = []
    for m in range(jax.tree.leaves(weights)[0].shape[0]):
        one = eqx.combine(jax.tree.map(lambda a, m=m: a[m], weights), rest)
        if isinstance(model, NeuralLikelihood):
            found.append(jax.vmap(lambda z, one=one: one(z).log_prob(x))(value.astype(np.float32)))
        else:
            found.append(jax.vmap(one(x).log_prob)(value.astype(np.float32)))
    log_l = np.asarray(found, np.float64)
    if isinstance(model, NeuralLikelihood):
        return logsumexp(log_l, axis=0) - np.log(len(log_l))
    return log_l.mean(axis=0)


@pytest.mark.parametrize("name", CASES)
def test_the_posterior_is_likelihood_times_prior(name, run_of):
    posterior = run_of(name).posterior
    prior = posterior.frame.prior
    low, high = ([0, 0], [1, 1]) if name == "custom" else ([-1, -1], [1, 1])
    theta, volume = grid(np.array(low, float), np.array(high, float))
    inside = prior.contains(theta)
    theta = theta[inside]
    log_p = log_likelihood(posterior, posterior.frame.from_theta(theta)) + prior.log_prob(theta)
    log_p -= logsumexp(log_p) + np.log(volume)
    weight = np.exp(log_p) * volume
    # The density, everywhere: exact up to one constant, which is known to its standard error and that of a
    # grid whose cells at the diagonal's edge are wholly in or out (one part in 200 at most).
    found = posterior.log_prob(theta)
    gap = found - log_p
    likely = log_p > log_p.max() - 10
    assert np.ptp(gap[likely]) < 1e-3
    error = posterior.log_normaliser[1]
    assert error < 0.05
    assert abs(gap[likely].mean()) < 5 * error + 0.01
    assert posterior.log_prob([2.0, 2.0]) == -np.inf
    # The draws: means and covariances.
    draws = posterior.sample(5000, seed=3)
    assert prior.contains(draws).all()
    size = min(posterior.effective_size, 5000)
    mean = weight @ theta
    covariance = (theta - mean).T @ ((theta - mean) * weight[:, None])
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * spread / np.sqrt(size) + 0.005 * spread).all()
    limit = 5 * np.sqrt(2 / size) + 0.01
    assert (np.abs(np.cov(draws.T) - covariance) < limit * np.outer(spread, spread)).all()
    # The mode: no cell of the grid is higher.
    top = posterior.map()
    assert posterior.log_prob(top) > found.max() - 1e-3


def test_draws_do_not_depend_on_what_was_asked_before(latent):
    fresh = latent.given(X_O)
    many = fresh.sample(6000, seed=2)
    np.testing.assert_array_equal(fresh.sample(10, seed=2), many[:10])
    other = latent.given(X_O)
    np.testing.assert_array_equal(other.sample(10, seed=2), many[:10])
    assert np.abs(other.sample(10, seed=3) - many[:10]).min() > 0
    np.testing.assert_array_equal(other.sample(6000, seed=2), many)
    assert len(np.unique(many, axis=0)) > 0.9 * len(many)


def test_summaries_do_not_sample_again(latent, monkeypatch):
    latent.mean()
    monkeypatch.setattr(SampledPosterior, "_block", lambda *_: pytest.fail("sampled again"))
    assert latent.std().shape == (2,)
    assert latent.quantiles([0.1, 0.9]).shape == (2, 2)
    assert latent.sample(1000).shape == (1000, 2)
    assert latent.r_hat < 1.1
    assert latent.effective_size > 100


def test_other_observations_one_or_several(latent):
    several = latent.given([[0.8, 0.3], [-0.5, -0.5]])
    draws = several.sample(500)
    assert draws.shape == (2, 500, 2)
    np.testing.assert_array_equal(draws[1], latent.given([-0.5, -0.5]).sample(500, seed=1))
    assert np.abs(draws.mean(axis=1) - [[0.6, 0.2], [-0.4, -0.4]]).max() < 0.4
    assert several.log_prob(draws[0][:3]).shape == (2, 3)
    with pytest.raises(ValueError, match="single observation"):
        _ = several.r_hat


def test_the_summary_shows_how_sampling_went(run_of):
    text = run_of("latent").summary()
    assert "R-hat" in text
    assert "effective draws" in text


class Counted(MaximumLikelihood):
    """Counts how often Python runs it: once per trace, never per step."""

    calls: ClassVar[list[int]] = []

    def __call__(self, estimator, batch):
        self.calls.append(1)
        return super().__call__(estimator, batch)


@pytest.mark.filterwarnings("ignore::aptinfer.SamplingWarning")  # of one chain after an epoch of training
def test_more_rounds_trace_nothing_more_and_a_single_chain_goes_on(monkeypatch):
    monkeypatch.setattr(snl_module, "MaximumLikelihood", Counted)
    method = apt.SNL(
        estimator=apt.MDN(1),
        embedding=apt.Flatten(),
        trainer=apt.Trainer(batch=10, epochs=1),
        sampler=apt.samplers.SingleSlice(thin=1, tune=5, warmup=2),
    )
    traces = []
    for rounds in (2, 5):
        Counted.calls.clear()
        run = infer(method, rounds=rounds, simulations=40)
        traces.append(len(Counted.calls))
    assert 0 < traces[1] <= traces[0]
    posteriors: list[Any] = [finished.posterior for finished in run.rounds]
    assert posteriors[0].start is None
    for before, after in itertools.pairwise(posteriors):
        assert after.start is before.first_draws.state
    # What a round proposed is what the posterior before it gives with seed 0.
    second = run.simulations.theta[run.simulations.round == 1]
    np.testing.assert_array_equal(second, posteriors[0].sample(40, seed=0))


def failing_often(theta):
    """P(failure): 0.05 at the left, almost certain at the right."""
    return 0.05 + 0.95 / (1 + np.exp(-4 * theta))


def test_failures_count_as_part_of_the_likelihood():
    noise, x_o = 0.7, 0.5

    def simulator(rng, theta):
        x = theta + noise * rng.standard_normal(1)
        return None if rng.uniform() < failing_often(theta[0]) else x

    prior = apt.gaussian([0.0], [[1.0]])
    method = apt.SNL(
        estimator=apt.MDN(1),
        embedding=apt.MLP((32,)),
        trainer=apt.Trainer(learning_rate=3e-3),
        sampler=SAMPLER,
    )
    run = apt.infer(simulator, prior, [x_o], method=method, rounds=1, simulations=3000, progress=False)
    posterior: Any = run.posterior
    theta = np.linspace(-5, 5, 2001)
    log_l = norm.logpdf(x_o, theta, noise) + norm.logpdf(theta)

    def moments(log_p):
        weight = np.exp(log_p - log_p.max())
        weight /= weight.sum()
        mean = weight @ theta
        return mean, np.sqrt(weight @ (theta - mean) ** 2)

    mean, spread = moments(log_l + np.log1p(-failing_often(theta)))
    naive, _ = moments(log_l)
    draws = posterior.sample(5000, seed=1)
    # Both networks are regressions with about three features in 3000 rows, of which the likelihood's is left
    # a third: variance 3/1000 + 3/3000 in units of the posterior, and 1/size for the draws.
    error = spread * np.sqrt(3 / 1000 + 3 / 3000 + 1 / posterior.effective_size)
    assert abs(draws.mean() - mean) < 4 * error
    assert abs(naive - mean) > 8 * error
    model = posterior.model
    dropped = SampledPosterior(
        posterior.frame,
        posterior.scaling,
        NeuralLikelihood(model.estimators, model.log_weights, None),
        SAMPLER,
        posterior.observation,
        posterior.event,
    )
    assert abs(dropped.sample(5000, seed=1).mean() - mean) > 8 * error
    assert abs(dropped.sample(5000, seed=1).mean() - naive) < 4 * error


def test_without_failures_there_is_no_classifier(latent):
    model: Any = latent.model
    assert model.success is None


def test_constants_and_counts_in_x():
    def simulator(rng, theta):
        return np.array([[1.0, rng.poisson(np.exp(theta[0]))], [0.0, rng.poisson(np.exp(theta[0]))]])

    prior, x_o = apt.gaussian([1.0], [[0.5]]), np.array([[1.0, 4.0], [0.0, 6.0]])
    method = apt.SNL(estimator=apt.AutoregressiveMixture(4, (32,)), **SMALL)
    run = apt.infer(simulator, prior, x_o, method=method, rounds=1, simulations=1500, progress=False)
    theta = np.linspace(-3, 4, 2001)
    log_p = 10 * theta - 2 * np.exp(theta) + norm.logpdf(theta, 1.0, np.sqrt(0.5))
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = weight @ theta
    spread = np.sqrt(weight @ (theta - mean) ** 2)
    # About six features of second order in theta, from the fifth of the rows that are near the observation.
    error = spread * np.sqrt(6 / 300 + 1 / 500)
    draws = run.posterior.sample(5000)
    assert abs(draws.mean() - mean) < 4 * error
    assert abs(draws.std() / spread - 1) < 4 * np.sqrt((6 / 300 + 1 / 500) / 2)
    with pytest.raises(ValueError, match="x_o is impossible"):
        run.posterior.given([[2.0, 4.0], [0.0, 6.0]]).sample(10)


def test_what_cannot_be_done_is_said_when_it_is_built():
    with pytest.raises(TypeError, match=r"SNL sampler must be settings such as apt.samplers.Automatic\(\)"):
        apt.SNL(sampler=apt.samplers.Slice)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"SNL estimator .*RatioNetwork.*apt.SNRE"):
        apt.SNL(estimator=apt.RatioNetwork())
    with pytest.raises(TypeError, match=r"APT estimator .*RatioNetwork.*apt.SNRE"):
        apt.APT(estimator=apt.Ensemble(apt.RatioNetwork(), 2))
    with pytest.raises(TypeError, match=r"SNRE estimator must be apt.RatioNetwork.*apt.APT"):
        apt.SNRE(estimator=apt.MAF())
    with pytest.raises(ValueError, match=r"SNRE atoms \(200\) must not exceed the batch"):
        apt.SNRE(atoms=200)


@pytest.mark.parametrize("sampler", [apt.samplers.SingleSlice(), apt.samplers.Slice(), apt.samplers.NUTS()])
def test_samplers_that_cannot_see_the_prior_are_refused_before_the_first_simulation(sampler):
    def never(theta):
        raise AssertionError("simulated")

    with pytest.raises(TypeError, match=r"only the host can call.*Automatic\(\)"):
        apt.infer(never, triangle(), X_O, method=apt.SNL(sampler=sampler), progress=False)


def test_x_that_is_too_large_is_refused_before_the_first_simulation():
    def never(theta):
        raise AssertionError("simulated")

    with pytest.raises(ValueError, match=r"400 numbers.*apt.APT\(\) with an embedding"):
        apt.infer(never, BOX, np.zeros((20, 20)), method=apt.SNL(), progress=False)
