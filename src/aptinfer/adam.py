r"""AdamW on a single vector of weights (Kingma & Ba 2015, Loshchilov & Hutter 2019), with clipping.

    g <- g min(1, clip / |g|),    m <- b1 m + (1 - b1) g,    v <- b2 v + (1 - b2) g^2,
    w <- w - rate ( (m / c1) / (sqrt(v / c2) + eps) + decay w ),    c = 1 - b^t

Written out, because a step of a small network is short: corrections are scalars, one sum serves for clipping
and for finding what is not finite, and a step to be skipped is one of rate zero. So XLA makes a few short
loops of it, where a chain of separate transformations took twice as long.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

B1, B2, EPS = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Moments(NamedTuple):
    """Moving averages of the gradient and of its square, and the steps taken."""

    mean: Float[Array, "*members weights"]
    square: Float[Array, "*members weights"]
    steps: Int[Array, "*members"]

    @classmethod
    def start(cls, weights: np.ndarray) -> Any:
        """All zero, as arrays of the host: that spares a compiled program."""
        zeros = np.zeros(weights.shape, np.float32)
        return cls(zeros, zeros, np.zeros(weights.shape[:-1], np.int32))  # pyright: ignore[reportArgumentType]


def step(
    weights: Float[Array, " weights"],
    moments: Moments,
    gradient: Float[Array, " weights"],
    usable: Bool[Array, ""],
    *,
    rate: Float[Array, ""],
    clip: float,
    decay: Float[np.ndarray, " weights"] | None,
) -> tuple[Float[Array, " weights"], Moments, Bool[Array, ""]]:
    """The weights after a step, the moments, and whether it was taken.

    It is not where `usable` is false or the gradient is not finite: both then stay as they are.

    Args:
        weights: one vector.
        moments: after the step before.
        gradient: not clipped yet.
        usable: whether the loss was.
        rate: the learning rate.
        clip: largest norm of the gradient.
        decay: weight decay of each weight; None: of none.
    """
    squares = jnp.sum(gradient**2)
    taken = usable & jnp.isfinite(squares)
    scale = np.float32(clip) / jnp.maximum(jnp.sqrt(squares), np.float32(clip))
    gradient = jnp.where(taken, gradient * scale, np.float32(0))
    b1, b2, rate = (
        jnp.where(taken, value, np.float32(otherwise)) for value, otherwise in ((B1, 1), (B2, 1), (rate, 0))
    )
    mean = b1 * moments.mean + (1 - B1) * gradient
    square = b2 * moments.square + (1 - B2) * gradient**2
    t = (moments.steps + 1).astype(jnp.float32)
    root = jnp.sqrt(1 - B2**t)
    change = (rate * root / (1 - B1**t)) * (mean / (jnp.sqrt(square) + EPS * root))
    if decay is not None:
        change = change + rate * (decay * weights)
    return weights - change, Moments(mean, square, moments.steps + taken.astype(jnp.int32)), taken
