"""What every posterior can do, whatever stands behind it.

A kind of posterior brings three functions: `draw`, the values and theta of so many draws; `log_prob_inside`,
the density at values inside the prior's support; and `at`, the same posterior at another observation. One
that cannot do something says so there, with the alternative.
"""

import os
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Self

import numpy as np

from aptinfer.checks import finite_array, numeric_array, positive_int, whole_seed
from aptinfer.keys import Key
from aptinfer.spaces import Frame


class Posterior(ABC):
    """The estimate of p(theta | x_o).

    Attributes:
        frame: the coordinates in which it was learned, and the prior.
        observation: x_o, or several observations along a first axis.
        event: shape of one observation.
    """

    frame: Frame
    observation: np.ndarray
    event: tuple[int, ...]

    @abstractmethod
    def draw(self, key: Key, n: int) -> tuple[np.ndarray, np.ndarray]:
        """`n` values and their theta, all inside the support, in bounded time."""

    @abstractmethod
    def log_prob_inside(self, values: np.ndarray) -> np.ndarray:
        """log q(value | x_o) in the frame's coordinates, normalised over the support; for values inside."""

    @abstractmethod
    def at(self, observation: np.ndarray) -> Self:
        """The same posterior at another observation, or at several along a first axis."""

    def try_out(self) -> None:  # noqa: B027  # there may be nothing to try
        """Raise if the parts of a posterior from a file do not fit together. Computes next to nothing."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.frame.prior.names

    @property
    def missing(self) -> bool:
        """Whether entries of an observation may be missing, that is, NaN."""
        return False

    @property
    def any_length(self) -> bool:
        """Whether an observation may have more steps or elements than the simulator's."""
        return False

    @property
    def batched(self) -> bool:
        """Whether there are several observations."""
        return self.observation.ndim > len(self.event)

    def given(self, x: object) -> Self:
        """The posterior at another observation, or at several along a first axis (amortised)."""
        x = check_observation(
            "x", x, self.event, several=True, missing=self.missing, any_length=self.any_length
        )
        return self.at(x)

    def sample(self, n: int = 1000, *, seed: int = 0) -> np.ndarray:
        """`n` draws of theta: (n, dim), or (observations, n, dim) for several observations.

        Among several, observation i has the draws that it alone would have with `seed + i`.
        """
        n, seed = positive_int("n", n), whole_seed(seed)
        if self.batched:
            one = [p.sample(n, seed=seed + i) for i, p in enumerate(self._each())]
            return np.stack(one)
        return self.draw(Key((seed,)), n)[1]

    def log_prob(self, theta: object) -> np.ndarray:
        """log q(theta | x_o), normalised over the prior's support; -inf outside it.

        theta: (dim,) or (n, dim); for several observations (observations, n, dim) or (n, dim) for all.
        """
        theta = numeric_array("theta", theta)
        dim = self.frame.prior.dim
        if theta.ndim == 0 or theta.shape[-1] != dim or theta.ndim > 2 + self.batched:
            raise ValueError(
                f"theta must have shape ({dim},) or (n, {dim}) for parameters {self.names}; got "
                f"{theta.shape}."
            )
        if self.batched:
            each = theta if theta.ndim == 3 else [theta] * len(self.observation)
            if len(each) != len(self.observation):
                raise ValueError(
                    f"theta has shape {theta.shape}, but there are {len(self.observation)} observations. "
                    f"Give (n, {dim}) for all of them or ({len(self.observation)}, n, {dim})."
                )
            return np.stack([p.log_prob(t) for p, t in zip(self._each(), each, strict=True)])
        flat = np.atleast_2d(theta)
        out = np.full(len(flat), -np.inf)
        inside = self.frame.prior.contains(flat)
        if inside.any():
            value = self.frame.from_theta(flat[inside])
            volume = self.frame.log_volume(value, flat[inside])
            out[inside] = self.log_prob_inside(value) + volume
        return out.reshape(theta.shape[:-1])

    def map(self, *, seed: int = 0) -> np.ndarray:
        """The parameters of highest posterior density."""
        from aptinfer.optimise import highest_density

        seed = whole_seed(seed)
        if self.batched:
            return np.stack([p.map(seed=seed) for p in self._each()])
        return highest_density(self, seed)

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior to a small file of its own (safetensors), for `apt.load_posterior`.

        Functions and networks of your own, in the prior or as the embedding, are not written and must be
        passed to `apt.load_posterior` again.
        """
        from aptinfer.storage.saved import save

        save(self, path)

    def mean(self) -> np.ndarray:
        return self._summary_draws.mean(axis=-2)

    def std(self) -> np.ndarray:
        return self._summary_draws.std(axis=-2)

    def quantiles(self, probabilities=(0.05, 0.5, 0.95)) -> np.ndarray:
        """Marginal quantiles: (probabilities, dim), or (probabilities, observations, dim)."""
        return np.quantile(self._summary_draws, checked_probabilities(probabilities), axis=-2)

    def __repr__(self) -> str:
        shape = f"{len(self.observation)} observations" if self.batched else "one observation"
        return f"Posterior({', '.join(self.names)}; at {shape})"

    def single_observation(self) -> np.ndarray:
        """x_o, where there is only one."""
        if self.batched:
            raise ValueError(
                f"this needs a single observation, and the posterior is at {len(self.observation)}. Take "
                f"them one by one: posterior.given(x[i])."
            )
        return self.observation

    def _each(self) -> list[Self]:
        return [self.at(x) for x in self.observation]

    @cached_property
    def _summary_draws(self) -> np.ndarray:
        return self.sample(10_000, seed=0)


def checked_probabilities(probabilities: object) -> np.ndarray:
    """The probabilities of quantiles as an array."""
    q = finite_array("probabilities", probabilities)
    if ((q < 0) | (q > 1)).any():
        raise ValueError(f"probabilities must lie between 0 and 1, got {probabilities!r}.")
    return q


def check_observation(
    name: str,
    x: object,
    event: tuple[int, ...] | None,
    *,
    several: bool = False,
    missing: bool = False,
    any_length: bool = False,
) -> np.ndarray:
    """x as a float64 array of the simulator's output shape.

    With `missing`, entries may be NaN, and a series or set may be shorter, as if padded with NaN; with
    `any_length` also longer.
    """
    array = np.atleast_1d(_with_gaps(name, x) if missing else finite_array(name, x, _IF_MISSING))
    if array.size == 0:
        raise ValueError(
            f"{name} has no entries, its shape is {array.shape}: nothing can be learned from it."
        )
    if event is None:
        return array
    shape = array.shape[1:] if several and array.ndim > len(event) else array.shape
    if shape == event:
        return array
    if missing and len(shape) == len(event) == 2 and shape[1] == event[1]:
        if any_length or shape[0] < event[0]:
            return array
        raise ValueError(
            f"{name} has length {shape[0]}, but the simulator returns at most {event[0]}, and this embedding "
            f"cannot take more. Pad simulations to at least {shape[0]} with NaN, or use apt.GRU(), "
            f"apt.Transformer(), apt.DeepSet() or apt.SetTransformer(), which take any length."
        )
    raise ValueError(
        f"{name} has shape {array.shape}, but the simulator returns x of shape {event}. "
        f"Give an observation of that shape" + (" or several along a first axis." if several else ".")
    )


_IF_MISSING = "Remove or repair them before inference; where they stand for missing data, say missing=True."


def _with_gaps(name: str, x: object) -> np.ndarray:
    """x as a float64 array that may have NaN in it, and nothing else that is no number."""
    array = numeric_array(name, x)
    if np.isinf(array).any():
        raise ValueError(
            f"{name} must not hold infinity: {np.isinf(array).sum()} of {array.size} entries do."
        )
    if array.size and np.isnan(array).all():
        raise ValueError(f"{name} holds nothing but NaN: at least one of its entries must be observed.")
    return array
