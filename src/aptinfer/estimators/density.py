"""The estimator's contract.

`q = estimator(condition)` does all the work that depends on the condition alone: the embedding
network, the products of weights with the context, a mixture's parameters. `q.log_prob(value)` is the
cheap remainder. The atomic loss needs q(value_a | condition_b) for every pair of a batch: `log_prob_pairs`
does the expensive part once per condition, and the remainder for all pairs at once. Maximum likelihood needs
one value per condition: `log_prob_rows`.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
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

    def log_prob_rows(
        self, conditions: Float[Array, "batch *event"], values: Float[Array, "batch dim"]
    ) -> Float[Array, " batch"]:
        """log q(values[b] | conditions[b]), one value per condition.

        An estimator that has a faster way for a single value than through `__call__` says it here.
        """
        return jax.vmap(lambda condition, value: self(condition).log_prob(value))(conditions, values)


def log_prob_pairs(
    estimator: DensityEstimator,
    conditions: Float[Array, "batch *event"],
    values: Float[Array, "batch atoms dim"],
) -> Float[Array, "batch atoms"]:
    """log q(values[b, a] | conditions[b]), everything that depends on x alone computed once per x."""
    batch, atoms, dim = values.shape
    of_estimator = {id(leaf) for leaf in jax.tree.leaves(estimator)}
    weights = None

    def one(condition):
        nonlocal weights
        q, weights = eqx.partition(estimator(condition), lambda leaf: id(leaf) not in of_estimator)
        return q

    q = jax.vmap(one)(conditions)
    if not jax.tree.leaves(weights):
        return jax.vmap(lambda q, candidates: jax.vmap(q.log_prob)(candidates))(q, values)
    # Weights are left to multiply values with. All pairs become rows of one `vmap`: in nested ones the
    # gradient of every product contracts over two axes, for which XLA transposes a copy of its factor.
    q = jax.tree.map(lambda a: _repeated(a, atoms), q)
    log_q = jax.vmap(lambda q, value: eqx.combine(q, weights).log_prob(value))(q, values.reshape(-1, dim))
    return log_q.reshape(batch, atoms)


def _repeated(array, times: int):
    """Each row so many times; as a broadcast, which costs nothing in a compiled program."""
    rows, *event = array.shape
    return jnp.broadcast_to(array[:, None], (rows, times, *event)).reshape(rows * times, *event)
