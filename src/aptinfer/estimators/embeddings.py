"""Embeddings: networks from scaled x to the vector that density estimators are conditioned on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords, whole_numbers
from aptinfer.estimators.density import Density, DensityEstimator
from aptinfer.estimators.missing import imputed, with_mask


@runtime_checkable
class EmbeddingSpec(Protocol):
    """Settings of an embedding: `build` makes the network for data of a given shape."""

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> eqx.Module: ...


class Dense(eqx.Module):
    """A stack of linear layers over flattened x."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)
    skip: bool = eqx.field(static=True, default=False)

    @classmethod
    def build(
        cls, key: PRNGKeyArray, sizes: tuple[int, ...], activation: Callable, *, skip: bool = False
    ) -> "Dense":
        keys = jax.random.split(key, len(sizes) - 1)
        pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
        layers = tuple(eqx.nn.Linear(a, b, dtype=jnp.float32, key=k) for a, b, k in pairs)
        return cls(layers, activation, skip)

    def __call__(self, x: Float[Array, "*event"]) -> Float[Array, " features"]:
        h = x = jnp.ravel(x)
        for layer in self.layers:
            h = self.activation(layer(h))
        return jnp.concatenate([x, h]) if self.skip else h


@suggests_keywords
@dataclass(frozen=True)
class MLP:
    """Fully connected embedding of flattened x, the default for vectors.

    Args:
        hidden: units of each layer; the last one is the size of the embedding.
        activation: an elementwise function of JAX arrays.
        skip: put x itself beside the last layer's units, so that what is linear need not be learned.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Callable = jax.nn.gelu
    skip: bool = False

    def __post_init__(self):
        object.__setattr__(self, "hidden", whole_numbers("MLP hidden", self.hidden))

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Dense:
        return Dense.build(key, (int(np.prod(shape)), *self.hidden), self.activation, skip=self.skip)


class Gated(eqx.Module):
    """h + W (silu(A n) * B n), n the normalised h: gates multiply features, so squares are one block away."""

    norm: eqx.nn.LayerNorm
    gate: eqx.nn.Linear
    features: eqx.nn.Linear
    out: eqx.nn.Linear

    @classmethod
    def build(cls, key: PRNGKeyArray, width: int) -> "Gated":
        norm = eqx.nn.LayerNorm(width, dtype=jnp.float32)
        keys = jax.random.split(key, 3)
        return cls(norm, *(eqx.nn.Linear(width, width, dtype=jnp.float32, key=k) for k in keys))

    def __call__(self, h: Float[Array, " width"]) -> Float[Array, " width"]:
        normal = self.norm(h)
        return h + self.out(jax.nn.silu(self.gate(normal)) * self.features(normal))


class Residual(eqx.Module):
    """Flattened x and, beside it, what residual blocks make of it."""

    first: eqx.nn.Linear
    blocks: tuple[Gated, ...]

    def __call__(self, x: Float[Array, "*event"]) -> Float[Array, " features"]:
        x = jnp.ravel(x)
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return jnp.concatenate([x, h])


@suggests_keywords
@dataclass(frozen=True)
class ResidualMLP:
    """Gated residual blocks with layer normalisation over flattened x.

    Better than `MLP` where the statistics that matter are hard to learn from few simulations, such as
    variances, together with `Trainer(weight_decay=0.3)`; worse where the posterior is very narrow. x itself
    is among the features: where the posterior moves with x one to one, nothing has to be learned.

    Args:
        width: features of the residual stream.
        blocks: number of residual blocks.
    """

    width: int = 64
    blocks: int = 3

    def __post_init__(self):
        positive_int("ResidualMLP width", self.width)
        positive_int("ResidualMLP blocks", self.blocks, minimum=0)

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Residual:
        for_first, *rest = jax.random.split(key, 1 + self.blocks)
        first = eqx.nn.Linear(int(np.prod(shape)), self.width, dtype=jnp.float32, key=for_first)
        return Residual(first, tuple(Gated.build(k, self.width) for k in rest))


@dataclass(frozen=True)
class Flatten:
    """No embedding: x is fed to the estimator as it is, scaled and flattened."""

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Dense:
        del key, shape
        return Dense((), jax.nn.gelu)


class Embedded(DensityEstimator):
    """Scaled x -> features -> density: what is trained, evaluated and sampled."""

    embedding: eqx.Module
    head: DensityEstimator

    def __call__(self, condition: Float[Array, "*event"]) -> Density:
        return self.head(self.embedding(condition))  # pyright: ignore[reportCallIssue]

    def log_prob_rows(self, conditions, values):
        return self.head.log_prob_rows(jax.vmap(self.embedding)(conditions), values)  # pyright: ignore


def build_embedding(
    spec: object, key: PRNGKeyArray, shape: tuple[int, ...], *, missing: bool = False
) -> tuple[eqx.Module, int]:
    """The network that `spec` stands for, and how many features it returns for data of `shape`.

    With `missing`, entries of x may be NaN, and the network sees what `estimators.missing` makes of them.
    """
    seen = with_mask(shape) if missing else shape
    network = spec.build(key, seen) if isinstance(spec, EmbeddingSpec) else spec
    if not isinstance(network, eqx.Module) or not callable(network):
        raise TypeError(
            f"embedding must be an eqx.Module that maps x to a vector, or settings such as apt.MLP(); "
            f"got {type(network).__name__}."
        )
    name = type(network).__name__
    beside = " (x and, beside it, which of its entries are observed)" if missing else ""
    takes = f"x of shape {seen}{beside}"
    network = imputed(network, shape) if missing else network
    try:
        out = jax.eval_shape(network, jax.ShapeDtypeStruct(shape, jnp.float32))
    except Exception as error:
        raise ValueError(f"embedding {name} cannot take {takes}: {error}") from error
    if not hasattr(out, "shape") or len(out.shape) != 1:
        came = getattr(out, "shape", type(out).__name__)
        raise ValueError(
            f"embedding {name} must return a vector for one {takes}; "
            f"it returned shape {came}. Flatten its output, for example with jnp.ravel."
        )
    return network, out.shape[0]
