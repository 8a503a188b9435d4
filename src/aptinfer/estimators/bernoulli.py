"""Yes or no, once or several times: independent given the condition, by logistic regression.

log q(v | condition) = sum_j log sigmoid(+-logit_j),     + for v_j = 1 (yes), - for v_j = 0 (no)
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.estimators.density import Density, DensityEstimator


class BernoulliDensity(Density):
    """Its value is a vector of ones and zeros."""

    logits: Float[Array, " dim"]

    def log_prob(self, value):
        return jnp.sum(jax.nn.log_sigmoid(jnp.where(value > 0.5, self.logits, -self.logits)))

    def sample(self, key):
        yes = jax.random.uniform(key, self.logits.shape, jnp.float32) < jax.nn.sigmoid(self.logits)
        return yes.astype(jnp.float32)


class BernoulliHead(DensityEstimator):
    """features -> logits."""

    linear: eqx.nn.Linear

    def __call__(self, condition: Float[Array, " features"]) -> BernoulliDensity:
        return BernoulliDensity(self.linear(condition))


@dataclass(frozen=True)
class Bernoulli:
    """Settings of a yes-or-no estimator: there are none."""

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> BernoulliHead:
        linear = eqx.nn.Linear(features, dim, dtype=jnp.float32, key=key)
        zero = jnp.zeros_like(linear.weight), jnp.zeros(dim, jnp.float32)
        return BernoulliHead(eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, zero))
