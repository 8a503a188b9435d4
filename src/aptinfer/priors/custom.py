"""Priors that the user writes: by a bijection from N(0, I), or by draws and a density alone."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import kolmogorov, ndtr

from aptinfer.priors.joint import JointPrior, checked_names, function_note
from aptinfer.priors.marginal_maps import LOG_ROOT_TWO_PI, Z_MAX

ROUND_TRIP_TOLERANCE = 1e-5
DENSITY_TOLERANCE = 1e-3
FALSE_ALARM = 1e-6  # probability that a right `sample` is refused, per test
STANDARD_ERRORS = 6.0  # the same for a mean or a covariance
TRIAL_ROWS = 64
SAMPLE_ROWS = 4000
SHRINK = (1.0, 1 - 1e-6, 1 - 1e-4, 0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)  # 0.5 Z_MAX is 4.1


class BijectivePrior(JointPrior):
    """A dependent prior given as a bijection from z ~ N(0, I).

    It is checked when built, on fixed draws: that `inverse` undoes `forward`, that the density
    obeys log p(theta) + log |det dtheta/dz| = log N(z; 0, I), and, where `sample` is given, that
    `inverse(sample(rng, n))` is standard normal.

    Args:
        forward: z (n, dim) -> theta (n, dim), in float64.
        inverse: theta (n, dim) -> z (n, dim); called with values inside the support only.
        log_prob: theta (n, dim) -> (n,), -inf outside the support.
        names: the parameters' names.
        sample: (rng, n) -> theta (n, dim), independent draws from the prior, for the check alone.
    """

    def __init__(
        self,
        forward: Callable[[np.ndarray], Any],
        inverse: Callable[[np.ndarray], Any],
        log_prob: Callable[[np.ndarray], Any],
        names: Sequence[str],
        sample: Callable[[np.random.Generator, int], Any] | None = None,
    ):
        self.names = checked_names(names, len(names))
        self._functions = {"forward": forward, "inverse": inverse, "log_prob": log_prob}
        self._check_bijection()
        if sample is not None:
            self._check_sample(sample)

    def to_dict(self) -> dict[str, Any]:
        """The functions' names; their code is not kept."""
        notes = {name: function_note(f) for name, f in self._functions.items()}
        return {"kind": "bijection", "names": list(self.names), **notes}

    def __repr__(self) -> str:
        return f"BijectivePrior({', '.join(self.names)})"

    def _call(self, function: str, value: np.ndarray) -> np.ndarray:
        shape = (len(value),) if function == "log_prob" else value.shape
        return _checked_call(function, self._functions[function], shape, value)

    def _forward(self, z, dtype):
        # The support is known by its density only: a row that saturates or is rounded onto the
        # edge is pulled a little towards the centre until it is inside.
        theta = self._call("forward", z).astype(dtype).astype(np.float64)
        for factor in SHRINK:
            bad = np.flatnonzero(~self._contains(theta) & np.isfinite(z).all(axis=1))
            if len(bad) == 0:
                return theta
            pulled = factor * np.clip(z[bad], -Z_MAX, Z_MAX)
            theta[bad] = self._call("forward", pulled).astype(dtype).astype(np.float64)
        bad = np.flatnonzero(~self._contains(theta) & np.isfinite(z).all(axis=1))
        if len(bad):
            raise ValueError(
                f"forward gives theta of zero density for {len(bad)} of {len(z)} rows, the first "
                f"at z={z[bad[0]]}. forward must map into the support of log_prob."
            )
        return theta

    def _inverse(self, theta):
        inside = self._contains(theta)
        z = np.full(theta.shape, np.nan)
        z[inside] = self._call("inverse", theta[inside])
        return z

    def _log_prob(self, theta):
        return _density(lambda t: self._call("log_prob", t), theta)

    def _contains(self, theta):
        return np.isfinite(self._log_prob(theta))

    def _sample(self, rng, n):
        return self._forward(rng.standard_normal((n, self.dim)), np.float64)

    def _check_bijection(self) -> None:
        z = np.random.default_rng(0).standard_normal((TRIAL_ROWS, self.dim))
        with np.errstate(all="ignore"):
            theta = self._call("forward", z)
            back = self._call("inverse", theta)
            log_prob = self._call("log_prob", theta)
            slope = self._jacobian(z)
        gap = np.abs(back - z).max()
        if not gap <= ROUND_TRIP_TOLERANCE:
            raise ValueError(
                f"inverse(forward(z)) differs from z by up to {gap:g} (allowed "
                f"{ROUND_TRIP_TOLERANCE:g}). Make `inverse` the exact inverse, in float64."
            )
        log_normal = -0.5 * (z**2).sum(axis=1) - self.dim * LOG_ROOT_TWO_PI
        excess = log_prob + np.linalg.slogdet(slope)[1] - log_normal
        worst = np.abs(excess).max()
        if not worst <= DENSITY_TOLERANCE:
            raise ValueError(
                "log_prob(forward(z)) + log|det dtheta/dz| differs from log N(z; 0, I) by up to "
                f"{worst:g}, on average {excess.mean():g} (allowed {DENSITY_TOLERANCE:g}). "
                "log_prob must be the normalised density of forward(z) for z ~ N(0, I)."
            )

    def _jacobian(self, z: np.ndarray) -> np.ndarray:
        """dtheta/dz, shape (n, dim, dim), by central differences of fourth order."""
        h = 1e-2
        columns = []
        for step in h * np.eye(self.dim):
            near = self._call("forward", z + step) - self._call("forward", z - step)
            far = self._call("forward", z + 2 * step) - self._call("forward", z - 2 * step)
            columns.append((8 * near - far) / (12 * h))
        return np.stack(columns, axis=-1)

    def _check_sample(self, sample: Callable[[np.random.Generator, int], Any]) -> None:
        shape = (SAMPLE_ROWS, self.dim)
        theta = _checked_call("sample", sample, shape, np.random.default_rng(0), SAMPLE_ROWS)
        z = self.inverse(theta)
        outside = int((~np.isfinite(z).all(axis=1)).sum())
        if outside:
            raise ValueError(
                f"{outside} of {SAMPLE_ROWS} draws of `sample` have no finite z: they lie outside "
                "the support of log_prob, or inverse fails on them."
            )
        advice = "`sample` and `forward` must describe the same prior, and draws be independent."
        error = 1 / np.sqrt(SAMPLE_ROWS)
        mean = z.mean(axis=0)
        j = int(np.abs(mean).argmax())
        if abs(mean[j]) > STANDARD_ERRORS * error:
            raise ValueError(
                f"inverse(sample) is not N(0, I): its mean is {mean[j]:.3g} for "
                f"{self.names[j]!r}, expected 0 +- {error:.2g}. {advice}"
            )
        identity = np.eye(self.dim)
        gap = z.T @ z / SAMPLE_ROWS - identity
        excess = np.abs(gap) / (error * np.sqrt(1 + identity))
        i, j = np.unravel_index(excess.argmax(), excess.shape)
        if excess[i, j] > STANDARD_ERRORS:
            raise ValueError(
                f"inverse(sample) is not N(0, I): its covariance is off by {gap[i, j]:.3g} for "
                f"{self.names[i]!r} and {self.names[j]!r}. {advice}"
            )
        for name, column in zip(self.names, z.T, strict=True):
            distance = _kolmogorov_distance(column)
            if kolmogorov(np.sqrt(SAMPLE_ROWS) * distance) < FALSE_ALARM:
                raise ValueError(
                    f"inverse(sample) is not N(0, I): the distribution function of {name!r} is off "
                    f"by up to {distance:.3g}. {advice}"
                )


class CustomPrior(JointPrior):
    """A prior known by draws and density alone; it has no bijection to N(0, I).

    Args:
        sample: (rng, n) -> theta (n, dim).
        log_prob: theta (n, dim) -> (n,), -inf (or NaN) outside the support.
        names: the parameters' names.
    """

    latent = False

    def __init__(
        self,
        sample: Callable[[np.random.Generator, int], Any],
        log_prob: Callable[[np.ndarray], Any],
        names: Sequence[str],
    ):
        self.names = checked_names(names, len(names))
        self._functions = {"sample": sample, "log_prob": log_prob}
        theta = self.sample(np.random.default_rng(0), TRIAL_ROWS)
        bad = int((~np.isfinite(self.log_prob(theta))).sum())
        if bad:
            raise ValueError(
                f"log_prob is not finite for {bad} of {TRIAL_ROWS} of the prior's own draws. "
                "sample and log_prob must describe the same prior."
            )

    def to_dict(self) -> dict[str, Any]:
        """The functions' names; their code is not kept."""
        notes = {name: function_note(f) for name, f in self._functions.items()}
        return {"kind": "custom", "names": list(self.names), **notes}

    def __repr__(self) -> str:
        return f"CustomPrior({', '.join(self.names)})"

    def _forward(self, z, dtype):
        raise self._no_bijection()

    def _inverse(self, theta):
        raise self._no_bijection()

    def _log_prob(self, theta):
        call = self._functions["log_prob"]
        return _density(lambda t: _checked_call("log_prob", call, (len(t),), t), theta)

    def _contains(self, theta):
        return np.isfinite(self._log_prob(theta))

    def _sample(self, rng, n):
        return _checked_call("sample", self._functions["sample"], (n, self.dim), rng, n)

    def _no_bijection(self) -> TypeError:
        return TypeError(
            "this prior has only sample and log_prob, so there is no map between theta and "
            "z ~ N(0, I). Build it as Prior(...) with conditionals, or as BijectivePrior."
        )


def _density(log_prob: Callable[[np.ndarray], np.ndarray], theta: np.ndarray) -> np.ndarray:
    """log p of the finite rows; a row that is not finite, or whose density is NaN, is outside."""
    result = np.full(len(theta), -np.inf)
    finite = np.isfinite(theta).all(axis=1)
    if finite.any():
        value = log_prob(theta[finite])
        result[finite] = np.where(np.isnan(value), -np.inf, value)
    return result


def _checked_call(
    name: str, function: Callable[..., Any], shape: tuple[int, ...], *arguments: Any
) -> np.ndarray:
    """The user's function as a float64 array of the expected shape."""
    result = np.array(function(*arguments), dtype=np.float64)
    if result.shape != shape:
        raise ValueError(f"{name} must return an array of shape {shape}, got {result.shape}.")
    return result


def _kolmogorov_distance(z: np.ndarray) -> float:
    """max |F_n(z) - Phi(z)| over the sample."""
    uniform = ndtr(np.sort(z))
    grid = np.arange(len(z) + 1) / len(z)
    return float(max((grid[1:] - uniform).max(), (uniform - grid[:-1]).max()))
