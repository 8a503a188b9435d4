"""The probability of a yes: log q(v | condition) for v = 1 (yes) or 0 (no), by logistic regression."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.estimators.density import Density, DensityEstimator


class BernoulliDensity(Density):
    """Its value is a vector of length one that holds 1 or 0."""

    logit: Float[Array, ""]

    def log_prob(self, value):
        return jax.nn.log_sigmoid(jnp.where(value[0] > 0.5, self.logit, -self.logit))

    def sample(self, key):
        yes = jax.random.uniform(key, (1,), jnp.float32) < jax.nn.sigmoid(self.logit)
        return yes.astype(jnp.float32)


class BernoulliHead(DensityEstimator):
    """features -> logit."""

    linear: eqx.nn.Linear

    def __call__(self, condition: Float[Array, " features"]) -> BernoulliDensity:
        return BernoulliDensity(self.linear(condition)[0])


@dataclass(frozen=True)
class Bernoulli:
    """Settings of a yes-or-no estimator: there are none."""

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> BernoulliHead:
        assert dim == 1
        linear = eqx.nn.Linear(features, 1, dtype=jnp.float32, key=key)
        zero = jnp.zeros_like(linear.weight), np.zeros(1, np.float32)
        return BernoulliHead(eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, zero))
