"""A recurrent embedding of series."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.embeddings import Dense


class Recurrent(eqx.Module):
    """A gated recurrent unit over the series, from a state of zeros; dense layers over its last state."""

    cell: eqx.nn.GRUCell
    dense: Dense

    def __call__(self, x: Float[Array, "times channels"]) -> Float[Array, " features"]:
        def step(state, values):
            return self.cell(values, state), None

        state = jnp.zeros(self.cell.hidden_size, jnp.float32)
        return self.dense(jax.lax.scan(step, state, x)[0])


@suggests_keywords
@dataclass(frozen=True)
class GRU:
    """Recurrent embedding of series (times, channels): a gated recurrent unit (Cho et al. 2014).

    Args:
        units: size of the recurrent state, and of the embedding if no dense layers follow.
        hidden: units of the dense layers that follow; the last one is the size of the embedding.
        activation: an elementwise function of JAX arrays, for the dense layers.
    """

    units: int = 100
    hidden: tuple[int, ...] = ()
    activation: Callable = jnp.tanh

    def __post_init__(self):
        positive_int("GRU units", self.units)
        object.__setattr__(self, "hidden", tuple(positive_int("GRU hidden", h) for h in self.hidden))

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Recurrent:
        if len(shape) != 2:
            raise ValueError(
                f"GRU embeds series of shape (times, channels); x has shape {shape}. For one channel let "
                f"the simulator return x[:, None], for vectors use apt.MLP()."
            )
        for_cell, for_dense = jax.random.split(key)
        cell = eqx.nn.GRUCell(shape[1], self.units, dtype=jnp.float32, key=for_cell)
        return Recurrent(cell, Dense.build(for_dense, (self.units, *self.hidden), self.activation))
