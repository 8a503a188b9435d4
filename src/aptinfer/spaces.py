"""The coordinates that networks see: latent z, where the prior is exactly N(0, I), or standardised theta.

A frame turns a density q(value) into a density over theta. In latent space, with z = T^-1(theta),

    log q(theta | x) = log q(z | x) - log N(z; 0, I) + log p(theta),

so every value lies inside the prior's support and nothing needs a normaliser. In standardised theta, as the
paper has it, mass can fall outside the support: draws are rejected there, and densities divided by the share
that is accepted.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from aptinfer.checks import positive_float, suggests_keywords
from aptinfer.estimators.mog import LOG_2PI, GaussianTerms
from aptinfer.priors import JointPrior

LEAST_ACCEPTED = 1e-3


class Frame(ABC):
    """Values of one space and the theta they stand for; NumPy, in float64, on the host."""

    prior: JointPrior
    dtype: type  # of theta as the simulator gets it
    always_inside: bool
    least_accepted = LEAST_ACCEPTED  # where fewer draws lie inside the support, sampling gives up

    @abstractmethod
    def to_theta(self, value: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def from_theta(self, theta: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def log_prior(self, value: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The prior's log density in these coordinates."""

    @abstractmethod
    def draw_prior(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Values and theta of `n` draws from the prior."""

    @property
    @abstractmethod
    def gaussian(self) -> GaussianTerms | None:
        """The prior in these coordinates where APT's closed form exists."""

    def log_volume(self, value: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """log |dvalue / dtheta|: the prior's density in theta over its density in these coordinates."""
        return self.prior.log_prob(theta) - self.log_prior(value, theta)


class LatentFrame(Frame):
    """value = z."""

    always_inside = True

    def __init__(self, prior: JointPrior, dtype: type):
        self.prior, self.dtype = prior, dtype

    def to_theta(self, value):
        return self.prior.forward(np.asarray(value, np.float64), dtype=self.dtype)

    def from_theta(self, theta):
        return self.prior.inverse(theta)

    def log_prior(self, value, theta):
        value = np.asarray(value, np.float64)
        return -0.5 * np.sum(value**2, axis=-1) - 0.5 * LOG_2PI * value.shape[-1]

    def draw_prior(self, rng, n):
        value = rng.standard_normal((n, self.prior.dim)).astype(np.float32)
        return value, self.to_theta(value)

    @property
    def gaussian(self):
        return GaussianTerms(np.zeros(self.prior.dim), np.eye(self.prior.dim))


class StandardisedFrame(Frame):
    """value = (theta - centre) / spread, with the prior's median and central 68 % range."""

    always_inside = False

    def __init__(self, prior: JointPrior, dtype: type, least_accepted: float = LEAST_ACCEPTED):
        self.prior, self.dtype, self.least_accepted = prior, dtype, least_accepted
        if prior.gaussian_moments is not None:
            mean, covariance = prior.gaussian_moments
            self.centre, self.spread = mean, np.sqrt(np.diag(covariance))
        else:
            draws = prior.sample(np.random.default_rng(0), 20_000)
            low, self.centre, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
            self.spread = np.maximum((high - low) / 2, 1e-12 * np.maximum(np.abs(self.centre), 1.0))

    def to_theta(self, value):
        theta = self.centre + self.spread * np.asarray(value, np.float64)
        return theta.astype(self.dtype).astype(np.float64)

    def from_theta(self, theta):
        return (theta - self.centre) / self.spread

    def log_prior(self, value, theta):
        return self.prior.log_prob(theta) + np.sum(np.log(self.spread))

    def log_volume(self, value, theta):
        # The same constant as the base class computes, but free of inf - inf outside the support.
        return np.full(len(theta), -np.sum(np.log(self.spread)))

    def draw_prior(self, rng, n):
        theta = self.prior.sample(rng, n)
        if self.dtype == np.float32 and self.prior.latent:
            theta = self.prior.forward(self.prior.inverse(theta), dtype=self.dtype)
        elif self.dtype == np.float32:
            rounded = theta.astype(np.float32)
            inwards = np.nextafter(rounded, self.centre.astype(np.float32))
            inside = self.prior.contains(rounded)
            theta = np.where(inside[:, None], rounded, inwards).astype(np.float64)
        return self.from_theta(theta).astype(np.float32), theta

    @property
    def gaussian(self):
        dim = self.prior.dim
        if self.prior.flat:
            return GaussianTerms(np.zeros(dim), np.zeros((dim, dim)))
        if self.prior.gaussian_moments is None:
            return None
        covariance = self.prior.gaussian_moments[1] / np.outer(self.spread, self.spread)
        return GaussianTerms(np.zeros(dim), np.linalg.inv(covariance))


class Space(ABC):
    """Which coordinates to learn in."""

    @abstractmethod
    def frame(self, prior: JointPrior, dtype: type) -> Frame: ...


@dataclass(frozen=True)
class Latent(Space):
    """Learn in z, where the prior is N(0, I) (default). A prior with only `sample` and `log_prob` has no
    such coordinates and is learned in standardised theta."""

    def frame(self, prior, dtype=np.float64):
        return LatentFrame(prior, dtype) if prior.latent else StandardisedFrame(prior, dtype)


@suggests_keywords
@dataclass(frozen=True)
class Theta(Space):
    """Learn in standardised theta, as the paper does; mass outside the prior is rejected.

    Args:
        least_accepted: sampling gives up where fewer than this share of an estimator's draws lie inside the
            prior's support. Smaller goes on for longer: 1e-4 takes up to 10,000 draws for each that is kept.
    """

    least_accepted: float = LEAST_ACCEPTED

    def __post_init__(self):
        if positive_float("Theta least_accepted", self.least_accepted) > 1:
            raise ValueError(f"Theta least_accepted must be a share in (0, 1], got {self.least_accepted}.")

    def frame(self, prior, dtype=np.float64):
        return StandardisedFrame(prior, dtype, self.least_accepted)
