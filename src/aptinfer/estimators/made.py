"""A conditional MADE: one network pass gives the parameters of every one-dimensional conditional.

Masks keep the parameters of dimension j from seeing dimensions j, j+1, ... (Germain et al. 2015). A hidden
unit of degree d sees the condition and the first d dimensions of the value. Degree 0 exists here: with
degrees from 1, as is common, the first conditional would not depend on x at all, and a one-dimensional
problem could not be learned.

Units of degree 0, called blind, need no value: they and all they feed are computed once per condition. What
is left to do per pair of condition and value concerns the seeing units alone, which saves more than half of
the work where there are few dimensions.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


class Conditioned(eqx.Module):
    """A MADE at one condition: what the blind units and the biases add to each layer is computed."""

    made: "MADE"
    offsets: tuple[Float[Array, " seeing"], ...]
    first: Float[Array, "kinds 1 size"]  # parameters of the first conditional, which needs no value
    others: Float[Array, "kinds dim-1 size"]

    def rest(self, value: Float[Array, " dim"]) -> Float[Array, "kinds dim-1 size"]:
        """Parameters of all conditionals but the first."""
        made = self.made
        into, between, out_of = made.masks()
        h = made.activation(value[:-1] @ (made.value * into) + self.offsets[0])
        for layer, offset in zip(made.middle, self.offsets[1:], strict=True):
            h = made.activation(h @ (layer.seeing * between) + offset)
        return self.others + (h @ (made.last.seeing * out_of)).reshape(self.others.shape)

    def __call__(self, value: Float[Array, " dim"]) -> Float[Array, "kinds dim size"]:
        """Parameters of every conditional."""
        return jnp.concatenate([self.first, self.rest(value)], axis=1)


class Layer(eqx.Module):
    """Weights out of a hidden layer: its blind units feed everything, its seeing units what sees as much."""

    blind: Float[Array, "blind out"]
    bias: Float[Array, " out"]
    seeing: Float[Array, "seeing seeing_out"]


class MADE(eqx.Module):
    """Masked network from a condition and a value to kinds x size numbers per dimension."""

    context: eqx.nn.Linear
    value: Float[Array, "dim-1 seeing"]
    middle: tuple[Layer, ...]
    last: Layer
    outputs: tuple[int, int, int] = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        features: int,
        hidden: tuple[int, ...],
        kinds: int,
        size: int,
        *,
        activation: Callable,
        key: PRNGKeyArray,
    ):
        width = hidden[0]
        if width < dim:
            raise ValueError(
                f"hidden layers of {width} units are too narrow for {dim} parameters: some would not "
                f"depend on others. Use at least {dim} units."
            )
        keys = jax.random.split(key, len(hidden) + 1)
        seeing = len(_degrees(width, dim))
        self.outputs, self.activation = (kinds, dim, size), activation
        self.context = eqx.nn.Linear(features, width, dtype=jnp.float32, key=keys[0])
        self.value = _normal(keys[1], dim, dim - 1, seeing)
        self.middle = tuple(
            Layer(
                _normal(jax.random.fold_in(k, 0), width, width - seeing, width),
                jnp.zeros(width, jnp.float32),
                _normal(jax.random.fold_in(k, 1), width, seeing, seeing),
            )
            for k in keys[2:]
        )
        # Zero outputs make a flow the identity: training starts at the prior.
        self.last = Layer(
            jnp.zeros((width - seeing, kinds * dim * size), jnp.float32),
            jnp.zeros(kinds * dim * size, jnp.float32),
            jnp.zeros((seeing, kinds * (dim - 1) * size), jnp.float32),
        )

    def __call__(self, condition: Float[Array, " features"]) -> Conditioned:
        total, offsets = self.context(condition), []
        for layer in (*self.middle, self.last):
            blind = layer.blind.shape[0]
            offsets.append(total[blind:])
            total = self.activation(total[:blind]) @ layer.blind + layer.bias
        outputs = total.reshape(self.outputs)
        return Conditioned(self, tuple(offsets), outputs[:, :1], outputs[:, 1:])

    @property
    def dim(self) -> int:
        return self.outputs[1]

    def masks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Constants of the compiled program rather than arrays of the model: they are never trained."""
        kinds, dim, size = self.outputs
        degrees = _degrees(self.context.out_features, dim)  # pyright: ignore[reportArgumentType]
        later = np.arange(1, dim)
        into = later[:, None] <= degrees[None, :]
        between = degrees[:, None] <= degrees[None, :]
        out_of = degrees[:, None] <= np.tile(np.repeat(later, size), kinds)[None, :]
        return into.astype(np.float32), between.astype(np.float32), out_of.astype(np.float32)


def _degrees(width: int, dim: int) -> np.ndarray:
    """Degrees of the seeing units, ascending: as many of each, and of the blind ones, as division allows.

    Rounded down to a multiple of 16 (8 if there are few): products of such widths take about half as long
    per number as those of 40 or 50 columns on CPUs with wide vectors.
    """
    seeing = width - -(-width // dim)
    rounded = seeing - seeing % (16 if seeing >= 32 else 8)
    seeing = rounded if rounded >= dim - 1 else seeing
    return np.sort(1 + np.arange(seeing) % max(dim - 1, 1))


def _normal(key: PRNGKeyArray, inputs: int, rows: int, columns: int) -> Array:
    """Weights of so many rows, of units with so many inputs in all."""
    return jax.random.normal(key, (rows, columns), jnp.float32) / np.float32(np.sqrt(inputs + 1))
