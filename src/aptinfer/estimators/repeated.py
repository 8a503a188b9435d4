r"""Repeated measurements: several independent draws, one after another, of one density.

    q(value_1, ..., value_n | condition) = prod_i q(value_i | condition)

One draw has fewer numbers than all of them together, and every row of training teaches it `times` times over.
"""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.density import Density, DensityEstimator, log_prob_pairs
from aptinfer.estimators.mdn import MDN


class RepeatedDensity(Density):
    """So many independent draws of one density."""

    one: Density
    times: int = eqx.field(static=True)

    def log_prob(self, value):
        return jax.vmap(self.one.log_prob)(value.reshape(self.times, -1)).sum()

    def sample(self, key):
        return jnp.ravel(jax.vmap(self.one.sample)(jax.random.split(key, self.times)))


class RepeatedHead(DensityEstimator):
    """features -> the density of one draw, for all of them."""

    one: DensityEstimator
    times: int = eqx.field(static=True)

    def __call__(self, condition):
        return RepeatedDensity(self.one(condition), self.times)

    def log_prob_rows(self, conditions, values):
        draws = values.reshape(len(values), self.times, -1)
        return log_prob_pairs(self.one, conditions, draws).sum(axis=1)


@suggests_keywords
@dataclass(frozen=True)
class Repeated:
    """A density of measurements that were repeated: independent draws, given the condition, of one density.

    Args:
        one: settings of the density of one of them, such as `MDN(1)` or `AutoregressiveMixture()`.
        times: how many there are; the values of one stand side by side.
    """

    one: Any = field(default_factory=lambda: MDN(1))
    times: int = 2

    def __post_init__(self):
        if not hasattr(self.one, "build"):
            raise TypeError(f"Repeated one must be settings such as apt.MDN(1); got {self.one!r}.")
        positive_int("Repeated times", self.times)

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> RepeatedHead:
        if dim % self.times:
            raise ValueError(
                f"Repeated times must divide the {dim} numbers of x that vary, got {self.times}: every "
                f"measurement has as many numbers as the others."
            )
        return RepeatedHead(self.one.build(key, dim // self.times, features), self.times)
