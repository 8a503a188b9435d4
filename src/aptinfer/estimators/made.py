"""A conditional MADE: one network pass gives the parameters of every one-dimensional conditional.

Masks keep the parameters of dimension j from seeing dimensions j, j+1, ... (Germain et al. 2015). A hidden
unit of degree d sees the condition and the first d dimensions of the value. Degree 0 exists here: with
degrees from 1, as is common, the first conditional would not depend on x at all, and a one-dimensional
problem could not be learned.

Units of degree 0, called blind, need no value: they and all they feed are computed once per condition. What
is left to do per pair of condition and value concerns the seeing units alone, which saves more than half of
the work where there are few dimensions.
"""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

WIDTH = 16  # numbers in a wide vector of a CPU


class Conditioned(eqx.Module):
    """A MADE at one condition: what the blind units and the biases add to each layer is computed."""

    made: "MADE"
    offsets: tuple[Float[Array, " seeing"], ...]
    first: Float[Array, "kinds 1 size"]  # parameters of the first conditional, which needs no value
    others: Float[Array, "kinds later size"]

    def rest(self, value: Float[Array, " dim"]) -> Float[Array, "kinds dim-1 size"]:
        """Parameters of all conditionals but the first."""
        made, h = self.made, value[:-1]
        *hidden, last = made.between_seeing()
        for weights, offset in zip(hidden, self.offsets, strict=True):
            h = made.activation(h @ weights + offset)
        return self.others + (h @ last).reshape(self.others.shape)

    def __call__(self, value: Float[Array, " dim"]) -> Float[Array, "kinds dim size"]:
        """Parameters of every conditional."""
        return jnp.concatenate([self.first, self.rest(value)], axis=1)


class Layer(eqx.Module):
    """A dense layer."""

    weights: Float[Array, "outputs inputs"]
    bias: Float[Array, " outputs"]


class MADE(eqx.Module):
    """Masked network from a condition and a value to kinds x size numbers per dimension.

    Inputs are the condition and all but the last dimension of the value; hidden units are in order of degree,
    so the blind ones come first.
    """

    layers: tuple[Layer, ...]
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
        self.outputs, self.activation = (kinds, dim, size), activation
        context, value, *between = jax.random.split(key, len(hidden) + 1)
        context = eqx.nn.Linear(features, width, dtype=jnp.float32, key=context)
        assert context.bias is not None
        into = jnp.concatenate([context.weight, _normal(value, dim, width, dim - 1)], axis=1)
        self.layers = (
            Layer(into, context.bias),
            *(Layer(_normal(k, width, width, width), jnp.zeros(width, jnp.float32)) for k in between),
            # Zero outputs make a flow the identity: training starts at the prior.
            Layer(jnp.zeros((kinds * dim * size, width)), jnp.zeros(kinds * dim * size)),
        )

    def __call__(self, condition: Float[Array, " features"]) -> Conditioned:
        """Ready for many values: all that depends on the condition alone is done."""
        blind, offsets = self.blind, []
        first, *others = self.layers
        total = condition @ first.weights[:, : self.features].T + first.bias
        for layer in others:
            offsets.append(total[blind:])
            total = self.activation(total[:blind]) @ layer.weights[:, :blind].T + layer.bias
        outputs = total.reshape(self.outputs)
        return Conditioned(self, tuple(offsets), outputs[:, :1], outputs[:, 1:])

    def rows(
        self, conditions: Float[Array, "features batch"], values: Float[Array, "dim batch"]
    ) -> Float[Array, "kinds dim size batch"]:
        """Parameters of every conditional for one value per condition, in half as many products.

        Rows lie along the last axis: a product is then as wide as the batch, which fills the vectors of a CPU
        whatever the number of units.
        """
        h = jnp.concatenate([conditions, values[:-1]])
        *hidden, last = zip(self.layers, self.masks(), strict=True)
        for layer, mask in hidden:
            h = self.activation(_affine(layer.weights * mask, layer.bias, h))
        layer, mask = last
        return _affine(layer.weights * mask, layer.bias, h).reshape(*self.outputs, -1)

    @property
    def dim(self) -> int:
        return self.outputs[1]

    @property
    def features(self) -> int:
        return self.layers[0].weights.shape[-1] - (self.dim - 1)

    @property
    def blind(self) -> int:
        """How many units of a hidden layer see the condition only."""
        return int(np.sum(self.degrees() == 0))

    def degrees(self) -> np.ndarray:
        return _degrees(self.layers[0].bias.shape[-1], self.dim)

    def masks(self) -> list[np.ndarray]:
        """Which weights exist. Constants of the compiled program rather than arrays of the model."""
        kinds, dim, size = self.outputs
        degrees, later = self.degrees(), np.arange(1, dim)
        into = np.concatenate([np.zeros(self.features, int), later])
        out_of = np.tile(np.repeat(np.arange(dim), size), kinds)
        levels = [into, *[degrees] * (len(self.layers) - 1), out_of]
        return [(a[None, :] <= b[:, None]).astype(np.float32) for a, b in itertools.pairwise(levels)]

    def between_seeing(self) -> list[Array]:
        """The weights that a value meets: from its dimensions to seeing units, on to others, to outputs."""
        (kinds, dim, size), blind, seeing = self.outputs, self.blind, self.degrees().size - self.blind
        weights = [(layer.weights * mask).T for layer, mask in zip(self.layers, self.masks(), strict=True)]
        last = weights[-1][blind:].reshape(seeing, kinds, dim, size)[:, :, 1:]
        return [
            weights[0][self.features :, blind:],
            *[w[blind:, blind:] for w in weights[1:-1]],
            last.reshape(seeing, kinds * (dim - 1) * size),
        ]


@jax.custom_vjp
def _affine(
    weights: Float[Array, "units inputs"], bias: Float[Array, " units"], h: Float[Array, "inputs batch"]
) -> Float[Array, "units batch"]:
    """A dense layer, whose gradients are products with as many columns as suit a CPU."""
    return weights @ h + bias[:, None]


def _affine_gradients(residual, g):
    """Of weights, bias and inputs.

    A product of 50 columns takes twice as long as one of 64, and one of 10 columns half as long as one of 10
    rows; XLA's sums along rows, which the gradient of a bias is, take longer than products with ones.
    """
    weights, h = residual
    (units, inputs), batch = weights.shape, h.shape[1]
    others = np.zeros((WIDTH - inputs % WIDTH, batch), np.float32)
    others[0] = 1  # the bias is the weight of an input that is always one
    if units < inputs:
        # Without the barrier, XLA would turn the product round again.
        of_weights, of_bias = jax.lax.optimization_barrier(h @ g.T).T, g @ others[0]
    else:
        both = g @ jnp.concatenate([h, others]).T
        of_weights, of_bias = both[:, :inputs], both[:, inputs]
    return of_weights, of_bias, weights.T @ g


_affine.defvjp(lambda weights, bias, h: (_affine(weights, bias, h), (weights, h)), _affine_gradients)


def refuse_narrow(hidden: tuple[int, ...], dim: int) -> None:
    """For a MADE that stands alone: each conditional must be able to depend on all dimensions before it."""
    if hidden[0] < dim:
        raise ValueError(
            f"a single network with hidden layers of {hidden[0]} units is too narrow for {dim} dimensions: "
            f"some would not depend on others. Use at least {dim} units, or a flow of several layers."
        )


def _degrees(width: int, dim: int) -> np.ndarray:
    """Degrees of hidden units, ascending: as many of each as division allows.

    Where there are fewer units than dimensions they are spread evenly: a conditional then misses the last few
    dimensions before it, which is still a density, and the next layer of a flow has them in another order.

    The number of those above zero is rounded down to a multiple of WIDTH (8 if there are few): products of
    such widths take about half as long per number as those of 40 or 50 columns on CPUs with wide vectors.
    """
    if width < dim:
        return np.linspace(0, dim - 1, width, endpoint=False).round().astype(int)
    seeing = width - -(-width // dim)
    rounded = seeing - seeing % (WIDTH if seeing >= 32 else 8)
    seeing = rounded if rounded >= dim - 1 else seeing
    return np.sort(np.concatenate([np.zeros(width - seeing, int), 1 + np.arange(seeing) % max(dim - 1, 1)]))


def _normal(key: PRNGKeyArray, inputs: int, rows: int, columns: int) -> Array:
    """Weights of so many rows, for units with so many inputs in all."""
    return jax.random.normal(key, (rows, columns), jnp.float32) / np.float32(np.sqrt(inputs + 1))
