"""What every prior over several named parameters can do."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from aptinfer.checks import numeric_array, positive_int


class JointPrior(ABC):
    """A prior density over `dim` named parameters.

    Where `latent` is True the prior also carries an exact bijection between theta and z ~ N(0, I):

        log p(theta) = log N(z; 0, I) - log |det dtheta/dz|,    z = inverse(theta).

    Values are float64 arrays of shape (n, dim), one row per draw.
    """

    names: tuple[str, ...]
    latent: bool = True

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.names)

    def forward(self, z: Any, dtype: Any = np.float64) -> np.ndarray:
        """theta from z, strictly inside the support.

        Args:
            z: latent values, shape (n, dim).
            dtype: np.float32 rounds inside the support in float32; the result is a float64 array
                of numbers that float32 represents.
        """
        with np.errstate(all="ignore"):
            return self._forward(self._rows("z", z), dtype)

    def inverse(self, theta: Any) -> np.ndarray:
        """z from theta; a row outside the support is NaN."""
        with np.errstate(all="ignore"):
            return self._inverse(self._rows("theta", theta))

    def log_prob(self, theta: Any) -> np.ndarray:
        """log p(theta), shape (n,); -inf outside the support."""
        with np.errstate(all="ignore"):
            return self._log_prob(self._rows("theta", theta))

    def contains(self, theta: Any) -> np.ndarray:
        """Whether each row lies strictly inside the support, shape (n,)."""
        with np.errstate(all="ignore"):
            return self._contains(self._rows("theta", theta))

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n draws, shape (n, dim)."""
        if not isinstance(rng, np.random.Generator):
            raise TypeError(
                f"rng must be a numpy.random.Generator, got {type(rng).__name__}. "
                "Make one with numpy.random.default_rng(seed)."
            )
        return self._sample(rng, positive_int("n", n, minimum=0))

    @property
    def gaussian_moments(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and covariance where the prior is Gaussian, else None."""
        return None

    @property
    def uniform(self) -> tuple[bool, ...]:
        """Which parameters are uniform between bounds that do not depend on others."""
        return (False,) * self.dim

    @property
    def flat(self) -> bool:
        """Whether the density is constant on a box, its support."""
        return all(self.uniform)

    @property
    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of each parameter; infinite where unbounded or not known."""
        return np.full(self.dim, -np.inf), np.full(self.dim, np.inf)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A description that JSON can hold."""

    @abstractmethod
    def _forward(self, z: np.ndarray, dtype: Any) -> np.ndarray: ...

    @abstractmethod
    def _inverse(self, theta: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _log_prob(self, theta: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _contains(self, theta: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _sample(self, rng: np.random.Generator, n: int) -> np.ndarray: ...

    def _rows(self, what: str, value: Any) -> np.ndarray:
        array = numeric_array(what, value)
        if array.ndim != 2 or array.shape[1] != self.dim:
            raise ValueError(
                f"{what} must have shape (n, {self.dim}), one row per draw of "
                f"({', '.join(self.names)}); got shape {array.shape}. "
                f"Reshape one draw with array[None, :]."
            )
        return array


def checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """`dim` different non-empty names; theta_1, theta_2, ... by default."""
    if names is None:
        return tuple(f"theta_{j + 1}" for j in range(dim))
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of strings, got the string {names!r}.")
    names = tuple(names)
    wrong = [n for n in names if not isinstance(n, str) or not n]
    if wrong:
        raise TypeError(f"names must be non-empty strings, got {wrong[0]!r}.")
    if dim == 0:
        raise ValueError("names must have at least one entry, got none. Name every parameter.")
    if len(names) != dim:
        raise ValueError(f"names must have one entry for each of {dim} parameters, got {names!r}.")
    twice = [n for i, n in enumerate(names) if n in names[:i]]
    if twice:
        raise ValueError(f"names must differ, got {twice[0]!r} twice. Rename one of them.")
    return names


def function_note(function: Any) -> dict[str, str]:
    """A user's function in a description: its name, as code is not stored."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None) or type(function).__module__
    return {"function": f"{module}.{name}", "note": "a function of the user; its code is not kept"}
