"""Embeddings by attention: of sets, in which order means nothing, and of series, whose steps know their time.

Elements attend to each other in residual blocks, then a few learned queries attend to all of them (pooling by
attention, Lee et al. 2019). Elements that are absent are attended to by none.
"""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.embeddings import Gated
from aptinfer.estimators.sets import check_elements, log_count


class Attend(eqx.Module):
    """q + attention(q, elements), then a gated residual block for each q."""

    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    after: Gated

    @classmethod
    def build(cls, key: PRNGKeyArray, width: int, heads: int) -> "Attend":
        for_attention, for_after = jax.random.split(key)
        attention = eqx.nn.MultiheadAttention(heads, width, dtype=jnp.float32, key=for_attention)
        norm = eqx.nn.LayerNorm(width, dtype=jnp.float32)
        return cls(norm, attention, Gated.build(for_after, width))

    def __call__(self, queries, elements, observed):
        keys = jax.vmap(self.norm)(elements)
        asked = jax.vmap(self.norm)(queries)
        mask = jnp.broadcast_to(observed, (queries.shape[0], elements.shape[0]))
        return jax.vmap(self.after)(queries + self.attention(asked, keys, keys, mask=mask))


class Attentive(eqx.Module):
    """Self-attention between elements, learned queries to all of them, dense output."""

    masked: ClassVar[bool] = True
    first: eqx.nn.Linear
    blocks: tuple[Attend, ...]
    queries: Float[Array, "queries width"]
    pooling: Attend
    last: eqx.nn.Linear
    ordered: bool = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, "elements channels"], observed: Bool[Array, " elements"] | None = None
    ) -> Float[Array, " features"]:
        observed = jnp.ones(x.shape[0], bool) if observed is None else observed
        h = jax.vmap(self.first)(x)
        if self.ordered:
            h = h + positions(*h.shape)
        for block in self.blocks:
            h = block(h, h, observed)
        pooled = self.pooling(self.queries, h, observed)
        count = jnp.maximum(jnp.sum(observed.astype(jnp.float32)), 1.0)
        return jax.nn.gelu(self.last(jnp.concatenate([jnp.ravel(pooled), log_count(count)])))


def positions(times: int, width: int) -> np.ndarray:
    """Sines and cosines of the time, with wavelengths from 2 pi to 10000 2 pi steps."""
    rates = 1e4 ** (-np.arange((width + 1) // 2) / max(width // 2, 1))
    angles = np.arange(times)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width].astype(np.float32)


def build_attentive(spec: "Attention", key: PRNGKeyArray, channels: int) -> Attentive:
    for_first, for_queries, for_pooling, for_last, *keys = jax.random.split(key, 4 + spec.blocks)
    size = (QUERIES, spec.width)
    return Attentive(
        eqx.nn.Linear(channels, spec.width, dtype=jnp.float32, key=for_first),
        tuple(Attend.build(k, spec.width, spec.heads) for k in keys),
        jax.random.normal(for_queries, size, jnp.float32) / np.float32(np.sqrt(spec.width)),
        Attend.build(for_pooling, spec.width, spec.heads),
        eqx.nn.Linear(QUERIES * spec.width + 1, spec.features, dtype=jnp.float32, key=for_last),
        spec.ordered,
    )


QUERIES = 4  # learned questions to a whole set or series


@dataclass(frozen=True)
class Attention:
    """The sizes of an embedding by attention, and whether the order of what it embeds counts."""

    masked: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    width: int = 32
    blocks: int = 2
    heads: int = 4
    features: int = 64

    def __post_init__(self):
        name = type(self).__name__
        positive_int(f"{name} blocks", self.blocks, minimum=0)
        for field in ("width", "heads", "features"):
            positive_int(f"{name} {field}", getattr(self, field))
        if self.width % self.heads:
            raise ValueError(f"{name} width ({self.width}) must be a multiple of its heads ({self.heads}).")


@suggests_keywords
@dataclass(frozen=True)
class SetTransformer(Attention):
    """Embedding of sets (elements, channels) by attention: elements are compared with each other.

    For sets whose elements are not independent given theta, or whose pairs tell more than a mean can;
    otherwise `DeepSet` is faster. Sizes may vary as for `DeepSet`.

    Args:
        width: features of each element.
        blocks: blocks of self-attention.
        heads: of each attention.
        features: size of the embedding.
    """

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Attentive:
        check_elements("SetTransformer", shape)
        return build_attentive(self, key, shape[1])


@suggests_keywords
@dataclass(frozen=True)
class Transformer(Attention):
    """Embedding of series (times, channels) by attention between all pairs of steps.

    Series of unequal length are padded with NaN at their end and declared by `apt.infer(..., missing=True)`.

    Args:
        width: features of each step.
        blocks: blocks of self-attention.
        heads: of each attention.
        features: size of the embedding.
    """

    ordered: ClassVar[bool] = True

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Attentive:
        if len(shape) != 2:
            raise ValueError(
                f"Transformer embeds series of shape (times, channels); x has shape {shape}. For one channel "
                f"let the simulator return x[:, None], for vectors use apt.MLP()."
            )
        return build_attentive(self, key, shape[1])
