"""Mixture density network: a mixture of Gaussians with full covariances, its parameters linear in the
features of x (paper, appendix; the network itself is the embedding)."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.density import DensityEstimator
from aptinfer.estimators.mog import Mixture

NARROWEST = 0.5  # initial width of a component, in units of the prior
LOG_DIAGONAL = 12.0  # widths between e^-12 and e^12, so that no step can overflow float32


class MixtureHead(DensityEstimator):
    """features -> logits, means and upper-triangular precision factors."""

    linear: eqx.nn.Linear
    components: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def __call__(self, condition: Float[Array, " features"]) -> Mixture:
        k, n = self.components, self.dim
        logits, means, raw = jnp.split(self.linear(condition), np.cumsum(sizes(k, n))[:-1])
        logits = jnp.zeros(1, raw.dtype) if k == 1 else logits
        raw = raw.reshape(k, n, n)
        diagonal = LOG_DIAGONAL * jnp.tanh(jnp.diagonal(raw, axis1=1, axis2=2) / LOG_DIAGONAL)
        factors = jnp.triu(raw, 1) + jnp.eye(n, dtype=raw.dtype)[None] * jnp.exp(diagonal)[:, :, None]
        return Mixture(jax.nn.log_softmax(logits), means.reshape(k, n), factors)


def sizes(components: int, dim: int) -> tuple[int, int, int]:
    """How many logits, means and factors a network has to give. A single component needs no logit."""
    return (0 if components == 1 else components), components * dim, components * dim**2


@suggests_keywords
@dataclass(frozen=True)
class MDN:
    """Mixture of Gaussians with full covariances.

    Args:
        components: number of Gaussians.
    """

    components: int = 8

    def __post_init__(self):
        positive_int("MDN components", self.components)

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> MixtureHead:
        k, n = self.components, dim
        logits, _, _ = outputs = sizes(k, n)
        weights, spread = jax.random.split(key)
        linear = eqx.nn.Linear(features, sum(outputs), dtype=jnp.float32, key=weights)
        # Start near the prior N(0, I), apart from each other and no wider than so many have to be to cover
        # it: a wide component lingers as a tail of what the others have learned.
        width = np.float32(max(NARROWEST, k ** (-1 / n)))
        means = jax.random.normal(spread, (k * n,), jnp.float32) * np.sqrt(1 - width**2)
        factors = jnp.tile(-jnp.log(width) * jnp.eye(n), (k, 1, 1))
        bias = jnp.concatenate([jnp.zeros(logits), means, factors.ravel()]).astype(jnp.float32)
        scale = np.float32(0.1)
        return MixtureHead(
            eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, (linear.weight * scale, bias)), k, n
        )
