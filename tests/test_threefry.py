"""Our random bits are JAX's, whatever is done with a key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.keys import Key, as_jax

WORDS = Key((1, 2)).words()


def ours(words=WORDS):
    return as_jax(words)


def theirs(words=WORDS):
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def words_of(keys):
    return np.asarray(jax.random.key_data(keys))


DRAWS = {
    "split": lambda key: jax.random.key_data(jax.random.split(key, (3, 2))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**32 - 7)),
    "bits": lambda key: jax.random.bits(key, (5, 3)),
    "bytes": lambda key: jax.random.bits(key, (5,), jnp.uint8),
    "one": lambda key: jax.random.uniform(key),
    "none": lambda key: jax.random.normal(key, (0, 2)),
    "normal": lambda key: jax.random.normal(key, (4,)),
    "permutation": lambda key: jax.random.permutation(key, 9),
    "rows": lambda key: jax.vmap(lambda one: jax.random.normal(one, (2,)))(jax.random.split(key, 4)),
    "folded rows": lambda key: jax.vmap(
        lambda i: jax.random.uniform(jax.random.fold_in(key, i), (2,), minval=-i)
    )(jnp.arange(4)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("compiled", [False, True], ids=["as it is", "compiled"])
def test_the_bits_are_those_of_jax(draw, compiled):
    def drawn(key_of):
        draws = (lambda words: draw(key_of(words))) if compiled else None
        return np.asarray(jax.jit(draws)(WORDS) if draws else draw(key_of()))

    with jax.threefry_partitionable(True):
        np.testing.assert_array_equal(drawn(ours), drawn(theirs), strict=True)


def test_words_of_64_bits():
    with jax.enable_x64(True):
        one, other = (jax.random.bits(key, (4,), jnp.uint64) for key in (ours(), theirs()))
    np.testing.assert_array_equal(one, other, strict=True)


def test_a_seed_gives_the_key_that_jax_makes_of_it():
    from aptinfer.threefry import THREEFRY

    for seed in (0, 5, 2**31 - 1):
        expected = words_of(jax.random.key(seed, impl="threefry2x32"))
        np.testing.assert_array_equal(words_of(jax.random.key(seed, impl=THREEFRY)), expected)
