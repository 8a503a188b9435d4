"""A recurrent embedding of series."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords, true_or_false, whole_numbers
from aptinfer.estimators.embeddings import Dense


class Recurrent(eqx.Module):
    """Gated recurrent units over the series, each from a state of zeros; dense layers over their last states.

    The second unit, if there is one, reads the series backwards. Steps after the last observed one are
    padding: they leave the states as they are, so that any padding gives the same features.
    """

    masked: ClassVar[bool] = True
    cells: tuple[eqx.nn.GRUCell, ...]
    dense: Dense

    def __call__(
        self, x: Float[Array, "times channels"], observed: Bool[Array, " times"] | None = None
    ) -> Float[Array, " features"]:
        inside = jnp.ones(x.shape[0], bool) if observed is None else _up_to_the_last(observed)
        states = [_last_state(cell, x, inside, backwards=i == 1) for i, cell in enumerate(self.cells)]
        return self.dense(jnp.concatenate(states))


def _up_to_the_last(observed: Bool[Array, " times"]) -> Bool[Array, " times"]:
    """True up to the last true entry: a gap in a series is part of it, and only what follows is padding."""
    return jax.lax.cummax(observed.astype(jnp.int32), reverse=True) > 0


def _last_state(cell: eqx.nn.GRUCell, x, inside, *, backwards: bool) -> Float[Array, " units"]:
    """The cell's state after the series. What x alone decides is computed for all times in one product."""
    assert cell.bias is not None
    bias_new = cell.bias_n
    assert bias_new is not None
    from_x = x @ cell.weight_ih.T + jnp.broadcast_to(cell.bias, (x.shape[0], cell.bias.shape[0]))

    def step(state, now):
        of_x, inside = now
        reset, keep, new = jnp.split(of_x, 3)
        own_reset, own_keep, own_new = jnp.split(cell.weight_hh @ state, 3)
        keep = jax.nn.sigmoid(keep + own_keep)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * (own_new + bias_new))
        return jnp.where(inside, new + keep * (state - new), state), None

    start = jnp.zeros(cell.hidden_size, jnp.float32)
    return jax.lax.scan(step, start, (from_x, inside), reverse=backwards)[0]


@suggests_keywords
@dataclass(frozen=True)
class GRU:
    """Recurrent embedding of series (times, channels): a gated recurrent unit (Cho et al. 2014).

    Series of unequal length are padded with NaN at their end and declared by `apt.infer(..., missing=True)`.
    Gates learn slowly: try `Trainer(learning_rate=1e-2)`.

    Args:
        units: size of the recurrent state, and of the embedding if no dense layers follow.
        hidden: units of the dense layers that follow; the last one is the size of the embedding.
        activation: an elementwise function of JAX arrays, for the dense layers.
        bidirectional: read the series backwards too, with as many units again.
    """

    masked: ClassVar[bool] = True
    units: int = 100
    hidden: tuple[int, ...] = ()
    activation: Callable = jnp.tanh
    bidirectional: bool = False

    def __post_init__(self):
        positive_int("GRU units", self.units)
        object.__setattr__(self, "hidden", whole_numbers("GRU hidden", self.hidden))
        true_or_false("GRU bidirectional", self.bidirectional)

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Recurrent:
        if len(shape) != 2:
            raise ValueError(
                f"GRU embeds series of shape (times, channels); x has shape {shape}. For one channel let "
                f"the simulator return x[:, None], for vectors use apt.MLP()."
            )
        for_cells, for_dense = jax.random.split(key)
        keys = jax.random.split(for_cells, 2) if self.bidirectional else [for_cells]
        cells = tuple(eqx.nn.GRUCell(shape[1], self.units, dtype=jnp.float32, key=k) for k in keys)
        sizes = (len(cells) * self.units, *self.hidden)
        return Recurrent(cells, Dense.build(for_dense, sizes, self.activation))
