"""The order of rows is a uniformly random permutation, rows that do not count come last."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.shuffling import MOST_PACKED, random_order


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 1), (1000, 900), (MOST_PACKED + 1, MOST_PACKED - 9)])
def test_every_number_comes_once_and_those_that_count_come_first(size, count):
    order = np.asarray(jax.jit(random_order, static_argnums=1)(jax.random.key(0), size, jnp.int32(count)))
    np.testing.assert_array_equal(np.sort(order[:count]), np.arange(count))
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def test_all_orders_are_equally_likely():
    keys = jax.random.split(jax.random.key(1), 24_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: random_order(key, 5, 4)))(keys))
    _, counts = np.unique(orders[:, :4], axis=0, return_counts=True)
    assert len(counts) == 24
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)
