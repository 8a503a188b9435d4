r"""A stack of estimators of different kinds, weighted by what they say of rows that none was trained on.

    q(value | condition) = sum_k w_k q_k(value | condition),
    w_k = E_a [ exp(l_k) / sum_j exp(l_j) ],    l_k = n sum_i a_i log q_k(value_i | condition_i)

over n held-back rows i, with a from Dirichlet(1, ..., 1): the Bayesian bootstrap, which spreads the weight
over families that so few rows cannot tell apart (pseudo-BMA+; Yao, Vehtari, Simpson & Gelman 2018). Where a
simple family is enough it gets the weight, and nobody has to choose.

Weights that maximise the mixture's own likelihood are better for prediction and worse for inference: they
keep a little of every family, and a tenth of a density that knows nothing of a parameter is a floor under its
likelihood, so that the posterior gets tails that no good family has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.special import softmax

from aptinfer.checks import suggests_keywords
from aptinfer.estimators.autoregressive import AutoregressiveMixture
from aptinfer.estimators.density import Density, DensityEstimator
from aptinfer.estimators.embeddings import Embedded, Flatten
from aptinfer.estimators.ensemble import build_members, count_members
from aptinfer.estimators.flows import NSF
from aptinfer.estimators.mdn import MDN
from aptinfer.keys import Key

BOOTSTRAPS = 1000
ENOUGH = 30  # held-back rows of proposals for families to be weighted by them alone
LEAST = 1e-30  # weight of a family that has none, for its logarithm to be finite
_FAMILY = 4  # branch of a key for the families of a stack


class Family(NamedTuple):
    """An estimator, and the embedding of its condition; None: the method's."""

    estimator: Any
    embedding: Any = None


@suggests_keywords
@dataclass(frozen=True)
class Stack:
    """Several estimators of different kinds, each trained on its own, mixed by their validation likelihood.

    Args:
        families: estimators, such as `MDN(1)` or an `Ensemble`, or pairs `Family(estimator, embedding)`.
            None: for likelihoods, from signal plus Gaussian noise to mixtures, as the data allow; for
            posteriors, from one Gaussian to a spline flow.
    """

    families: tuple[Any, ...] | None = None

    def __post_init__(self):
        if self.families is None:
            return
        families = tuple(f if isinstance(f, Family) else Family(f) for f in self.families)
        if not families:
            raise ValueError("Stack families must not be empty: give estimators such as apt.MDN(1), or None.")
        for family in families:
            if isinstance(family.estimator, Stack) or not _builds(family.estimator):
                raise TypeError(
                    f"Stack families must be estimators such as apt.MDN() or apt.Ensemble(...); got "
                    f"{family.estimator!r}."
                )
        object.__setattr__(self, "families", families)


def _builds(estimator: Any) -> bool:
    return hasattr(getattr(estimator, "estimator", estimator), "build")


def families_of(estimator: Any) -> tuple[Family, ...]:
    """Those of a stack; a single estimator is a stack of one."""
    families = estimator.families if isinstance(estimator, Stack) else (Family(estimator),)
    assert families is not None
    return families


class StackedDensity(Density):
    """sum_k w_k q_k at one condition."""

    parts: tuple[Density, ...]
    log_weights: Float[Array, " families"]

    def log_prob(self, value):
        return logsumexp(self.log_weights + jnp.stack([q.log_prob(value) for q in self.parts]))

    def sample(self, key):
        which, *keys = jax.random.split(key, 1 + len(self.parts))
        draws = jnp.stack([q.sample(k) for q, k in zip(self.parts, keys, strict=True)])
        return draws[jax.random.categorical(which, self.log_weights)]


class Stacked(DensityEstimator):
    """Trained families and their weights; all arrays have a leading member axis, as those of an ensemble."""

    families: tuple[Embedded, ...]
    log_weights: Float[Array, "members families"]

    def __call__(self, condition):
        return StackedDensity(tuple(family(condition) for family in self.families), self.log_weights)

    @property
    def embedding(self):
        """Of the first family: whether entries of x may be missing is the same for all."""
        return self.families[0].embedding

    @classmethod
    def of(cls, families: Sequence[Embedded], weights: np.ndarray) -> "Stacked":
        log_weights = np.log(np.maximum(weights, LEAST)).astype(np.float32)
        return cls(tuple(families), jnp.asarray(np.tile(log_weights, (count_members(families[0]), 1))))


def default_posteriors(event: tuple[int, ...]) -> tuple[Family, ...]:
    """From one Gaussian to a spline flow. Where x is a vector, the first is linear in it."""
    linear = Flatten() if len(event) == 1 else None
    return Family(MDN(1), linear), Family(MDN(8)), Family(AutoregressiveMixture()), Family(NSF())


def build_families(
    key: Key, families: Sequence[Family], dim: int, event: tuple[int, ...], *, missing: bool = False
) -> tuple[Embedded, ...]:
    """Each with random weights of its own."""
    return tuple(
        build_members(of_family(key, k), *family, dim, event, missing=missing)
        for k, family in enumerate(families)
    )


def of_family(key: Key, k: int) -> Key:
    """The first has the key that it would have alone."""
    return key.child(_FAMILY, k) if k else key


def telling(held_back: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Which rows held back weight families: those of proposals, near the posterior, if they are enough."""
    proposed = held_back & (source > 0)
    return proposed if proposed.sum() >= ENOUGH else held_back


def stacking_weights(log_q: np.ndarray) -> np.ndarray:
    """The weights w_k of densities whose logarithms at held-back rows are given: (families, rows)."""
    rows = log_q.shape[1]
    shares = np.random.default_rng(0).dirichlet(np.ones(rows), BOOTSTRAPS)
    return softmax(rows * shares @ log_q.T, axis=1).mean(axis=0)
