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
from aptinfer.estimators.made import MADE, Conditioned, Layer, refuse_narrow
from aptinfer.estimators.mog import LOG_2PI

NARROW = 0.5  # initial width of components in units of the prior


class AutoregressiveDensity(Density):
    """The mixture conditionals at one condition; the first needs no value and is ready."""

    layer: Conditioned
    first: tuple[Array, Array, Array]

    def log_prob(self, value):
        first = _log_mixture(self.first, value[:1])
        rest = _log_mixture(_mixture(self.layer.rest(value)), value[1:])
        return first[0] + jnp.sum(rest) - np.float32(0.5 * LOG_2PI * value.shape[0])

    def sample(self, key):
        which, noise = jax.random.split(key)
        n = self.layer.made.dim
        eps = jax.random.normal(noise, (n,), jnp.float32)
        levels = jax.random.uniform(which, (n,), jnp.float32)

        def next_dimension(i, value):
            log_weights, means, log_precision = _mixture(self.layer(value)[:, i])
            # The component whose share of the weights holds the level: one random number instead of one each.
            below = jnp.cumsum(jnp.exp(log_weights)) <= levels[i]
            k = jnp.minimum(jnp.sum(below), below.size - 1)
            return value.at[i].set(means[k] + eps[i] * jnp.exp(-log_precision[k]))

        return jax.lax.fori_loop(0, n, next_dimension, jnp.zeros(n, jnp.float32))


def _mixture(p: Float[Array, "3 *dim components"]):
    """Log-weights, means and log 1/s, the last bounded so that no step can overflow float32."""
    return jax.nn.log_softmax(p[0], axis=-1), p[1], 12 * jnp.tanh(p[2] / 12)


def _log_mixture(mixture, value: Float[Array, " dim"]) -> Float[Array, " dim"]:
    log_weights, means, log_precision = mixture
    scaled = (value[:, None] - means) * jnp.exp(log_precision)
    return logsumexp(log_weights + log_precision - 0.5 * scaled**2, axis=-1)


class Autoregressive(DensityEstimator):
    """A single MADE whose outputs are mixture parameters."""

    made: MADE

    def __call__(self, condition: Float[Array, " features"]) -> AutoregressiveDensity:
        layer = self.made(condition)
        return AutoregressiveDensity(layer, _mixture(layer.first))

    def log_prob_rows(self, conditions, values):
        def one(p, value):
            return jnp.sum(_log_mixture(_mixture(p), value)) - np.float32(0.5 * LOG_2PI * value.shape[0])

        return jax.vmap(one, in_axes=-1)(self.made.rows(conditions.T, values.T), values.T)


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
    activation: Callable = jnp.tanh

    def __post_init__(self):
        positive_int("AutoregressiveMixture components", self.components)
        sizes = checked_hidden("AutoregressiveMixture", self.hidden)
        object.__setattr__(self, "hidden", sizes)

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> Autoregressive:
        refuse_narrow(self.hidden, dim)
        k = self.components
        network, spread = jax.random.split(key)
        made = MADE(dim, features, self.hidden, 3, k, activation=self.activation, key=network)
        # Components start apart and narrow, their mixture close to N(0, 1): wide ones would linger as tails.
        centres = np.linspace(-1.0, 1.0, k) if k > 1 else np.zeros(1)
        width = NARROW if k > 1 else 1.0
        centres *= np.sqrt((1 - width**2) / max(centres.var(), 1e-9))
        bias = jnp.zeros((3, dim, k), jnp.float32).at[1].set(centres.astype(np.float32))
        bias = bias.at[2].set(np.float32(-np.log(width))).reshape(-1)
        weights = 0.01 * jax.random.normal(spread, made.layers[-1].weights.shape, jnp.float32)
        return Autoregressive(eqx.tree_at(lambda m: m.layers[-1], made, Layer(weights, bias)))
