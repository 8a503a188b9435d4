"""A convolutional embedding of images.

XLA's convolutions are slow on CPUs, and several times slower inside a compiled loop. There a convolution
is computed as a dense product instead: `kh` neighbouring rows of the image, side by side, times a banded
matrix made of the kernel. That does more arithmetic than needed (zeros outside the band) at a much higher
rate, and is twelve times as fast in all on images of 3 x 100 x 100. On GPUs a product was more than twice as
fast too, with few channels and JAX's default precision (`benchmarks/convolutions.py`; not yet measured in
full precision); with more channels than were measured, the convolution is XLA's own there.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords, whole_numbers
from aptinfer.estimators.embeddings import Dense

NARROW = 32  # channels, up to which a product was faster on a GPU too
COLUMNS = 4  # of the output per row of the product, at least: with more, zeros in the banded matrix cost more


class Convolution(eqx.Module):
    """Cross-correlation, max pooling, bias. The activation comes after pooling."""

    kernel: Float[Array, "out into height width"]
    bias: Float[Array, " out"]
    padding: int = eqx.field(static=True)
    pool: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "height width into"]) -> Float[Array, "pooled_h pooled_w out"]:
        pad = (self.padding, self.padding)
        x = jnp.pad(x, (pad, pad, (0, 0)))
        by_product = functools.partial(pooled_by_product, pool=self.pool)
        by_xla = functools.partial(pooled_by_xla, pool=self.pool)
        elsewhere = by_product if max(self.kernel.shape[:2]) <= NARROW else by_xla
        return jax.lax.platform_dependent(x, self.kernel, cpu=by_product, default=elsewhere) + self.bias


class Convolutional(eqx.Module):
    """Convolutions, then dense layers over what they leave."""

    convolutions: tuple[Convolution, ...]
    dense: Dense
    activation: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "channels height width"]) -> Float[Array, " features"]:
        h = jnp.moveaxis(x, 0, -1)
        for convolution in self.convolutions:
            h = self.activation(convolution(h))
        return self.dense(h)


@suggests_keywords
@dataclass(frozen=True)
class CNN:
    """Convolutional embedding of images (channels, height, width).

    `kernel`, `padding` and `pool` are one number for all convolutions, or one number for each.

    Args:
        channels: of each convolution's output.
        kernel: side of the kernels.
        padding: zeros added on each side before a convolution.
        pool: side of the max pooling after each convolution; 1: none.
        hidden: units of the dense layers that follow; the last one is the size of the embedding.
        activation: an elementwise function of JAX arrays, applied after pooling and in dense layers.
        hidden_activation: another one for the dense layers. None: the same.
    """

    channels: tuple[int, ...] = (8, 16)
    kernel: int | tuple[int, ...] = 5
    padding: int | tuple[int, ...] = 2
    pool: int | tuple[int, ...] = 2
    hidden: tuple[int, ...] = (64, 32)
    activation: Callable = jax.nn.relu
    hidden_activation: Callable | None = None

    def __post_init__(self):
        for name in ("channels", "hidden"):
            object.__setattr__(self, name, whole_numbers(f"CNN {name}", getattr(self, name)))
        for name, minimum in (("kernel", 1), ("padding", 0), ("pool", 1)):
            value = getattr(self, name)
            if not isinstance(value, tuple | list):
                positive_int(f"CNN {name}", value, minimum=minimum)
                continue
            sizes = tuple(positive_int(f"CNN {name}", n, minimum=minimum) for n in value)
            if len(sizes) != len(self.channels):
                raise ValueError(
                    f"CNN {name} must be one number, or one for each of {len(self.channels)} channels; "
                    f"got {value!r}."
                )
            object.__setattr__(self, name, sizes)

    def layers(self) -> list[tuple[int, int, int, int]]:
        """Channels, kernel, padding and pool of each convolution."""
        columns = (
            value if isinstance(value, tuple) else (value,) * len(self.channels)
            for value in (self.channels, self.kernel, self.padding, self.pool)
        )
        return list(zip(*columns, strict=True))

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Convolutional:
        if len(shape) != 3:
            raise ValueError(
                f"CNN embeds images of shape (channels, height, width); x has shape {shape}. For one channel "
                f"let the simulator return x[None], for vectors use apt.MLP()."
            )
        into, *sides = shape
        *keys, for_dense = jax.random.split(key, len(self.channels) + 1)
        convolutions = []
        for (out, side, padding, pool), k in zip(self.layers(), keys, strict=True):
            kernel_shape = (out, into, side, side)
            limit = np.float32(1 / np.sqrt(np.prod(kernel_shape[1:])))
            weights, bias = jax.random.split(k)
            convolutions.append(
                Convolution(
                    jax.random.uniform(weights, kernel_shape, jnp.float32, -limit, limit),
                    jax.random.uniform(bias, (out,), jnp.float32, -limit, limit),
                    padding,
                    pool,
                )
            )
            into, sides = out, [(s + 2 * padding - side + 1) // pool for s in sides]
            if min(sides) < 1:
                raise ValueError(
                    f"images of {shape[1]} x {shape[2]} pixels are too small for {len(self.channels)} "
                    f"convolutions of {self}. Use fewer, a smaller kernel or pool=1."
                )
        return Convolutional(
            tuple(convolutions),
            Dense.build(
                for_dense,
                (into * sides[0] * sides[1], *self.hidden),
                self.hidden_activation or self.activation,
            ),
            self.activation,
        )


def pooled_by_product(x: Array, kernel: Array, *, pool: int) -> Array:
    """Cross-correlation and max pooling of an image (height, width, into) as one dense product."""
    out, into, kh, kw = kernel.shape
    height, width = (side // pool * pool for side in (x.shape[0] - kh + 1, x.shape[1] - kw + 1))
    block = -(-max(COLUMNS, kw - 1) // pool) * pool
    blocks = -(-width // block)
    x = x[: height + kh - 1, : width + kw - 1]
    x = jnp.pad(x, ((0, 0), (0, (blocks + 1) * block - x.shape[1]), (0, 0)))
    # What a block of output columns sees: as many input columns, and the first few of the next block's.
    parts = x.reshape(x.shape[0], blocks + 1, block * into)
    windows = jnp.concatenate([parts[:, :-1], parts[:, 1:, : (kw - 1) * into]], axis=2)
    rows = jnp.concatenate([windows[i : i + height] for i in range(kh)], axis=2)
    # Columns of one pooling window lie far apart, so that each pooling is between whole blocks of memory.
    columns = np.arange(block).reshape(-1, pool).T.ravel()
    products = rows.reshape(height * blocks, -1) @ _banded(kernel, columns)
    products = _largest(jnp.split(products, pool, axis=1))
    products = products.reshape(height // pool, pool, -1)
    products = _largest([products[:, i] for i in range(pool)])
    return products.reshape(height // pool, blocks * block // pool, out)[:, : width // pool]


def _banded(kernel: Array, columns: np.ndarray) -> Array:
    """(kh x inputs x into, columns x out): what each input adds to the outputs in these columns."""
    out, into, kh, kw = kernel.shape
    inputs = np.arange(len(columns) + kw - 1)
    hits = inputs[None, :, None] == columns[None, None, :] + np.arange(kw)[:, None, None]
    banded = jnp.einsum("ocil,lwv->iwcvo", kernel, hits.astype(np.float32))
    return banded.reshape(kh * len(inputs) * into, len(columns) * out)


def _largest(arrays: list[Array]) -> Array:
    return functools.reduce(jnp.maximum, arrays)


def pooled_by_xla(x: Array, kernel: Array, *, pool: int) -> Array:
    """The same by XLA's convolution."""
    y = jax.lax.conv_general_dilated(
        x[None], kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC")
    )[0]
    height, width = (side // pool for side in y.shape[:2])
    y = y[: height * pool, : width * pool].reshape(height, pool, width, pool, -1)
    return jnp.max(y, axis=(1, 3))
