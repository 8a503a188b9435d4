"""A random order of rows inside a compiled program."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray

MOST_PACKED = 2**16  # rows whose number leaves 15 of 31 bits to chance


def random_order(key: PRNGKeyArray, size: int, count: int | Int[Array, ""]) -> Int[Array, " size"]:
    """The numbers below `size`, those below `count` first and in random order.

    Random bits and a row's number are sorted as one word: sorting pairs of them takes several times as long
    on CPUs. Rows whose bits agree stay in order; with more rows that would be too many, and pairs are sorted.
    """
    number = lax.iota(jnp.uint32, size)
    last = jnp.where(number < jnp.uint32(count), jnp.uint32(0), jnp.uint32(2**31))
    bits = jax.random.bits(key, (size,), jnp.uint32)
    if size > MOST_PACKED:
        return jnp.argsort((bits >> 1) | last)
    width = max(1, (size - 1).bit_length())
    words = lax.sort(((bits << (width + 1)) >> 1) | number | last)
    return (words & jnp.uint32(2**width - 1)).astype(jnp.int32)
