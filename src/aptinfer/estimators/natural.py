r"""Latent coordinates as a simulator would have them: those of uniform parameters made uniform again.

z is right for densities of parameters, which then need no edges. A simulator knows nothing of them: what it
does with a uniform theta is smooth in theta, and in z = Phi^-1(theta) it is stretched without end near the
edges. A log-normal theta is a scale, whose logarithm z is natural.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.estimators.embeddings import build_embedding


class NaturalNetwork(eqx.Module):
    """A network of sqrt(12) (Phi(z) - 1/2), of variance one, where `uniform`, and of z elsewhere."""

    network: eqx.Module
    uniform: tuple[bool, ...] = eqx.field(static=True)

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, " features"]:
        level = np.float32(np.sqrt(12)) * (ndtr(z) - np.float32(0.5))
        return self.network(jnp.where(np.array(self.uniform), level, z))  # pyright: ignore[reportCallIssue]


@dataclass(frozen=True)
class Natural:
    """An embedding of latent parameters, in natural coordinates."""

    embedding: Any
    uniform: tuple[bool, ...]

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> NaturalNetwork:
        return NaturalNetwork(build_embedding(self.embedding, key, shape)[0], self.uniform)
