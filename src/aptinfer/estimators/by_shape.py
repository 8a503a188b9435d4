"""The embedding of a user who names none: chosen from the shape of x."""

from dataclasses import dataclass

import equinox as eqx
from jaxtyping import PRNGKeyArray

from aptinfer.estimators.convolutions import CNN
from aptinfer.estimators.embeddings import MLP, EmbeddingSpec
from aptinfer.estimators.series import Conv1D

SMALL = 8  # side of what the convolutions of an image leave


@dataclass(frozen=True)
class ByShape:
    """`MLP` for vectors, `Conv1D` for series (times, channels), `CNN` for images (channels, height, width).

    Nothing in its shape tells a set from a series: sets need `DeepSet` or `SetTransformer` by name.
    """

    def chosen(self, shape: tuple[int, ...]) -> EmbeddingSpec:
        """Settings for data of this shape."""
        if len(shape) == 1:
            return MLP()
        if len(shape) == 2:
            return Conv1D()
        if len(shape) == 3:
            return _for_images(*shape[1:])
        raise ValueError(
            f"x has shape {shape}, and there is no default embedding for {len(shape)} axes: vectors, series "
            f"(times, channels) and images (channels, height, width) have one. Reshape x, flatten it with "
            f"embedding=apt.MLP(), or give an eqx.Module that maps x to a vector."
        )

    def build(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> eqx.Module:
        return self.chosen(shape).build(key, shape)


def _for_images(height: int, width: int) -> EmbeddingSpec:
    """Convolutions that halve the image until it is small; none for images that already are tiny."""
    halvings = 0
    while min(height, width) // 2**halvings > SMALL:
        halvings += 1
    if halvings == 0 and min(height, width) < 4:
        return MLP()
    return CNN(channels=tuple(min(8 * 2**i, 32) for i in range(max(halvings, 1))))
