"""JAX's own random bits, in programs that compile in a fraction of the time.

JAX writes threefry for CPUs as a loop over rounds, which XLA compiles anew, in about 0.4 seconds, for each
draw in a program; a run's programs spent more than half of their compilation on it. Written out, its twenty
rounds are one loop over elements: five times as fast to compile, three times as fast to run, and the same
bits (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
"""

import math

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def _threefry(key, high, low):
    """Two words for each counter, given as two words."""
    words = key[0], key[1], key[0] ^ key[1] ^ PARITY
    a, b = high + words[0], low + words[1]
    for i in range(5):
        for distance in ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(distance)) | (b >> np.uint32(32 - distance)))
        a, b = a + words[(i + 1) % 3], b + words[(i + 2) % 3] + np.uint32(i + 1)
    return a, b


def _counted(key, shape: tuple[int, ...]):
    count = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _threefry(key, jnp.zeros(shape, jnp.uint32), count)


def _as_key(words):
    # Without the barrier, XLA would compute a key anew for every element that is drawn with it.
    return jax.lax.optimization_barrier(jnp.stack(words, axis=-1))


def _split(key, shape):
    return _as_key(_counted(key, shape))


def _fold_in(key, data):
    return _as_key(_threefry(key, np.uint32(0), data.astype(jnp.uint32)))


def _random_bits(key, width, shape):
    if width != 32 or math.prod(shape) >= 2**32:
        return _ORIGINAL.random_bits(key, width, shape)
    a, b = _counted(key, shape)
    return a ^ b


_ORIGINAL = jax.extend.random.threefry_prng_impl
THREEFRY = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=_ORIGINAL.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="aptinfer_threefry2x32",
    tag="apt",
)
