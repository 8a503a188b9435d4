"""Posteriors of which exact draws are known, and how draws are compared with them."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from scipy.stats import ks_2samp

from aptinfer.samplers.draws import Draws
from aptinfer.samplers.target import Target

ORIGIN = np.zeros(2, np.float32)


@dataclass(frozen=True)
class Correlated(Target):
    """A Gaussian whose coordinates have variance 0.1 and one correlation; `params` is its mean."""

    dim: int
    correlation: float

    @property
    def covariance(self) -> np.ndarray:
        return 0.1 * ((1 - self.correlation) * np.eye(self.dim) + self.correlation)

    def log_likelihood(self, params, z):
        apart = z - params
        precision = np.linalg.inv(self.covariance).astype(np.float32)
        return 0.5 * jnp.sum(z**2) - 0.5 * apart @ precision @ apart

    def exact(self, rng, n, params):
        return rng.multivariate_normal(np.asarray(params, float), self.covariance, n)


@dataclass(frozen=True)
class Banana(Target):
    """z_1 ~ N(0, 1) and z_2 | z_1 ~ N(z_1², 0.3²)."""

    dim: int = 2

    def log_likelihood(self, params, z):
        return 0.5 * z[1] ** 2 - 0.5 * ((z[1] - z[0] ** 2) / 0.3) ** 2

    def exact(self, rng, n, params):
        first = rng.normal(size=n)
        return np.stack([first, first**2 + 0.3 * rng.normal(size=n)], axis=1)


@dataclass(frozen=True)
class Truncated(Target):
    """A Gaussian in a box, on which the prior is flat; it leans against two edges."""

    dim: int = 2

    def log_prior(self, z):
        inside = (z[0] > -1) & (z[0] < 1) & (z[1] > 0) & (z[1] < 3)
        return jnp.where(inside, 0.0, -jnp.inf)

    def draw_prior(self, rng, n):
        return rng.uniform([-1, 0], [1, 3], size=(n, 2))

    def log_likelihood(self, params, z):
        return -0.5 * ((z[0] - 0.8) / 0.5) ** 2 - 0.5 * ((z[1] - 0.2 - 0.5 * z[0]) / 0.4) ** 2

    def exact(self, rng, n, params):
        first = rng.normal(0.8, 0.5, 20 * n)
        z = np.stack([first, rng.normal(0.2 + 0.5 * first, 0.4)], axis=1)
        return z[np.all((z > [-1, 0]) & (z < [1, 3]), axis=1)][:n]


@dataclass(frozen=True)
class TwoModes(Target):
    """Narrow modes at (-1.5, -1.5) and (1.5, 1.5), seventy widths apart; the latter has a fifth."""

    dim: int = 2
    width: float = 0.06
    share: float = 0.2

    def log_likelihood(self, params, z):
        squares = jnp.stack([jnp.sum((z + 1.5) ** 2), jnp.sum((z - 1.5) ** 2)])
        shares = np.log(np.array([1 - self.share, self.share], np.float32))
        heights = shares - 0.5 * squares / self.width**2
        return 0.5 * jnp.sum(z**2) + jnp.logaddexp(heights[0], heights[1])

    def exact(self, rng, n, params):
        centre = np.where(rng.uniform(size=n) < self.share, 1.5, -1.5)
        return centre[:, None] + self.width * rng.normal(size=(n, 2))


@dataclass(frozen=True, eq=False)
class Counted(Target):
    """N(mean, 0.1²), counting how often it is traced; no other instance shares its programs."""

    traces: list = field(default_factory=list)
    dim: int = 2

    def log_likelihood(self, params, z):
        self.traces.append(1)
        return -50.0 * jnp.sum((z - params["mean"]) ** 2)


@dataclass(frozen=True)
class Rare(Target):
    """Possible on the share of the prior where z_1 exceeds `above`; NaN elsewhere."""

    above: float
    dim: int = 2

    def log_likelihood(self, params, z):
        return jnp.where(z[0] > self.above, -0.5 * z[1] ** 2, jnp.nan)


@dataclass(frozen=True)
class Flat(Target):
    """Improper: constant wherever it is looked at."""

    dim: int = 2

    def log_likelihood(self, params, z):
        return 0.5 * jnp.sum(z**2)


def assert_exact(draws: Draws, target, params=ORIGIN, seed: int = 99) -> None:
    """Means, second moments and quantiles agree with exact draws, within five standard errors."""
    size = min(draws.effective, len(draws.values))
    exact = target.exact(np.random.default_rng(seed), 50_000, params)
    values = draws.values.astype(np.float64)
    scale = np.sqrt(1 / size + 1 / len(exact))
    centre = exact.mean(0)

    def products(z):
        apart = z - centre
        return np.concatenate([apart, (apart[:, :, None] * apart[:, None]).reshape(len(z), -1)], axis=1)

    ours, theirs = products(values), products(exact)
    np.testing.assert_array_less(np.abs(ours.mean(0) - theirs.mean(0)), 5 * scale * theirs.std(0))
    for share in (0.02, 0.1, 0.5, 0.9, 0.98):
        below = np.mean(values <= np.quantile(exact, share, axis=0), axis=0)
        np.testing.assert_array_less(np.abs(below - share), 5 * scale * np.sqrt(share * (1 - share)))


def directions(z: np.ndarray) -> np.ndarray:
    """Two coordinates, and two functions that see how they depend on each other."""
    z = z.astype(np.float64)
    return np.stack([z[:, 0], z[:, 1], z[:, 0] * z[:, 1], z[:, 1] - z[:, 0] ** 2], axis=1)


def smallest_p(z: np.ndarray, target) -> float:
    """The p-value of the worst of four functions of z (n, 2), against exact draws."""
    exact = directions(target.exact(np.random.default_rng(5), 50_000, ORIGIN))
    return min(p_value(a, b) for a, b in zip(directions(z).T, exact.T, strict=True))


def p_value(first: np.ndarray, second: np.ndarray) -> float:
    """Kolmogorov and Smirnov's, for two samples of a number."""
    _, p = ks_2samp(first, second)
    return float(p)  # pyright: ignore[reportArgumentType]
