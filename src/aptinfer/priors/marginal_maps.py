"""One-dimensional priors and their exact, increasing map to the standard normal.

A marginal with distribution function F is tied to z ~ N(0, 1) by

    theta = F^-1(Phi(z)),        z = Phi^-1(F(theta)),

and log p(theta) + log dtheta/dz = log N(z; 0, 1). Both directions are split at the median, so that
a tail probability is always a small number and never one minus a small number. Parameters may be
arrays that broadcast against the values: one distribution per row, as conditional priors need.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from aptinfer.priors.standard_laws import Law

# Phi(-8.2) is about 1.2e-16: beyond it, 1 - Phi(z) is 1 in float64 and a quantile may be infinite.
Z_MAX = 8.2
LOG_ROOT_TWO_PI = 0.5 * np.log(2 * np.pi)


def checked_parameter(name: str, value: object, *, positive: bool = False) -> np.ndarray:
    """`value` as a finite float64 array (a scalar, or one number per row), above 0 if asked."""
    array = np.asarray(value, dtype=np.float64)
    bad = ~np.isfinite(array) | ((array <= 0) if positive else False)
    if bad.any():
        first = np.argwhere(bad)[0]
        where = "" if array.ndim == 0 else f" (row {int(first[0])} of {array.shape[0]})"
        expected = "finite and above 0" if positive else "finite"
        raise ValueError(
            f"{name} must be {expected}, got {array[tuple(first)]}{where}. "
            "Correct this parameter of the distribution."
        )
    return array


def checked_bounds(low: np.ndarray, high: np.ndarray) -> None:
    """Refuse an empty or reversed interval."""
    bad = np.atleast_1d(~(low < high))
    if bad.any():
        row = int(np.argmax(bad))
        first, second = (np.atleast_1d(b)[row] for b in np.broadcast_arrays(low, high))
        raise ValueError(
            f"low must be below high, got low={first}, high={second}. "
            "Swap or widen them; a parameter with one possible value belongs in the simulator."
        )


def round_inside(theta: np.ndarray, low: np.ndarray, high: np.ndarray, dtype: Any) -> np.ndarray:
    """Round to `dtype`, strictly between `low` and `high`; the result is a float64 array.

    An edge at zero is replaced by the least *normal* number, as XLA flushes subnormal ones to zero.
    """
    info = np.finfo(dtype)
    bottom = np.clip(low, -info.max, info.max).astype(dtype)
    top = np.clip(high, -info.max, info.max).astype(dtype)
    bottom = np.where(bottom > low, bottom, np.nextafter(bottom, info.max, dtype=dtype))
    top = np.where(top < high, top, np.nextafter(top, info.min, dtype=dtype))
    bottom = np.where(np.abs(bottom) < info.tiny, np.where(low < 0, 0, info.tiny), bottom)
    top = np.where(np.abs(top) < info.tiny, np.where(high > 0, 0, -info.tiny), top)
    if np.any(bottom > top):
        raise ValueError(
            f"no {np.dtype(dtype).name} number lies strictly between low={low} and high={high}. "
            "Widen the support, or move its origin to zero inside the simulator."
        )
    return np.clip(theta, bottom, top).astype(dtype).astype(np.float64)


class Marginal(ABC):
    """A continuous distribution on an interval, with its map to N(0, 1).

    Attributes:
        family: the family's name, for descriptions.
        parameters: name -> float64 array, as given by the user.
        low: lower end of the support (maybe -inf).
        high: upper end of the support (maybe inf).
    """

    family: str
    parameters: dict[str, np.ndarray]
    low: np.ndarray
    high: np.ndarray

    def forward(self, z: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """theta = F^-1(Phi(z)), strictly inside the support also after rounding to `dtype`."""
        with np.errstate(all="ignore"):
            theta = self._to_theta(np.asarray(z, np.float64))
            return round_inside(theta, self.low, self.high, dtype)

    def inverse(self, theta: np.ndarray) -> np.ndarray:
        """z = Phi^-1(F(theta)); NaN outside the support."""
        theta = np.asarray(theta, np.float64)
        with np.errstate(all="ignore"):
            return np.where(self.contains(theta), self._to_z(theta), np.nan)

    def log_prob(self, theta: np.ndarray) -> np.ndarray:
        """log p(theta); -inf outside the support."""
        theta = np.asarray(theta, np.float64)
        with np.errstate(all="ignore"):
            return np.where(self.contains(theta), self._log_density(theta), -np.inf)

    def contains(self, theta: np.ndarray) -> np.ndarray:
        """Whether theta lies strictly inside the support."""
        theta = np.asarray(theta, np.float64)
        return (theta > self.low) & (theta < self.high)

    def to_dict(self) -> dict[str, Any]:
        """Family and parameters as plain numbers and lists; an infinite bound is None."""
        plain = {
            name: None if value.ndim == 0 and np.isinf(value) else value.tolist()
            for name, value in self.parameters.items()
        }
        return {"family": self.family, **plain}

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{name}={float(value):g}" if value.ndim == 0 else f"{name}=<{value.size} rows>"
            for name, value in self.parameters.items()
        )
        return f"{self.family}({inside})"

    @abstractmethod
    def _to_theta(self, z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _to_z(self, theta: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _log_density(self, theta: np.ndarray) -> np.ndarray: ...


class Normal(Marginal):
    """theta = loc + scale z: affine, so z needs no clipping."""

    family = "normal"

    def __init__(self, loc: object, scale: object):
        self.loc = checked_parameter("loc", loc)
        self.scale = checked_parameter("scale", scale, positive=True)
        self.parameters = {"loc": self.loc, "scale": self.scale}
        self.low, self.high = np.array(-np.inf), np.array(np.inf)

    def _to_theta(self, z):
        return self.loc + self.scale * z

    def _to_z(self, theta):
        return (theta - self.loc) / self.scale

    def _log_density(self, theta):
        return -0.5 * self._to_z(theta) ** 2 - np.log(self.scale) - LOG_ROOT_TWO_PI


class LogNormal(Marginal):
    """log theta = loc + scale z: affine in the logarithm."""

    family = "log_normal"

    def __init__(self, loc: object, scale: object):
        self._log = Normal(loc, scale)
        self.parameters = self._log.parameters
        self.low, self.high = np.array(0.0), np.array(np.inf)

    def _to_theta(self, z):
        return np.exp(self._log._to_theta(z))

    def _to_z(self, theta):
        return self._log._to_z(np.log(theta))

    def _log_density(self, theta):
        return self._log._log_density(np.log(theta)) - np.log(theta)


class Uniform(Marginal):
    """Uniform on (low, high), measured from the nearer end.

    The distance to the end is what the tail of z encodes: near `high` it is computed as
    high - theta, which is exact, and not as 1 - (theta - low) / width.
    """

    family = "uniform"

    def __init__(self, low: object, high: object):
        self.low = checked_parameter("low", low)
        self.high = checked_parameter("high", high)
        checked_bounds(self.low, self.high)
        with np.errstate(over="ignore"):
            self.width = checked_parameter("the width high - low", self.high - self.low)
        self.parameters = {"low": self.low, "high": self.high}

    def _to_theta(self, z):
        step = self.width * ndtr(-np.minimum(np.abs(z), Z_MAX))
        return np.where(z <= 0, self.low + step, self.high - step)

    def _to_z(self, theta):
        return _z_from_tails((theta - self.low) / self.width, (self.high - theta) / self.width)

    def _log_density(self, theta):
        return np.zeros_like(theta) - np.log(self.width)


class LogUniform(Marginal):
    """log theta uniform on (log low, log high), measured from the nearer end by expm1 and log1p."""

    family = "log_uniform"

    def __init__(self, low: object, high: object):
        self.low = checked_parameter("low", low, positive=True)
        self.high = checked_parameter("high", high, positive=True)
        checked_bounds(self.low, self.high)
        # log(high / low) itself would lose digits when the two are close, or overflow when far.
        ratio = (self.high - self.low) / self.low
        apart = np.log(self.high) - np.log(self.low)
        self.width = np.where(ratio < 1, np.log1p(ratio), apart)
        self.parameters = {"low": self.low, "high": self.high}

    def _to_theta(self, z):
        step = self.width * ndtr(-np.minimum(np.abs(z), Z_MAX))
        below = self.low + self.low * np.expm1(step)
        above = self.high + self.high * np.expm1(-step)
        return np.where(z <= 0, below, above)

    def _to_z(self, theta):
        below = np.log1p((theta - self.low) / self.low) / self.width
        above = -np.log1p((theta - self.high) / self.high) / self.width
        return _z_from_tails(below, above)

    def _log_density(self, theta):
        return -np.log(theta) - np.log(self.width)


class LocationScale(Marginal):
    """theta = loc + scale t, where t follows a standard law with accurate tails of its own."""

    def __init__(self, family: str, law: Law, shapes: dict[str, Any], loc: object = 0.0, scale: object = 1.0):
        self.family = family
        self.law = law
        given = {n: checked_parameter(n, s, positive=True) for n, s in shapes.items()}
        self.shapes = tuple(given.values())
        self.loc = checked_parameter("loc", loc)
        self.scale = checked_parameter("scale", scale, positive=True)
        self.parameters = {**given, "loc": self.loc, "scale": self.scale}
        self.low = np.asarray(self.loc + self.scale * law.low)
        self.high = np.asarray(self.loc + self.scale * law.high)

    def _to_theta(self, z):
        tail = ndtr(-np.minimum(np.abs(z), Z_MAX))
        t = _either(z <= 0, self.law.ppf, self.law.isf, tail, *self.shapes)
        return self.loc + self.scale * t

    def _to_z(self, theta):
        t = (theta - self.loc) / self.scale
        return _z_from_tails(self.law.cdf(t, *self.shapes), self.law.sf(t, *self.shapes))

    def _log_density(self, theta):
        t = (theta - self.loc) / self.scale
        return self.law.log_density(t, *self.shapes) - np.log(self.scale)


class External(Marginal):
    """A distribution known only by its quantile and distribution functions (any of scipy's).

    Its tails are as accurate as those functions are.
    """

    def __init__(
        self,
        family: str,
        law: Law,
        parameters: dict[str, np.ndarray] | None = None,
    ):
        self.family, self.law, self.parameters = family, law, parameters or {}
        with np.errstate(all="ignore"):
            middle = np.asarray(law.ppf(np.float64(0.5)), np.float64)
        # The bounds take the batch shape, which the law itself does not tell.
        self.low, self.high = np.asarray(law.low + 0 * middle), np.asarray(law.high + 0 * middle)
        if not (np.isfinite(middle).all() and np.all(self.low < self.high)):
            raise ValueError(
                f"the distribution {family!r} has no finite median, so its parameters are outside "
                "their domain. Correct its shape, loc or scale."
            )

    def _to_theta(self, z):
        tail = ndtr(-np.minimum(np.abs(z), Z_MAX))
        return np.where(z <= 0, self.law.ppf(tail), self.law.isf(tail))

    def _to_z(self, theta):
        return _z_from_tails(self.law.cdf(theta), self.law.sf(theta))

    def _log_density(self, theta):
        return self.law.log_density(theta)


def _either(
    where: np.ndarray, first: Callable[..., Any], second: Callable[..., Any], *arguments: np.ndarray
) -> np.ndarray:
    """`first` where `where`, else `second`, each on its own entries only: quantiles are slow."""
    where, *spread = np.broadcast_arrays(where, *arguments)
    result = np.empty(where.shape)
    for pick, function in ((where, first), (~where, second)):
        result[pick] = function(*(argument[pick] for argument in spread))
    return result


def _z_from_tails(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """z from P(T <= t) and P(T > t), reading whichever is the small one; |z| stays finite."""
    z = np.where(below <= 0.5, ndtri(below), -ndtri(above))
    return np.clip(z, -Z_MAX, Z_MAX)
