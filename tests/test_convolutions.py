"""Convolutions as dense products equal XLA's, forward and backward, for every shape of image and window."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.estimators.convolutions import CNN, WIDEST, pooled_by_product, pooled_by_xla
from aptinfer.estimators.embeddings import build_embedding


@pytest.mark.parametrize(
    ("height", "width", "into", "out", "side", "pool"),
    [
        (9, 11, 1, 3, 5, 2),  # odd sizes: pooling leaves the last row and column out
        (7, 8, 2, 2, 2, 1),
        (8, 2 * WIDEST + 9, 2, 3, 3, 2),  # three blocks, the last one padded
        (10, 10, 3, 1, 4, 3),
    ],
)
def test_products_equal_convolutions(height, width, into, out, side, pool):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(height, width, into)).astype(np.float32)
    kernel = rng.normal(size=(out, into, side, side)).astype(np.float32)

    def measured(function):
        def total(x, kernel):
            y = function(x, kernel, pool=pool)
            return jnp.sum(jnp.sin(y)), y

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(x, kernel)

    (_, by_product), gradients = measured(pooled_by_product)
    (_, by_xla), expected = measured(pooled_by_xla)
    assert by_product.shape == ((height - side + 1) // pool, (width - side + 1) // pool, out)
    np.testing.assert_allclose(by_product, by_xla, atol=1e-4)
    for ours, theirs in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_an_image_becomes_a_vector():
    network, features = build_embedding(CNN((2, 3), hidden=(7,)), jax.random.key(0), (1, 12, 9))
    assert features == 7
    x = np.random.default_rng(0).normal(size=(4, 1, 12, 9)).astype(np.float32)
    vectors, single = eqx.filter_jit(lambda network, x: (jax.vmap(network)(x), network(x[2])))(network, x)
    np.testing.assert_allclose(vectors[2], single, atol=1e-5)
    assert np.ptp(vectors, axis=0).max() > 1e-3


@pytest.mark.parametrize(
    ("shape", "message"),
    [((20,), r"images of shape \(channels, height, width\); x has shape \(20,\)"), ((1, 4, 4), "too small")],
)
def test_other_shapes_are_refused_with_advice(shape, message):
    with pytest.raises(ValueError, match=message):
        CNN(padding=0).build(jax.random.key(0), shape)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="CNN kernel"):
        CNN(kernel=0)
    with pytest.raises(TypeError, match="chanels"):
        CNN(chanels=(3,))  # pyright: ignore[reportCallIssue]
