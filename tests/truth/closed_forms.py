"""Problems whose posterior is known exactly, and the methods that are measured against them.

Tolerances. Draws from the estimate add 1/sqrt(n) to the error of a mean in posterior units and 1/sqrt(2n) to
that of a standard deviation. The estimate itself comes from N simulations, about half of them near the
posterior; a regression on k features of x has variance k / N per direction in those units. In latent space
the Gaussian problems are linear in x: k counts a constant and each dimension of x. In a box they are not:
there k counts the terms of second order too. The bounds are three standard errors of the two together.
SNPE-A learns from its last round alone, and divides: where the proposal is the posterior, the network's
precision is twice what is left of it, and so are its errors in units of the posterior. Of SNPE-B's weighted
rows the effective number counts. SNL and SNRE learn log p(x_o | theta) as a function of theta: there k counts
a constant, and a slope and a curvature along each axis of the posterior, where that is more.

Particles and chains learn no regression: their effective size counts. What approximate Bayesian computation
samples is known too: with x anywhere within eps of x_o, it is the mixture of the posteriors at those x,
weighted by their evidence. It is compared with that one's moments, at the eps that the run has reached.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

import aptinfer as apt

ROUNDS, SIMULATIONS, DRAWS = 3, 1000, 20_000


@dataclass(frozen=True)
class Exact:
    """A problem and its posterior's moments, in coordinates `of(theta)`.

    Attributes:
        marginal: compare each coordinate by itself, where the posterior is no Gaussian in any direction.
        curved: the posterior's latent moments are no linear functions of x.
        elsewhere: for rows of x, the log-evidence up to a constant, and mean and covariance of the posterior.
    """

    name: str
    prior: Any
    simulator: Any
    x_o: np.ndarray
    elsewhere: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    of: Callable[[np.ndarray], np.ndarray] = lambda theta: theta
    marginal: bool = False
    curved: bool = False

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the posterior at x_o."""
        _, mean, covariance = self.elsewhere(self.x_o[None])
        return mean[0], covariance[0]

    def moments_within(self, eps: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the mixture of posteriors at all x within eps of x_o."""
        log_evidence, means, covariances = self.elsewhere(self.x_o + eps * ball(len(self.x_o)))
        weights = np.exp(log_evidence - log_evidence.max())
        weights /= weights.sum()
        mean = weights @ means
        between = np.einsum("n,nj,nk->jk", weights, means - mean, means - mean)
        return mean, np.einsum("n,njk->jk", weights, covariances) + between

    @property
    def features(self) -> int:
        """Terms in x that the posterior depends on: up to first order, or second where it is curved."""
        n = len(self.x_o)
        return (n + 1) * (n + 2) // 2 if self.curved else n + 1


def ball(dim: int) -> np.ndarray:
    """Points that fill the unit ball evenly."""
    if dim == 1:
        return (np.arange(41)[:, None] + 0.5) * 2 / 41 - 1
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((20_000, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * rng.uniform(size=(20_000, 1)) ** (1 / dim)


def linear_gaussian(name, prior_mean, prior_covariance, design, noise, x_o, *, log=False) -> Exact:
    """x = design . theta + N(0, noise^2 I), or of log theta under a log-normal prior."""
    import jax
    import jax.numpy as jnp

    design = np.atleast_2d(np.asarray(design, float))
    precision = np.linalg.inv(prior_covariance) + design.T @ design / noise**2
    covariance = np.linalg.inv(precision)
    predictive = stats.multivariate_normal(
        design @ prior_mean, design @ prior_covariance @ design.T + noise**2 * np.eye(len(design))
    )
    fixed = np.asarray(design, np.float32)

    def simulate(key, theta):
        parameters = jnp.log(theta) if log else theta
        return fixed @ parameters + np.float32(noise) * jax.random.normal(key, (len(design),), jnp.float32)

    def elsewhere(x):
        means = (np.linalg.solve(prior_covariance, prior_mean) + x @ design / noise**2) @ covariance
        return (
            np.atleast_1d(predictive.logpdf(x)),
            means,
            np.broadcast_to(covariance, (len(x), *covariance.shape)),
        )

    if log:
        import numpyro.distributions as dist

        scales = np.sqrt(np.diag(prior_covariance))
        parts = zip(prior_mean, scales, strict=True)
        prior = apt.Prior(**{f"theta_{j}": dist.LogNormal(m, s) for j, (m, s) in enumerate(parts, 1)})
    else:
        prior = apt.gaussian(prior_mean, prior_covariance)
    of = np.log if log else (lambda theta: theta)
    return Exact(name, prior, apt.JaxSimulator(simulate), np.asarray(x_o, float), elsewhere, of)


def correlated() -> Exact:
    """Prior correlation 0.95, where dropping the off-diagonal terms of the prior moves the mean by 0.7."""
    prior = np.array([[1.0, 0.95], [0.95, 1.0]])
    return linear_gaussian("correlated", np.zeros(2), prior, np.eye(2), 0.7, np.array([1.2, -0.8]))


def log_normal() -> Exact:
    prior = np.diag([0.5, 0.8]) ** 2
    x_o = np.array([0.3, 0.9])
    return linear_gaussian(
        "log-normal", np.array([0.2, -0.4]), prior, [[1.0, 0.5], [0.3, 1.0]], 0.3, x_o, log=True
    )


def one_dimension() -> Exact:
    return linear_gaussian("1-d", np.zeros(1), np.eye(1), np.eye(1), 0.4, np.array([1.1]))


def ten_dimensions() -> Exact:
    x_o = np.linspace(-1.2, 1.2, 10)
    return linear_gaussian("10-d", np.zeros(10), np.eye(10), np.eye(10), 0.7, x_o)


def cut_box() -> Exact:
    """A box whose two edges cut the posterior: two independent truncated normals."""
    import jax
    import jax.numpy as jnp

    x_o, noise = np.array([0.9, -0.95]), 0.3

    def simulate(key, theta):
        return theta + np.float32(noise) * jax.random.normal(key, (2,), jnp.float32)

    def elsewhere(x):
        low, high = (-1 - x) / noise, (1 - x) / noise
        evidence = stats.norm.cdf(high) - stats.norm.cdf(low)
        slope = (stats.norm.pdf(low) - stats.norm.pdf(high)) / evidence
        bend = (low * stats.norm.pdf(low) - high * stats.norm.pdf(high)) / evidence
        variance = noise**2 * (1 + bend - slope**2)
        return np.log(evidence).sum(axis=1), x + noise * slope, variance[:, :, None] * np.eye(2)

    prior = apt.box([-1, -1], [1, 1])
    return Exact("box", prior, apt.JaxSimulator(simulate), x_o, elsewhere, curved=True)


def sum_in_box() -> Exact:
    """Only theta_1 + theta_2 is seen: a ridge along the box, wider in latent space than the prior itself.

    Compared in latent space, by quadrature. The ridge is thin in the middle and thicker at the corners, so
    its marginals are compared, not every direction. Their exact sd is 0.96, with variance 1.83 along the
    ridge: an estimator capped at the prior's width has 0.71, 26 % too narrow, far beyond the bound.
    """
    import jax
    import jax.numpy as jnp

    noise, x_o = 0.04, np.array([0.0])

    def simulate(key, theta):
        total = theta[0] + theta[1]
        return total[None] + np.float32(noise) * jax.random.normal(key, (1,), jnp.float32)

    prior = apt.box([-1, -1], [1, 1])
    z = np.linspace(-5, 5, 801)
    first, second = np.meshgrid(z, z, indexing="ij")
    points = np.stack([first.ravel(), second.ravel()], axis=1)
    totals = prior.forward(points).sum(axis=1)

    def one(x):
        weight = np.exp(-0.5 * ((totals - x[0]) / noise) ** 2 - 0.5 * (points**2).sum(axis=1))
        evidence = weight.sum()
        mean = weight @ points / evidence
        return np.log(evidence), mean, (points - mean).T @ ((points - mean) * weight[:, None]) / evidence

    def elsewhere(x):
        log_evidence, means, covariances = zip(*map(one, x), strict=True)
        return np.array(log_evidence), np.array(means), np.array(covariances)

    simulator = apt.JaxSimulator(simulate)
    return Exact("sum", prior, simulator, x_o, elsewhere, of=prior.inverse, marginal=True, curved=True)


def distance(exact: Exact, theta: np.ndarray, eps: float = 0.0) -> tuple[float, float]:
    """How far samples are from the exact posterior, in its own units; or from the one within eps of x_o.

    The error of the mean in posterior standard deviations, and the largest relative error of a standard
    deviation along any direction (or of any coordinate).
    """
    values = exact.of(theta)
    centre, covariance = exact.moments_within(eps) if eps else exact.moments
    if exact.marginal:
        covariance = np.diag(np.diag(covariance))
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    whitened = (values - centre) @ root.T
    mean = float(np.linalg.norm(whitened.mean(axis=0)))
    found = np.atleast_2d(np.cov(whitened.T))
    spread = np.sqrt(np.diag(found) if exact.marginal else np.linalg.eigvalsh(found))
    return mean, float(np.abs(spread - 1).max())


PROBLEMS = {
    exact.name: exact
    for exact in (correlated(), log_normal(), cut_box(), one_dimension(), ten_dimensions(), sum_in_box())
}


def euclidean(x: np.ndarray, x_o: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x - x_o, axis=1)


# Library defaults, with three exceptions: fewer components where the closed form has to pair all of them; two
# layers of splines instead of three, which overfit so few simulations ("box": 0.20, bound 0.19); and, where
# the density of x is learned, which is Gaussian in all of these problems, one component instead of eight,
# which take the noise of 3000 simulations for its shape ("box": 0.20, bound 0.19; "correlated": 0.18, bound
# 0.17; seed 0).
METHODS = {
    "mixture proposal": apt.APT(estimator=apt.MDN(4)),
    "gaussian proposal": apt.APT(loss=apt.GaussianProposal(), estimator=apt.MDN(4)),
    "one gaussian": apt.APT(estimator=apt.MDN(1)),
    "one gaussian, one round": apt.NPE(estimator=apt.MDN(1)),
    "atomic mdn": apt.APT(loss=apt.Atomic(20), estimator=apt.MDN()),
    "atomic maf": apt.APT(estimator=apt.MAF()),
    "atomic nsf": apt.APT(estimator=apt.NSF(layers=2)),
    "combined": apt.APT(loss=apt.Combined()),
    "ensemble": apt.APT(estimator=apt.Ensemble(apt.MDN(4), 3)),
    "stack": apt.APT(estimator=apt.Stack()),
    "defaults": apt.APT(),
    "snpe-a": apt.SNPEA(estimator=apt.MDN(4)),
    "snpe-b": apt.SNPEB(estimator=apt.MDN(4)),
    "snpe-a, uncertain weights": apt.SNPEA(estimator=apt.MDN(4), uncertainty=apt.WeightUncertainty()),
    "snpe-b, uncertain weights": apt.SNPEB(estimator=apt.MDN(4), uncertainty=apt.WeightUncertainty()),
    "snl": apt.SNL(estimator=apt.AutoregressiveMixture(components=1)),
    "snre": apt.SNRE(),
    "fmpe": apt.FMPE(),
    "smc-abc": apt.SMCABC(distance=euclidean),
    "smc-abc, theta space": apt.SMCABC(distance=euclidean, space=apt.Theta()),
    "rejection abc": apt.RejectionABC(accept=1000, distance=euclidean),
    "synthetic likelihood": apt.SyntheticLikelihood(replicates=20),
    "theta space, mixture": apt.APT(estimator=apt.MDN(4), space=apt.Theta()),
    "theta space, atomic": apt.APT(loss=apt.Atomic(20), estimator=apt.MDN(), space=apt.Theta()),
}

# Rounds and simulations of methods that need more than three times 1000.
BUDGETS = {
    apt.SMCABC: (30, 1000),
    apt.RejectionABC: (1, 30_000),
    apt.SyntheticLikelihood: (1000, 400),
}

# What the table leaves out, because the method cannot do it. The paper's closed form in theta knows Gaussian
# priors only: it ignores the edges of a box and the shape of a log-normal. Gaussians in theta have mass below
# zero, and cut there they are no log-normal near zero, which logarithms show. Nor is one Gaussian in latent
# space enough for two problems, whatever its training. The posterior of "box" is skewed there: a Gaussian of
# the exact mean and covariance has a spread in theta that is 16 % off. The ridge of "sum" is long because it
# gets thicker outwards, which a proposal of constant thickness hides: with unlimited data, the Gaussian that
# the loss prefers under its own proposal is 19 % too narrow in round 3 and 20 % in the end (by quadrature at
# x_o; with 1000 simulations per round 19 % were measured with seed 0, and 11 % with seed 1). A random walk in
# ten dimensions needs thousands of steps, and says so.
IMPOSSIBLE = {
    ("synthetic likelihood", "10-d"),
    ("one gaussian", "box"),
    ("one gaussian, one round", "box"),
    ("one gaussian", "sum"),
    ("theta space, mixture", "box"),
    ("theta space, mixture", "sum"),
    ("theta space, mixture", "log-normal"),
    ("theta space, atomic", "log-normal"),
}


@dataclass(frozen=True)
class Measured:
    """Errors of an estimate's mean and spread in units of the posterior, with their bounds."""

    mean: float
    mean_bound: float
    spread: float
    spread_bound: float

    @property
    def excess(self) -> float:
        """The larger error in units of its bound: at most one for a right method."""
        return max(self.mean / self.mean_bound, self.spread / self.spread_bound)


def measure(exact: Exact, method, seed: int = 0, rounds: int | None = None) -> Measured:
    """Three rounds of `method` on a problem, or one with as many simulations, against the exact posterior."""
    network = (1, ROUNDS * SIMULATIONS) if method.one_round else (ROUNDS, SIMULATIONS)
    usual, simulations = BUDGETS.get(type(method), network)
    run = apt.infer(
        exact.simulator,
        exact.prior,
        exact.x_o,
        method=method,
        rounds=rounds or usual,
        simulations=simulations,
        seed=seed,
        progress=False,
    )
    notes = run.rounds[-1].notes
    mean, spread = distance(exact, run.posterior.sample(DRAWS, seed=1), notes.get("eps", 0.0))
    dim = exact.prior.dim
    if isinstance(run.posterior, apt.ParticlePosterior):
        mean_bound, spread_bound = bounds(dim, 1, run.posterior.effective_size)
        return Measured(mean, mean_bound, spread, spread_bound)
    divides = isinstance(method, apt.SNPEA)
    rows = SIMULATIONS / 4 if divides else notes.get("effective_rows", ROUNDS * SIMULATIONS) / 2
    of_likelihood = isinstance(method, apt.SNL | apt.SNRE)
    features = max(1 + 2 * dim, exact.features) if of_likelihood else exact.features
    mean_bound, spread_bound = bounds(dim, features, rows)
    return Measured(mean, mean_bound, spread, spread_bound)


def bounds(dim: int, features: int, rows: float) -> tuple[float, float]:
    """Largest errors of mean and spread that a right method may have, learning from so many rows."""
    variance = dim * (features / rows + 1 / DRAWS)
    return float(3 * np.sqrt(variance)), float(3 * np.sqrt(variance / 2))
