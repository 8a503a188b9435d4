"""Problems whose posterior is known exactly, and the methods that are measured against them.

Tolerances. Draws from the estimate add 1/sqrt(n) to the error of a mean in posterior units and 1/sqrt(2n) to
that of a standard deviation. The estimate itself comes from N simulations, about half of them near the
posterior; a regression on k features of x has variance k / N per direction in those units. In latent space
the Gaussian problems are linear in x: k counts a constant and each dimension of x. In a box they are not:
there k counts the terms of second order too. The bounds are three standard errors of the two together.
SNPE-A learns from its last round alone, and divides: where the proposal is the posterior, the network's
precision is twice what is left of it, and so are its errors in units of the posterior. Of SNPE-B's weighted
rows the effective number counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
    """

    name: str
    prior: Any
    simulator: Any
    x_o: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    of: Callable[[np.ndarray], np.ndarray] = lambda theta: theta
    marginal: bool = False
    curved: bool = False

    @property
    def features(self) -> int:
        """Terms in x that the posterior depends on: up to first order, or second where it is curved."""
        n = len(self.x_o)
        return (n + 1) * (n + 2) // 2 if self.curved else n + 1


def linear_gaussian(name, prior_mean, prior_covariance, design, noise, x_o, *, log=False) -> Exact:
    """x = design . theta + N(0, noise^2 I), or of log theta under a log-normal prior."""
    import jax
    import jax.numpy as jnp

    design = np.atleast_2d(np.asarray(design, float))
    precision = np.linalg.inv(prior_covariance) + design.T @ design / noise**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ (np.linalg.solve(prior_covariance, prior_mean) + design.T @ x_o / noise**2)
    fixed = np.asarray(design, np.float32)

    def simulate(key, theta):
        parameters = jnp.log(theta) if log else theta
        return fixed @ parameters + np.float32(noise) * jax.random.normal(key, (len(design),), jnp.float32)

    if log:
        import numpyro.distributions as dist

        scales = np.sqrt(np.diag(prior_covariance))
        parts = zip(prior_mean, scales, strict=True)
        prior = apt.Prior(**{f"theta_{j}": dist.LogNormal(m, s) for j, (m, s) in enumerate(parts, 1)})
    else:
        prior = apt.gaussian(prior_mean, prior_covariance)
    of = np.log if log else (lambda theta: theta)
    return Exact(name, prior, apt.JaxSimulator(simulate), np.asarray(x_o, float), mean, covariance, of)


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

    marginals = [stats.truncnorm((-1 - x) / noise, (1 - x) / noise, x, noise) for x in x_o]
    mean = np.array([m.mean() for m in marginals])
    covariance = np.diag([m.var() for m in marginals])
    prior = apt.box([-1, -1], [1, 1])
    return Exact("box", prior, apt.JaxSimulator(simulate), x_o, mean, covariance, curved=True)


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
    theta = prior.forward(points)
    log_weight = -0.5 * ((theta.sum(axis=1) - x_o[0]) / noise) ** 2 - 0.5 * (points**2).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ points
    covariance = (points - mean).T @ ((points - mean) * weight[:, None])
    simulator = apt.JaxSimulator(simulate)
    return Exact("sum", prior, simulator, x_o, mean, covariance, of=prior.inverse, marginal=True, curved=True)


def distance(exact: Exact, theta: np.ndarray) -> tuple[float, float]:
    """How far samples are from the exact posterior, in its own units.

    The error of the mean in posterior standard deviations, and the largest relative error of a standard
    deviation along any direction (or of any coordinate).
    """
    values = exact.of(theta)
    covariance = np.diag(np.diag(exact.covariance)) if exact.marginal else exact.covariance
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    whitened = (values - exact.mean) @ root.T
    mean = float(np.linalg.norm(whitened.mean(axis=0)))
    found = np.atleast_2d(np.cov(whitened.T))
    spread = np.sqrt(np.diag(found) if exact.marginal else np.linalg.eigvalsh(found))
    return mean, float(np.abs(spread - 1).max())


PROBLEMS = {
    exact.name: exact
    for exact in (correlated(), log_normal(), cut_box(), one_dimension(), ten_dimensions(), sum_in_box())
}
# Library defaults, with two exceptions: fewer components where the closed form has to pair all of them, and
# two layers of splines instead of three, which overfit so few simulations ("box": 0.20, bound 0.19).
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
    "defaults": apt.APT(),
    "snpe-a": apt.SNPEA(estimator=apt.MDN(4)),
    "snpe-b": apt.SNPEB(estimator=apt.MDN(4)),
    "snpe-a, uncertain weights": apt.SNPEA(estimator=apt.MDN(4), uncertainty=apt.WeightUncertainty()),
    "snpe-b, uncertain weights": apt.SNPEB(estimator=apt.MDN(4), uncertainty=apt.WeightUncertainty()),
    "fmpe": apt.FMPE(),
    "theta space, mixture": apt.APT(estimator=apt.MDN(4), space=apt.Theta()),
    "theta space, atomic": apt.APT(loss=apt.Atomic(20), estimator=apt.MDN(), space=apt.Theta()),
}

# What the table leaves out, because the method cannot do it. The paper's closed form in theta knows Gaussian
# priors only: it ignores the edges of a box and the shape of a log-normal. Gaussians in theta have mass below
# zero, and cut there they are no log-normal near zero, which logarithms show. Nor is one Gaussian in latent
# space enough for two problems, whatever its training. The posterior of "box" is skewed there: a Gaussian of
# the exact mean and covariance has a spread in theta that is 16 % off. The ridge of "sum" is long because it
# gets thicker outwards, which a proposal of constant thickness hides: with unlimited data, the Gaussian that
# the loss prefers under its own proposal is 19 % too narrow in round 3 and 20 % in the end (by quadrature at
# x_o; with 1000 simulations per round 19 % were measured with seed 0, and 11 % with seed 1).
IMPOSSIBLE = {
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


def measure(exact: Exact, method, seed: int = 0) -> Measured:
    """Three rounds of `method` on a problem, or one with as many simulations, against the exact posterior."""
    rounds = 1 if method.one_round else ROUNDS
    run = apt.infer(
        exact.simulator,
        exact.prior,
        exact.x_o,
        method=method,
        rounds=rounds,
        simulations=ROUNDS * SIMULATIONS // rounds,
        seed=seed,
        progress=False,
    )
    mean, spread = distance(exact, run.posterior.sample(DRAWS, seed=1))
    divides = isinstance(method, apt.SNPEA)
    rows = (
        SIMULATIONS / 4 if divides else run.rounds[-1].notes.get("effective_rows", ROUNDS * SIMULATIONS) / 2
    )
    mean_bound, spread_bound = bounds(len(exact.mean), exact.features, rows)
    return Measured(mean, mean_bound, spread, spread_bound)


def bounds(dim: int, features: int, rows: float) -> tuple[float, float]:
    """Largest errors of mean and spread that a right method may have, learning from so many rows."""
    variance = dim * (features / rows + 1 / DRAWS)
    return float(3 * np.sqrt(variance)), float(3 * np.sqrt(variance / 2))
