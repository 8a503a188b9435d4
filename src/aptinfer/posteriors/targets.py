"""What samplers are given: a learned likelihood times the prior, in the coordinates of a frame."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from aptinfer.samplers.target import HostPrior, Target
from aptinfer.spaces import Frame


class _Learned(Target):
    """`params` are a model and an observation as the model sees it."""

    def log_likelihood(self, params: Any, z):
        model, x = params
        return model.log_likelihood(x, z)


@dataclass(frozen=True)
class LatentTarget(_Learned):
    """In latent space the prior is N(0, I), whatever it is over theta: equal shapes share programs."""

    dim: int


@dataclass(frozen=True)
class BoundedTarget(_Learned):
    """A Gaussian or a flat prior in standardised theta, within bounds that may be infinite.

    Numbers are tuples, so that equal priors share compiled programs.
    """

    dim: int
    mean: tuple[float, ...]
    precision: tuple[tuple[float, ...], ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    frame: Frame = field(compare=False)

    def log_prior(self, z):
        apart = z - np.asarray(self.mean, np.float32)
        height = -0.5 * apart @ np.asarray(self.precision, np.float32) @ apart
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        return jnp.where(jnp.all((z > low) & (z < high)), height, -jnp.inf)

    def draw_prior(self, rng, n):
        return self.frame.draw_prior(rng, n)[0]


@dataclass(frozen=True, eq=False)
class HostTarget(HostPrior, _Learned):
    """Any other prior in standardised theta: its density is a function on the host."""

    dim: int
    frame: Frame

    def log_prior_rows(self, z):
        theta = self.frame.to_theta(z)
        inside = self.frame.prior.contains(theta)
        out = np.full(len(z), -np.inf)
        if inside.any():
            out[inside] = self.frame.log_prior(z[inside], theta[inside])
        return out

    def draw_prior(self, rng, n):
        return self.frame.draw_prior(rng, n)[0]


def target_in(frame: Frame) -> Target:
    """A learned likelihood times the frame's prior."""
    dim = frame.prior.dim
    if frame.always_inside:
        return LatentTarget(dim)
    if frame.gaussian is None:
        return HostTarget(dim, frame)
    low, high = (frame.from_theta(edge) for edge in frame.prior.support)
    mean, precision, low, high = (_tuples(np.asarray(a)) for a in (*frame.gaussian, low, high))
    return BoundedTarget(dim, mean, precision, low, high, frame)


def _tuples(array: np.ndarray) -> Any:
    return tuple(map(_tuples, array)) if array.ndim else float(array)
