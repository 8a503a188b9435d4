"""Approximate Bayesian computation: weights, budgets, schedules and biases that can be computed by hand."""

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import aptinfer as apt
from aptinfer.keys import Key
from aptinfer.methods.smc_abc import fit_kernels
from aptinfer.posteriors import ParticlePosterior
from aptinfer.posteriors.particles import equal_weights

BOX = apt.box([-1, -1], [1, 1])
SPACES = [apt.Latent(), apt.Theta()]


def noisy(rng, theta):
    return theta + 0.2 * rng.standard_normal(theta.shape)


def euclidean(x, x_o):
    return np.linalg.norm(x - x_o, axis=1)


def infer(
    method, prior: Any = BOX, x_o: Any = (0.2, 0.3), simulator: Any = noisy, **settings: Any
) -> apt.Run:
    settings = {"rounds": 10, "simulations": 200, "progress": False} | settings
    if method.one_round:
        settings.pop("rounds")
    chunk = settings["simulations"]
    simulator = simulator if isinstance(simulator, Counting) else apt.BatchSimulator(simulator, chunk=chunk)
    return apt.infer(simulator, prior, x_o, method=method, **settings)


def particles(posterior) -> ParticlePosterior:
    assert isinstance(posterior, ParticlePosterior)
    return posterior


class Counting:
    """A simulator of one draw that counts its calls."""

    calls = 0

    def __call__(self, rng, theta):
        self.calls += 1
        return noisy(rng, theta)


def populations(run: apt.Run) -> list[ParticlePosterior]:
    """Every complete population, in order."""
    found, number = [], 0
    for finished in run.rounds:
        if finished.notes["population"] > number:
            number = finished.notes["population"]
            found.append(particles(finished.posterior))
    return found


@pytest.mark.parametrize("space", SPACES)
def test_weights_are_those_of_a_double_loop(space):
    prior = apt.Prior(rate=dist.LogNormal(0.0, 0.5), shift=dist.Uniform(-1, 1))
    method = apt.SMCABC(particles=40, eps=(2.0, 1.0), decay=0.8, kernel=2.0, space=space)
    first, second = populations(infer(method, prior, (1.0, 0.1)))[:2]
    np.testing.assert_array_equal(first.weights, 1 / 40)
    covariance: Any = 2 * np.cov(first.values.T, ddof=0)
    expected = []
    for value, theta in zip(second.values, second.theta, strict=True):
        kernel = sum(
            w * stats.multivariate_normal(v, covariance).pdf(value)
            for w, v in zip(first.weights, first.values, strict=True)
        )
        # In theta: the prior there, over the kernel's density times dz/dtheta.
        volume = np.exp(first.frame.log_volume(value[None], theta[None])[0])
        density = stats.lognorm.pdf(theta[0], 0.5) * stats.uniform.pdf(theta[1], -1, 2)
        expected.append(density / (kernel * volume))
    expected = np.array(expected) / np.sum(expected)
    np.testing.assert_allclose(second.weights, expected, rtol=1e-5)


@pytest.mark.parametrize("space", SPACES)
def test_without_a_threshold_populations_stay_the_prior(space):
    method = apt.SMCABC(particles=2000, eps=(1e9, 1e8), decay=0.5, kernel=2.0, space=space)
    run = infer(method, rounds=5, simulations=2000)
    assert [r.notes["population"] for r in run.rounds] == [1, 2, 3, 4, 5]
    assert run.rounds[-1].complete
    last = particles(run.posterior)
    error = 5 / np.sqrt(last.effective_size)
    for power, moment in ((1, 0.0), (2, 1 / 3), (3, 0.0), (4, 1 / 5)):
        found = last.weights @ last.theta**power
        spread = np.sqrt(1 / (2 * power + 1) - moment**2)
        np.testing.assert_allclose(found, moment, atol=error * spread)


def test_few_effective_particles_are_resampled_for_the_kernel_alone():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(1000, 2)), rng.exponential(size=1000)
    few = fit_kernels(values, weights**4 / np.sum(weights**4), 2.0, Key((0,)))
    np.testing.assert_array_equal(few.weights, 0.001)
    often = (values[:, :1] == few.values[:, 0]).sum(axis=1)
    expected = 1000 * weights**4 / np.sum(weights**4)
    assert np.sum((often - expected) ** 2) < 1000 + 5 * np.sqrt(2 * np.sum(expected**2))  # multinomial
    np.testing.assert_allclose(few.root @ few.root.T, 2 * np.cov(few.values.T, ddof=0), rtol=1e-6)
    many = fit_kernels(values, equal_weights(1000), 2.0, Key((0,)))
    np.testing.assert_array_equal(many.values, values)


def test_the_schedule_of_papers():
    method = apt.SMCABC(particles=50, eps=(1.0, 0.5), distance=euclidean, space=apt.Theta())
    run = infer(method, rounds=40)
    expected = [1.0, *(0.9**k for k in range(1, 8))]  # 0.9**6 = 0.53 is not yet there
    eps = [r.notes["eps"] for r in run.rounds if r.notes["population"]]
    np.testing.assert_allclose(sorted(set(eps), reverse=True), expected)
    assert run.rounds[-1].complete
    assert len(run.rounds) < 40
    # The first population: the first rows within the first eps, in their order.
    rows = run.simulations
    close = np.flatnonzero((euclidean(rows.x, [0.2, 0.3]) <= 1) & (rows.round == 0))[:50]
    np.testing.assert_array_equal(populations(run)[0].theta, rows.theta[close])


def test_automatic_eps_decreases_until_it_is_reached():
    run = infer(apt.SMCABC(particles=50, eps=0.25, distance=euclidean), rounds=50)
    eps = [r.notes["eps"] for r in run.rounds]
    assert eps == sorted(eps, reverse=True)
    assert run.rounds[-1].complete
    assert eps[-1] <= 0.25 < eps[-2]


def test_the_budget_is_spent_exactly():
    simulator = Counting()
    run = infer(apt.SMCABC(), simulator=simulator, rounds=6, simulations=70)
    assert simulator.calls == 420
    assert len(run.rounds) == 6
    simulator = Counting()
    infer(apt.RejectionABC(), simulator=simulator, simulations=123)
    assert simulator.calls == 123


def test_the_default_size_follows_the_budget():
    sizes = [
        len(particles(infer(apt.SMCABC(), rounds=r, simulations=500).posterior).weights) for r in (2, 20)
    ]
    assert sizes == [100, 200]


@pytest.mark.parametrize("first", [0.3, 0.002])
def test_a_budget_too_small_keeps_what_is_closest(first):
    method = apt.SMCABC(particles=190, eps=(first, 0.001), distance=euclidean)
    with pytest.warns(apt.SamplingWarning, match="before the first population was complete"):
        run = infer(method, rounds=2, simulations=100)
    distances = np.sort(euclidean(run.simulations.x, [0.2, 0.3]))
    accepted = int(np.sum(distances <= first))
    assert (accepted > 20) == (first == 0.3)
    kept = max(accepted, 20)
    assert len(particles(run.posterior).weights) == kept
    assert run.rounds[-1].notes["eps"] == distances[kept - 1]
    assert run.rounds[-1].notes["population"] == 0


def test_a_few_particles_that_carry_the_weight_are_no_posterior():
    prior = apt.gaussian(np.zeros(8), np.eye(8))
    with pytest.warns(apt.SamplingWarning, match="raise particles= or kernel="):
        infer(apt.SMCABC(particles=100, kernel=0.02), prior, np.full(8, 0.5), rounds=10, simulations=500)


def test_failed_simulations_are_never_accepted():
    def fails(rng, theta):
        x = noisy(rng, theta)
        x[theta[:, 0] > 0.2] = np.nan
        return x

    for method in (apt.SMCABC(particles=100), apt.RejectionABC(accept=100)):
        posterior = particles(infer(method, simulator=fails, simulations=400).posterior)
        assert (posterior.theta[:, 0] <= 0.2).all()


def test_counts_that_match_exactly_end_the_run():
    def counts(rng, theta):
        return rng.binomial(5, (theta + 1) / 2).astype(float)

    run = infer(apt.SMCABC(particles=50, distance=euclidean), x_o=(2.0, 3.0), simulator=counts, rounds=40)
    assert run.rounds[-1].complete
    assert run.rounds[-1].notes["eps"] == 0


def test_same_seed_same_bits():
    one, two = (infer(apt.SMCABC(), rounds=5).posterior for _ in range(2))
    np.testing.assert_array_equal(one.sample(50, seed=3), two.sample(50, seed=3))


def rejected(eps: float, simulations: int = 40_000, **choices: Any) -> ParticlePosterior:
    """theta ~ N(0, 1), x = theta + N(0, 0.25), x_o = 1.2."""
    prior = apt.gaussian([0.0], [[1.0]])
    method = apt.RejectionABC(eps=eps, distance=euclidean, **choices)
    run = infer(
        method, prior, [1.2], lambda rng, t: t + 0.5 * rng.standard_normal(t.shape), simulations=simulations
    )
    return particles(run.posterior)


def test_rejection_has_the_bias_of_its_eps():
    eps, gain, variance = 0.8, 0.8, 0.2
    posterior = rejected(eps)
    grid = np.linspace(-5, 5, 20_001)
    weight = stats.norm.pdf(grid) * (
        stats.norm.cdf((1.2 + eps - grid) / 0.5) - stats.norm.cdf((1.2 - eps - grid) / 0.5)
    )
    weight /= weight.sum()
    mean = weight @ grid
    spread = np.sqrt(weight @ (grid - mean) ** 2)
    n = len(posterior.weights)
    assert abs(posterior.mean()[0] - mean) < 5 * spread / np.sqrt(n)
    assert abs(posterior.std()[0] - spread) < 5 * spread / np.sqrt(2 * n)
    # To second order the ball's own variance is added, eps^2 / (dim + 2), through the posterior mean's slope.
    assert abs(spread - np.sqrt(variance + gain**2 * eps**2 / 3)) < 0.02
    assert abs(posterior.std()[0] - np.sqrt(variance)) > 5 * spread / np.sqrt(2 * n)


def test_regression_takes_the_bias_out():
    posterior = rejected(3.0, adjust=True)
    n, spread = posterior.effective_size, np.sqrt(0.2)
    # Draws, and the regression's own error at x_o, which is no larger.
    assert abs(posterior.mean()[0] - 0.8 * 1.2) < 5 * spread * np.sqrt(2 / n)
    assert abs(posterior.std()[0] - spread) < 5 * spread / np.sqrt(2 * n)
    assert rejected(3.0).std()[0] > 1.3 * spread


def test_adjusted_parameters_stay_inside():
    run = infer(apt.RejectionABC(quantile=0.5, adjust=True), x_o=(0.99, -0.99), simulations=1000)
    assert BOX.contains(particles(run.posterior).theta).all()


def test_rejection_keeps_what_was_asked_for():
    for method, kept in (
        (apt.RejectionABC(accept=30), 30),
        (apt.RejectionABC(quantile=0.1), 40),
        (apt.RejectionABC(), 100),
    ):
        run = infer(method, simulations=400)
        posterior = particles(run.posterior)
        rows = run.simulations
        spread = np.subtract(*np.quantile(rows.x, [0.75, 0.25], axis=0)) / 1.349
        distances = euclidean(rows.x / spread, np.array([0.2, 0.3]) / spread)
        closest = np.sort(np.argsort(distances)[:kept])
        np.testing.assert_array_equal(posterior.theta, rows.theta[closest])
        assert run.rounds[0].notes["eps"] == pytest.approx(np.sort(distances)[kept - 1])


def test_rejection_with_an_eps_too_small_keeps_the_closest():
    with pytest.warns(apt.SamplingWarning, match="within eps = 1e-06"):
        posterior = rejected(1e-6, 400)
    assert len(posterior.weights) == 20
    method = apt.RejectionABC(accept=3, adjust=True)
    with pytest.warns(apt.SamplingWarning, match="too few for a regression on 2"):
        infer(method)


def test_nothing_is_proposed_outside_the_prior():
    seen = []

    def watched(rng, theta):
        seen.append(theta)
        return noisy(rng, theta)

    for space in SPACES:
        infer(apt.SMCABC(particles=50, space=space), x_o=(0.98, -0.98), simulator=watched)
    assert BOX.contains(np.concatenate(seen)).all()


REFUSED: dict[str, Any] = {
    "eps increases": (lambda: apt.SMCABC(eps=(0.1, 1.0)), "must decrease"),
    "eps stays": (lambda: apt.SMCABC(eps=(1.0, 1.0)), "RejectionABC"),
    "eps of three": (lambda: apt.SMCABC(eps=(1.0, 0.5, 0.1)), "pair"),  # pyright: ignore[reportArgumentType]
    "eps negative": (lambda: apt.SMCABC(eps=-1.0), "above 0"),
    "one particle": (lambda: apt.SMCABC(particles=1), "at least 2"),
    "decay": (lambda: apt.SMCABC(decay=1.0), "between 0 and 1"),
    "quantile": (lambda: apt.SMCABC(quantile=1.5), "between 0 and 1"),
    "kernel": (lambda: apt.SMCABC(kernel=0.0), "above 0"),
    "too many particles": (lambda: infer(apt.SMCABC(particles=2001)), "10 x 200 = 2000"),
    "shape of distances": (lambda: infer(apt.SMCABC(distance=lambda x, x_o: x - x_o)), r"shape \(3,\)"),
    "one distance": (lambda: infer(apt.RejectionABC(distance=lambda x, x_o: np.array(0.0))), "lambda x, x_o"),
    "two rules": (lambda: apt.RejectionABC(eps=1.0, accept=3), "eps"),
    "share above one": (lambda: apt.RejectionABC(quantile=2.0), "at most 1"),
    "accept too many": (lambda: infer(apt.RejectionABC(accept=201)), "Raise simulations"),
    "adjusted in theta": (lambda: infer(apt.RejectionABC(adjust=True, space=apt.Theta())), "apt.Latent"),
    "rounds of rejection": (
        lambda: apt.infer(noisy, BOX, [0, 0], method=apt.RejectionABC(), rounds=2),
        "one-round",
    ),
    "settled": (lambda: infer(apt.SMCABC(), stop=apt.WhenSettled()), "have none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_simulated(case):
    call, says = REFUSED[case]
    with pytest.raises(ValueError, match=says):
        call()


def test_distances_must_be_numbers():
    with pytest.raises(TypeError, match="distance must be None or something to call"):
        apt.SMCABC(distance=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="space must be"):
        apt.RejectionABC(space="theta")  # pyright: ignore[reportArgumentType]
    for far, says in ((np.inf, "is infinite"), (np.nan, "NaN or negative")):
        with pytest.raises(apt.SamplingError, match=says):
            infer(apt.SMCABC(distance=lambda x, x_o, far=far: np.full(len(x), far)))
