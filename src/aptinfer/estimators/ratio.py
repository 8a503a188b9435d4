r"""A network for the likelihood-to-evidence ratio: log r(v, x) = log p(x | v) - log p(x) + any function of x.

It is no density over v. With the prior it is one: p(v | x) is proportional to r(v, x) p(v). The contract of
pairs is that of densities: what depends on x alone, its embedding and its part of the first layer, is
computed once per x.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.density import Density, DensityEstimator


class LogRatio(Density):
    """The network at one x: `log_prob` is log r, and there is nothing to draw from."""

    network: "RatioHead"
    offset: Float[Array, " width"]

    def log_prob(self, value):
        network = self.network
        h = network.activation(network.of_value(value) + self.offset)
        for layer in network.between:
            h = h + network.activation(layer(h))
        return network.out(h)[0]

    def sample(self, key):
        raise TypeError("a ratio is no density: it is sampled together with the prior, by apt.samplers.")


class RatioHead(DensityEstimator):
    """features and value -> log r."""

    of_features: eqx.nn.Linear
    of_value: eqx.nn.Linear
    between: tuple[eqx.nn.Linear, ...]
    out: eqx.nn.Linear
    activation: Callable = eqx.field(static=True)

    def __call__(self, condition: Float[Array, " features"]) -> LogRatio:
        return LogRatio(self, self.of_features(condition))


@suggests_keywords
@dataclass(frozen=True)
class RatioNetwork:
    """A residual network from an embedding of x and from parameters to the log ratio, for `apt.SNRE`.

    Args:
        width: units of each layer.
        layers: how many, the first one included.
        activation: an elementwise function of JAX arrays.
    """

    width: int = 128
    layers: int = 3
    activation: Callable = jax.nn.gelu

    def __post_init__(self):
        positive_int("RatioNetwork width", self.width)
        positive_int("RatioNetwork layers", self.layers)

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> RatioHead:
        first, second, last, *keys = jax.random.split(key, 2 + self.layers)

        def dense(inputs: int, outputs: int, key: PRNGKeyArray, bias: bool = True) -> eqx.nn.Linear:
            return eqx.nn.Linear(inputs, outputs, use_bias=bias, dtype=jnp.float32, key=key)

        out = dense(self.width, 1, last)
        # A ratio of one everywhere: training starts at the prior.
        out = eqx.tree_at(lambda layer: (layer.weight, layer.bias), out, replace_fn=jnp.zeros_like)
        return RatioHead(
            dense(features, self.width, first),
            dense(dim, self.width, second, bias=False),
            tuple(dense(self.width, self.width, k) for k in keys),
            out,
            self.activation,
        )
