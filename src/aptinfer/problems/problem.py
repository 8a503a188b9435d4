"""The record that every benchmark problem fills in."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from aptinfer import checks
from aptinfer.errors import SamplingError
from aptinfer.estimators.embeddings import Flatten
from aptinfer.estimators.flows import MAF
from aptinfer.methods.losses import Atomic
from aptinfer.priors.joint import JointPrior
from aptinfer.protocols import Simulator

__all__ = ["Problem"]

# What the paper learns most problems with: x as it is, five MADEs, every row against all of its minibatch.
PAPER_MAF = MappingProxyType({"estimator": MAF(), "embedding": Flatten(), "loss": Atomic(atoms=100)})

Reference = Callable[[np.random.Generator, np.ndarray, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Problem:
    """A simulator with its prior, one observation, and what is known about the answer.

    Args:
        name: the name under which `aptinfer.problems.get` finds it.
        prior: the prior over theta.
        simulator: draws x given theta.
        observation: the published observation x_o.
        truth: the theta that produced the observation, if one did.
        log_likelihood: `(theta, x) -> log p(x | theta)`, where it is known. Parameters and data
            are on the last axis; either argument may have one leading axis of draws.
        reference: `(rng, x_o, n) -> (n, dim)` posterior draws, where they can be had; call it
            through `reference_posterior`.
        observations: all published observations, along a first axis; `observation` alone if none
            are given.
        truths: the theta behind each of `observations`, where there is one.
        network: what the paper learns this problem with, as keywords of `apt.APT`.
    """

    name: str
    prior: JointPrior
    simulator: Simulator
    observation: np.ndarray
    truth: np.ndarray | None = None
    log_likelihood: Callable[[ArrayLike, ArrayLike], Array] | None = None
    reference: Reference | None = None
    observations: np.ndarray | None = None
    truths: np.ndarray | None = None
    network: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        observation = self._freeze("observation", self.observation)
        several = observation[None] if self.observations is None else self.observations
        several = self._freeze("observations", several)
        if several.shape[1:] != observation.shape:
            raise ValueError(
                f"observations must each have the shape of observation, {observation.shape}; got an "
                f"array of shape {several.shape}."
            )
        if self.truth is not None:
            self._freeze("truth", self.truth, (self.prior.dim,))
        if self.truths is not None:
            self._freeze("truths", self.truths, (len(several), self.prior.dim))

    def _freeze(self, name: str, value: object, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Check a field and make it read-only: problems are shared by everyone who gets them."""
        array = checks.finite_array(name, value)
        if shape is not None and array.shape != shape:
            raise ValueError(
                f"{name} must have one value per parameter, shape {shape}; got shape {array.shape}."
            )
        array.setflags(write=False)
        object.__setattr__(self, name, array)
        return array

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, as the prior gives them."""
        return tuple(self.prior.names)

    def reference_posterior(self, x_o: object, n: int, seed: int = 0) -> np.ndarray:
        """Draws from p(theta | x_o), to measure an estimate against: exact, or from chains that agree.

        Draws from chains are kept in the user's cache folder, as they take a while;
        `python -m aptinfer.problems` says which problems these are.

        Args:
            x_o: any observation of this problem, in the shape of `observation`.
            n: how many draws.
            seed: fixes the draws.

        Returns:
            Array of shape `(n, dim)`.

        Raises:
            NotImplementedError: no exact posterior is known for this problem.
            SamplingError: `x_o` is so implausible that too few draws were accepted, or the chains disagree.
        """
        if self.reference is None:
            raise NotImplementedError(
                f"{self.name!r} has no exact posterior to sample: its likelihood is intractable. "
                f"Judge estimates by their calibration and by posterior-predictive checks instead."
            )
        data = checks.finite_array("x_o", x_o)
        if data.shape != self.observation.shape:
            raise ValueError(
                f"x_o must be one observation of {self.name!r}, shape {self.observation.shape}; "
                f"got shape {data.shape}."
            )
        n = checks.positive_int("n", n)
        rng = np.random.default_rng(checks.positive_int("seed", seed, minimum=0))
        return self.reference(rng, data, n)


def accepted(
    propose: Callable[[int], np.ndarray], n: int, *, chunk: int = 20_000, chunks: int = 500
) -> np.ndarray:
    """The first `n` rows that a rejection sampler lets through, in bounded time.

    Args:
        propose: `propose(chunk)` makes that many proposals and returns the accepted ones.
        n: how many rows are wanted.
        chunk: proposals per call.
        chunks: give up after this many calls, plus as many as `n` needs at 1 % acceptance.
    """
    rows, found, limit = [], 0, chunks + 100 * n // chunk
    for _ in range(limit):
        rows.append(propose(chunk))
        found += len(rows[-1])
        if found >= n:
            return np.concatenate(rows)[:n]
    raise SamplingError(
        f"Only {found} of {limit * chunk} proposals were accepted, and {n} draws are wanted: x_o "
        f"has next to no posterior mass inside the prior's box. Check that x_o is an observation "
        f"that some theta in the box can produce, or ask for fewer draws."
    )


def floats(theta: ArrayLike, x: ArrayLike) -> tuple[Array, Array]:
    """Both as JAX arrays of theta's floating type (the default one where theta has none)."""
    values = jnp.asarray(theta)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(jax.dtypes.canonicalize_dtype(float))
    return values, jnp.asarray(x).astype(values.dtype)


def one_pair(function: Callable[[Array, Array], Array]) -> Callable[[ArrayLike, ArrayLike], Array]:
    """Decorator: makes a log-likelihood of one theta and one x, both vectors, one of many of either."""

    @functools.wraps(function)
    def log_likelihood(theta: ArrayLike, x: ArrayLike) -> Array:
        return each(function, *floats(theta, x))

    return log_likelihood


def each(function: Callable[..., Array], *arrays: Array) -> Array:
    """A function of vectors, row by row for those arguments that are matrices."""
    axes = [0 if array.ndim == 2 else None for array in arrays]
    return jax.vmap(function, axes)(*arrays) if 0 in axes else function(*arrays)
