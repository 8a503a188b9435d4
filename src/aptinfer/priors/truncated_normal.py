"""A normal distribution truncated to an interval, exact near its edges and far in its tails.

In standard units the support is (a, b) with mass M = Phi(b) - Phi(a). A value near a finite edge
is known by its distance d to that edge, and its tail probability is

    mass(a, d) / M,    mass(a, d) = integral of phi from a to a + d.

Differences of Phi lose every digit when d is small or the interval is narrow or remote; scipy's
`truncnorm` does. Here a small d is integrated by Gauss-Legendre quadrature, a large one by
differences of log Phi taken in the left tail, and the quantile is polished by Newton steps on
log mass as a function of log d.
"""

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from aptinfer.priors.marginal_maps import (
    LOG_ROOT_TWO_PI,
    Z_MAX,
    Marginal,
    checked_bounds,
    checked_parameter,
)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
NEWTON_STEPS = 6


class TruncatedNormal(Marginal):
    """N(loc, scale^2) given low < theta < high; either bound may be infinite."""

    family = "truncated_normal"

    def __init__(self, loc: object, scale: object, low: object = -np.inf, high: object = np.inf):
        self.loc = checked_parameter("loc", loc)
        self.scale = checked_parameter("scale", scale, positive=True)
        self.low, self.high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        checked_bounds(self.low, self.high)
        self.parameters = {
            "loc": self.loc,
            "scale": self.scale,
            "low": self.low,
            "high": self.high,
        }
        self._a = np.asarray((self.low - self.loc) / self.scale)
        self._b = np.asarray((self.high - self.loc) / self.scale)
        with np.errstate(all="ignore"):
            bounded = _log_mass(self._a, (self.high - self.low) / self.scale)
            self._log_mass = np.where(np.isinf(self._a), log_ndtr(self._b), bounded)
        checked_parameter("the log of the mass between low and high", self._log_mass)
        self._median = self.forward(np.array(0.0))

    def _to_theta(self, z):
        edge, bound, sign = self._side(z <= 0)
        log_tail = log_ndtr(-np.minimum(np.abs(z), Z_MAX)) + self._log_mass
        unbounded = self.loc + sign * self.scale * ndtri_exp(log_tail)
        bounded = bound + sign * self.scale * _distance(edge, log_tail)
        return np.where(np.isinf(edge), unbounded, bounded)

    def _to_z(self, theta):
        edge, bound, sign = self._side(theta <= self._median)
        unbounded = log_ndtr(sign * (theta - self.loc) / self.scale)
        bounded = _log_mass(edge, sign * (theta - bound) / self.scale)
        log_tail = np.where(np.isinf(edge), unbounded, bounded) - self._log_mass
        return sign * np.clip(ndtri_exp(np.minimum(log_tail, 0.0)), -Z_MAX, Z_MAX)

    def _side(self, below: np.ndarray):
        """The nearer edge in standard units, the edge itself, and the sign of the way inwards.

        The upper tail of theta is the lower tail of -theta, so one formula serves both.
        """
        edge = np.where(below, self._a, -self._b)
        return edge, np.where(below, self.low, self.high), np.where(below, 1.0, -1.0)

    def _log_density(self, theta):
        t = (theta - self.loc) / self.scale
        return _log_phi(t) - np.log(self.scale) - self._log_mass


def _log_phi(t):
    return -0.5 * t * t - LOG_ROOT_TWO_PI


def _log_mass(a, d):
    """log of the integral of phi from a to a + d, for d > 0, maybe infinite."""
    a, d = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(d, np.float64))
    # phi(a + s) / phi(a) = exp(-a s - s^2 / 2) is integrated where it varies little.
    small = d * (np.abs(a) + 1 + d) < 3
    step = np.where(small, d, 0.0)[..., None] * (NODES + 1) / 2
    start = np.where(small, a, 0.0)
    ratio = np.exp(-start[..., None] * step - 0.5 * step * step) @ WEIGHTS / 2
    near = _log_phi(start) + np.log(np.where(small, d, 1.0) * ratio)
    # Reflected where it lies to the right, so that both log Phi are those of a left tail.
    end = a + d
    flip = a > 0
    big = log_ndtr(np.where(flip, -a, end))
    less = log_ndtr(np.where(flip, -end, a))
    return np.where(small, near, big + np.log1p(-np.exp(less - big)))


def _distance(a, log_mass):
    """The d with log_mass(a, d) as given, by Newton steps on log mass against log d."""
    a, log_mass = np.broadcast_arrays(a, log_mass)
    a = np.where(np.isinf(a), 0.0, a)  # an unbounded tail has its own formula
    linear = np.exp(log_mass - _log_phi(a))  # mass = phi(a) d for small d
    # Far from the edge, from Phi(a + d) = Phi(a) + mass: again in whichever tail is small.
    left = ndtri_exp(np.minimum(np.logaddexp(log_ndtr(a), log_mass), 0.0)) - a
    remaining = log_ndtr(-a) + np.log1p(-np.exp(np.minimum(log_mass - log_ndtr(-a), -1e-300)))
    right = -ndtri_exp(remaining) - a
    far = np.where(a > 0, right, left)
    near = linear * (np.abs(a) + 1) < 0.1
    distance = np.where(near | ~(far > 0) | ~np.isfinite(far), linear, far)
    for _ in range(NEWTON_STEPS):
        mass = _log_mass(a, distance)
        slope = np.exp(_log_phi(a + distance) - mass) * distance
        step = np.clip((mass - log_mass) / slope, -1.0, 1.0)
        step = np.where(np.isfinite(step), step, 0.0)
        distance = distance * np.exp(-step)
        if not np.any(np.abs(step) > 1e-12):
            break
    return distance
