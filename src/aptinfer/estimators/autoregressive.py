"""Autoregressive mixture: every one-dimensional conditional is a mixture of Gaussians.

    q(value | x) = prod_j sum_k w_jk N(value_j; m_jk, s_jk^2),    w, m, s from a single MADE

One network pass instead of a flow's several, and each conditional can have as many modes as components:
the cheapest estimator here for multimodal posteriors of few parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.density import Density, DensityEstimator
from aptinfer.estimators.flows import checked_hidden
from aptinfer.estimators.made import MADE, Conditioned
from aptinfer.estimators.mog import LOG_2PI


class AutoregressiveDensity(Density):
    """The mixture conditionals at one condition."""

    layer: Conditioned

    def _conditionals(self, value):
        logits, means, raw = jnp.split(self.layer(value), 3, axis=-1)
        return jax.nn.log_softmax(logits, axis=-1), means, 12 * jnp.tanh(raw / 12)

    def log_prob(self, value):
        log_weights, means, log_precision = self._conditionals(value)
        scaled = (value[:, None] - means) * jnp.exp(log_precision)
        terms = log_weights + log_precision - 0.5 * scaled**2
        n = value.shape[0]
        return jnp.sum(logsumexp(terms, axis=-1)) - np.float32(0.5 * LOG_2PI * n)

    def sample(self, key):
        order = jnp.asarray(self.layer.made.order)
        which, noise = jax.random.split(key)
        n = len(order)
        eps = jax.random.normal(noise, (n,), jnp.float32)
        uniforms = jax.random.gumbel(which, (n, self.layer.made.outputs // 3), jnp.float32)

        def next_dimension(i, value):
            j = order[i]
            log_weights, means, log_precision = self._conditionals(value)
            k = jnp.argmax(log_weights[j] + uniforms[j])
            return value.at[j].set(means[j, k] + eps[j] * jnp.exp(-log_precision[j, k]))

        return jax.lax.fori_loop(0, n, next_dimension, jnp.zeros(n, jnp.float32))


class Autoregressive(DensityEstimator):
    """A single MADE whose outputs are mixture parameters."""

    made: MADE

    def __call__(self, condition: Float[Array, " features"]) -> AutoregressiveDensity:
        return AutoregressiveDensity(self.made(condition))


@suggests_keywords
@dataclass(frozen=True)
class AutoregressiveMixture:
    """Mixture-of-Gaussians conditionals from one MADE.

    Args:
        components: Gaussians per conditional.
        hidden: units of the MADE's hidden layers.
        activation: an elementwise function of JAX arrays.
    """

    components: int = 8
    hidden: tuple[int, ...] = (64, 64)
    activation: Callable = jax.nn.gelu

    def __post_init__(self):
        positive_int("AutoregressiveMixture components", self.components)
        sizes = checked_hidden("AutoregressiveMixture", self.hidden)
        object.__setattr__(self, "hidden", sizes)

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> Autoregressive:
        k = self.components
        network, spread = jax.random.split(key)
        made = MADE(
            dim,
            features,
            self.hidden,
            3 * k,
            reverse=False,
            activation=self.activation,
            key=network,
        )
        # Components start apart, so that they can specialise; their mixture is close to N(0, 1).
        means = jnp.linspace(-1.5, 1.5, k, dtype=jnp.float32) if k > 1 else jnp.zeros(1)
        bias = jnp.zeros((dim, 3, k), jnp.float32).at[:, 1, :].set(means.astype(jnp.float32))
        noise = 0.01 * jax.random.normal(spread, made.last.shape, jnp.float32)
        return Autoregressive(eqx.tree_at(lambda m: (m.last, m.last_bias), made, (noise, bias.reshape(-1))))
