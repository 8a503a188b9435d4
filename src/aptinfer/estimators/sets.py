r"""An embedding of sets of observations, whose order means nothing.

    f(x_1 ... x_n) = rho( mean_i x_i, mean_i phi(x_i), log n )

Any statistic of an exponential family is such a mean, and together with n it is sufficient (Zaheer et al.
2017). The mean keeps its scale whatever n is, so that sizes never trained on can be asked for. That of x
itself is also among the features that come out: large sets fix theta to a small part of the prior's width,
and a network's approximation of a mean would be too coarse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from aptinfer.checks import suggests_keywords, whole_numbers
from aptinfer.estimators.embeddings import Dense


class Pooled(eqx.Module):
    """Means of every element and of its phi, log n, and rho of all; beside it the mean of the elements."""

    masked: ClassVar[bool] = True
    element: Dense
    whole: Dense

    def __call__(
        self, x: Float[Array, "elements channels"], observed: Bool[Array, " elements"] | None = None
    ) -> Float[Array, " features"]:
        observed = jnp.ones(x.shape[0], bool) if observed is None else observed
        present = observed.astype(jnp.float32)
        count = jnp.maximum(jnp.sum(present), 1.0)
        mean = present @ jnp.concatenate([x, jax.vmap(self.element)(x)], axis=1) / count
        return jnp.concatenate([mean[: x.shape[1]], self.whole(jnp.concatenate([mean, log_count(count)]))])


def log_count(count: Float[Array, ""]) -> Float[Array, " 1"]:
    """The size of a set as a feature, of order one for sizes from 1 to thousands."""
    return (jnp.log(count) / 2 - 1)[None]


def check_elements(name: str, shape: tuple[int, ...]) -> None:
    """Refuse what is not a set of vectors."""
    if len(shape) != 2:
        raise ValueError(
            f"{name} embeds sets of shape (elements, channels), in any order; x has shape {shape}. For "
            f"numbers as elements let the simulator return x[:, None], for vectors use apt.MLP()."
        )


@suggests_keywords
@dataclass(frozen=True)
class DeepSet:
    """Embedding of sets (elements, channels) in which order means nothing, such as i.i.d. observations.

    Sets of unequal size are padded with rows of NaN and declared by `apt.infer(..., missing=True)`; the
    posterior can then be asked for at any size.

    Args:
        element: units of the layers applied to each element.
        hidden: units of the layers applied to their mean; the last one and the channels together are the size
            of the embedding.
        activation: an elementwise function of JAX arrays.
    """

    masked: ClassVar[bool] = True
    element: tuple[int, ...] = (64, 64)
    hidden: tuple[int, ...] = (64, 64)
    activation: Callable = jax.nn.gelu

    def __post_init__(self):
        for name in ("element", "hidden"):
            sizes = whole_numbers(f"DeepSet {name}", getattr(self, name))
            object.__setattr__(self, name, sizes)

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Pooled:
        check_elements("DeepSet", shape)
        for_element, for_whole = jax.random.split(key)
        element = Dense.build(for_element, (shape[1], *self.element), self.activation)
        pooled = shape[1] + (self.element or shape[1:])[-1] + 1
        return Pooled(element, Dense.build(for_whole, (pooled, *self.hidden), self.activation))
