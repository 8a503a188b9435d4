"""The estimator's contract.

`q = estimator(condition)` does all the work that depends on the condition alone: the embedding
network, the products of weights with the context, a mixture's parameters. `q.log_prob(value)` is the
cheap remainder. The atomic loss needs q(value_a | condition_b) for every pair of a batch, and

    vmap over b of:  q = estimator(condition_b);  vmap(q.log_prob)(values of b)

computes the expensive part once per condition, because `vmap` leaves shared weights shared.
"""

from abc import abstractmethod

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


class Density(eqx.Module):
    """A density over vectors. Shapes are those of one draw; batches are made with `jax.vmap`."""

    @abstractmethod
    def log_prob(self, value: Float[Array, " dim"]) -> Float[Array, ""]: ...

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Float[Array, " dim"]: ...


class DensityEstimator(eqx.Module):
    """A function from a condition to a `Density`."""

    @abstractmethod
    def __call__(self, condition: Float[Array, "*event"]) -> Density: ...


def log_prob_pairs(
    estimator: DensityEstimator,
    conditions: Float[Array, "batch *event"],
    values: Float[Array, "batch atoms dim"],
) -> Float[Array, "batch atoms"]:
    """log q(values[b, a] | conditions[b]), everything that depends on x alone computed once per x."""

    def one(condition, candidates):
        return jax.vmap(estimator(condition).log_prob)(candidates)

    return jax.vmap(one)(conditions, values)
