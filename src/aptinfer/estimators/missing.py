"""Missing data: what networks see where x is NaN.

A missing entry is replaced by a learned value, and networks are told which entries were observed: x comes
with as many further entries (or channels) that are one where x was observed and zero where it was not. A
network that is `masked` is also told which steps of a series or elements of a set have any observed entry:
the others are absent, and their number changes nothing.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Imputed(eqx.Module):
    """x with NaN -> x without, and where it was observed -> features."""

    network: Any
    value: Float[Array, "*channel"]

    def __call__(self, x: Float[Array, "*event"]) -> Float[Array, " features"]:
        observed = ~jnp.isnan(x)
        filled = jnp.where(observed, x, jnp.broadcast_to(self.value, x.shape))
        both = jnp.concatenate([filled, observed.astype(jnp.float32)], axis=channel_axis(x.ndim))
        return (
            self.network(both, jnp.any(observed, axis=1)) if is_masked(self.network) else self.network(both)
        )


def channel_axis(ndim: int) -> int:
    """Of a series (times, channels) the last axis; the first one of vectors and images."""
    return 1 if ndim == 2 else 0


def with_mask(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of x together with which of its entries were observed."""
    axis = channel_axis(len(shape))
    return (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])


def imputed(network: Any, shape: tuple[int, ...]) -> Imputed:
    """A network for data `with_mask`, and a value to learn for each entry of a vector, or each channel."""
    axis = channel_axis(len(shape))
    ones = (1,) * (len(shape) - axis - 1)
    return Imputed(network, jnp.zeros((shape[axis], *ones), jnp.float32))


def is_masked(network: Any) -> bool:
    """Whether a network takes x and which of its steps or elements were observed, in any number."""
    return getattr(network, "masked", False)
