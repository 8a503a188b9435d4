"""Random keys on the host: named, splittable without state, and free of compilation.

JAX's own keys cost a small compiled program for every split. A run needs only a few per round, so they are
made here with NumPy and become JAX keys (threefry, whatever the user's default) inside compiled functions.
"""

from typing import NamedTuple

import jax
import numpy as np

from aptinfer.threefry import THREEFRY


class Key(NamedTuple):
    """A position in a tree of random streams: the seed and the numbers of the branches taken."""

    path: tuple[int, ...]

    def child(self, *branch: int) -> "Key":
        """An independent key."""
        return Key((*self.path, *branch))

    def words(self) -> np.ndarray:
        """The data of a JAX key: pass it to a compiled function and call `as_jax` there."""
        return self._sequence().generate_state(2)

    def generator(self) -> np.random.Generator:
        """A NumPy generator for work on the host."""
        return np.random.Generator(np.random.Philox(self._sequence()))

    def _sequence(self) -> np.random.SeedSequence:
        # Sequences that differ only by trailing zeros would be the same one: the length tells them apart.
        return np.random.SeedSequence((len(self.path), *self.path))

    def integer(self) -> int:
        """A seed of 31 bits for simulators."""
        return int(self.words()[0] >> 1)


def as_jax(words):
    """The JAX key with these words."""
    return jax.random.wrap_key_data(words, impl=THREEFRY)
