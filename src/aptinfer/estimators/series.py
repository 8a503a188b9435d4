"""A convolutional embedding of series.

A convolution along time is computed as one dense product, of `kernel` neighbouring steps side by side with a
matrix: XLA's own is several times slower inside a compiled loop on CPUs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords, whole_numbers
from aptinfer.estimators.embeddings import Dense

FEW = 16  # steps that an automatic number of convolutions leaves


class TemporalConvolution(eqx.Module):
    """Cross-correlation along time, ends padded with zeros, then max pooling."""

    linear: eqx.nn.Linear
    kernel: int = eqx.field(static=True)
    pool: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "times into"]) -> Float[Array, "fewer out"]:
        times = x.shape[0]
        before = (self.kernel - 1) // 2
        x = jnp.pad(x, ((before, self.kernel - 1 - before), (0, 0)))
        windows = jnp.concatenate([x[i : i + times] for i in range(self.kernel)], axis=1)
        h = jax.vmap(self.linear)(windows)
        fewer = times // self.pool
        return jnp.max(h[: fewer * self.pool].reshape(fewer, self.pool, -1), axis=1)


class Temporal(eqx.Module):
    """Convolutions along time, then dense layers over what they leave."""

    convolutions: tuple[TemporalConvolution, ...]
    dense: Dense
    activation: Callable = eqx.field(static=True)

    def __call__(self, x: Float[Array, "times channels"]) -> Float[Array, " features"]:
        for convolution in self.convolutions:
            x = self.activation(convolution(x))
        return self.dense(x)


@suggests_keywords
@dataclass(frozen=True)
class Conv1D:
    """Convolutional embedding of series (times, channels), all of one length.

    Args:
        channels: of each convolution's output. None: 16, 32, 64, 64, ... until few steps are left.
        kernel: steps that each convolution sees at once.
        pool: steps among which the largest value is kept after each convolution; 1: none.
        hidden: units of the dense layers that follow; the last one is the size of the embedding.
        activation: an elementwise function of JAX arrays.
    """

    channels: tuple[int, ...] | None = None
    kernel: int = 5
    pool: int = 2
    hidden: tuple[int, ...] = (64, 64)
    activation: Callable = jax.nn.gelu

    def __post_init__(self):
        for name in ("channels", "hidden"):
            if getattr(self, name) is not None:
                sizes = whole_numbers(f"Conv1D {name}", getattr(self, name))
                object.__setattr__(self, name, sizes)
        positive_int("Conv1D kernel", self.kernel)
        positive_int("Conv1D pool", self.pool)

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Temporal:
        if len(shape) != 2:
            raise ValueError(
                f"Conv1D embeds series of shape (times, channels); x has shape {shape}. For one channel let "
                f"the simulator return x[:, None], for vectors use apt.MLP(), for images apt.CNN()."
            )
        times, into = shape
        channels = self._channels(times) if self.channels is None else self.channels
        if times // self.pool ** len(channels) < 1:
            raise ValueError(
                f"series of {times} steps are too short for {len(channels)} convolutions with "
                f"pool={self.pool}. Use fewer, or pool=1."
            )
        *keys, for_dense = jax.random.split(key, len(channels) + 1)
        convolutions = []
        for out, k in zip(channels, keys, strict=True):
            linear = eqx.nn.Linear(self.kernel * into, out, dtype=jnp.float32, key=k)
            convolutions.append(TemporalConvolution(linear, self.kernel, self.pool))
            times, into = times // self.pool, out
        dense = Dense.build(for_dense, (times * into, *self.hidden), self.activation)
        return Temporal(tuple(convolutions), dense, self.activation)

    def _channels(self, times: int) -> tuple[int, ...]:
        """As many convolutions as leave few steps, at least one and at most eight."""
        count = 1
        while self.pool > 1 and times // self.pool**count > FEW and count < 8:
            count += 1
        return tuple(min(16 * 2**i, 64) for i in range(count if times >= self.pool else 0))
