r"""Signal plus noise: a density that moves with the condition and keeps its shape.

    q(value | condition) = r(value - m(condition)),      m linear in the features, r any density

Many simulators are of this kind, at least nearly: a model's prediction, and errors that do not depend on the
parameters. Learning one shape from all rows takes far fewer of them than a shape for every condition.
"""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import suggests_keywords
from aptinfer.estimators.density import Density, DensityEstimator
from aptinfer.estimators.mdn import MDN

_NOTHING = np.zeros(1, np.float32)  # the condition of a density that has none


class ShiftedDensity(Density):
    """The noise, moved."""

    noise: Density
    shift: Float[Array, " dim"]

    def log_prob(self, value):
        return self.noise.log_prob(value - self.shift)

    def sample(self, key):
        return self.noise.sample(key) + self.shift


class ShiftedHead(DensityEstimator):
    """features -> shift."""

    linear: eqx.nn.Linear
    noise: DensityEstimator

    def __call__(self, condition: Float[Array, " features"]) -> ShiftedDensity:
        return ShiftedDensity(self.noise(jnp.asarray(_NOTHING)), self.linear(condition))

    def log_prob_rows(self, conditions, values):
        moved = values - jax.vmap(self.linear)(conditions)
        noise = self.noise(jnp.asarray(_NOTHING))
        return jax.vmap(noise.log_prob)(moved)


@suggests_keywords
@dataclass(frozen=True)
class Shifted:
    """A density of one shape, moved by the condition: signal plus noise.

    Args:
        noise: settings of the shape, such as `MDN(1)` for Gaussian noise or `AutoregressiveMixture()`.
    """

    noise: Any = field(default_factory=lambda: MDN(1))

    def __post_init__(self):
        if not hasattr(self.noise, "build"):
            raise TypeError(f"Shifted noise must be settings such as apt.MDN(1); got {self.noise!r}.")

    def build(self, key: PRNGKeyArray, dim: int, features: int) -> ShiftedHead:
        for_shift, for_noise = jax.random.split(key)
        linear = eqx.nn.Linear(features, dim, dtype=jnp.float32, key=for_shift)
        still = linear.weight * np.float32(0.1), jnp.zeros(dim, jnp.float32)
        linear = eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, still)
        return ShiftedHead(linear, self.noise.build(for_noise, dim, len(_NOTHING)))
