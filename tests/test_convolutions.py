"""Convolutions as dense products equal XLA's, forward and backward, for every shape of image and window."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer import problems
from aptinfer.estimators.convolutions import CNN, COLUMNS, pooled_by_product, pooled_by_xla
from aptinfer.estimators.embeddings import build_embedding


@pytest.mark.parametrize(
    ("height", "width", "into", "out", "side", "pool"),
    [
        (9, 11, 1, 3, 5, 2),  # odd sizes: pooling leaves the last row and column out
        (7, 8, 2, 2, 2, 1),
        (8, 2 * COLUMNS + 5, 2, 3, 3, 2),  # three blocks, the last one padded
        (12, 13, 1, 2, 9, 1),  # a kernel wider than the usual block
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


def test_every_convolution_may_have_settings_of_its_own():
    spec = CNN(channels=(2, 3), kernel=(3, 2), padding=(1, 0), pool=(1, 2), hidden=(4,))
    network = eqx.filter_eval_shape(spec.build, jax.random.key(0), (1, 6, 6))
    x = jax.ShapeDtypeStruct((6, 6, 1), np.float32)
    first, second = network.convolutions
    assert [first.kernel.shape, second.kernel.shape] == [(2, 1, 3, 3), (3, 2, 2, 2)]
    assert jax.eval_shape(lambda first, x: first(x), first, x).shape == (6, 6, 2)
    assert jax.eval_shape(lambda a, b, x: b(a(x)), first, second, x).shape == (2, 2, 3)
    # One number for all is the same number for each.
    same = CNN(channels=(2, 3), kernel=(5, 5), padding=(2, 2), pool=(2, 2))
    assert same.layers() == CNN(channels=(2, 3)).layers()


def test_the_network_of_the_paper():
    """Sizes and numbers of weights as the paper states them, for three species on a lattice of 100 x 100."""
    network = problems.get("rock_paper_scissors").network
    key = jax.random.key(0)
    embedding = eqx.filter_eval_shape(network["embedding"].build, key, (3, 100, 100))

    def weights(module):
        return sum(leaf.size for leaf in jax.tree.leaves(module))

    shapes, h = [], jax.ShapeDtypeStruct((100, 100, 3), np.float32)
    for convolution in embedding.convolutions:
        h = jax.eval_shape(lambda convolution, h: convolution(h), convolution, h)
        shapes.append(h.shape)
    assert shapes == [(100, 100, 8), (32, 32, 8), (15, 15, 8), (6, 6, 16), (2, 2, 32), (1, 1, 32)]
    per_layer = [weights(convolution) for convolution in embedding.convolutions]
    assert per_layer == [224, 584, 584, 1168, 2080, 4128]
    assert sum(per_layer) == 8768
    assert weights(embedding.dense) == 1650 + 2550
    assert embedding.activation is jax.nn.relu
    assert embedding.dense.activation is jnp.tanh
    head = eqx.filter_eval_shape(network["estimator"].build, key, 3, 50)
    assert weights(head) == 612


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
    with pytest.raises(ValueError, match="CNN pool must be a whole number of at least 1, got 0"):
        CNN(pool=(2, 0))
    with pytest.raises(ValueError, match=r"CNN padding must be one number, or one for each of 2 channels"):
        CNN(padding=(1, 2, 3))
    with pytest.raises(TypeError, match="chanels"):
        CNN(chanels=(3,))  # pyright: ignore[reportCallIssue]
