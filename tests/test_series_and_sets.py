"""Embeddings of series and sets: their laws, and which one is chosen for which shape."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.estimators.by_shape import ByShape
from aptinfer.estimators.convolutions import CNN
from aptinfer.estimators.density import log_prob_pairs
from aptinfer.estimators.embeddings import MLP, Embedded, build_embedding
from aptinfer.estimators.mdn import MDN
from aptinfer.estimators.series import Conv1D

STEPS, CHANNELS = 6, 2
MASKED = {
    "gru": apt.GRU(4),
    "gru, both ways": apt.GRU(4, hidden=(5,), bidirectional=True),
    "transformer": apt.Transformer(width=8, blocks=1, heads=2, features=5),
    "deep set": apt.DeepSet(element=(8,), hidden=(5,)),
    "set transformer": apt.SetTransformer(width=8, blocks=1, heads=2, features=5),
}
SETS = ("deep set", "set transformer")


@functools.cache
def built(name):
    """The network, compiled for one number of steps: features of x with padding, and of its first steps."""
    build = lambda: build_embedding(MASKED[name], jax.random.key(0), (STEPS, CHANNELS), missing=True)[0]  # noqa: E731
    network = eqx.filter_jit(build)()
    # A learned value that is zero would hide that it is used.
    network = eqx.tree_at(lambda n: n.value, network, network.value + np.float32(0.7))  # pyright: ignore
    compiled = eqx.filter_jit(lambda network, x: (network(x), network(x[:STEPS])))
    return lambda x: np.asarray(compiled(network, padded(x)))


def padded(x, steps=STEPS + 3):
    return np.pad(x, ((0, steps - len(x)), (0, 0)), constant_values=np.nan)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", MASKED)
def test_padding_changes_nothing_and_order_counts_in_series_alone(name):
    network, x = built(name), normal(STEPS, CHANNELS)
    x[2, 1] = np.nan  # an entry that is missing
    beside, alone = network(x)
    np.testing.assert_allclose(beside, alone, atol=2e-6)
    assert np.isfinite(alone).all()
    # Data in place of the padding do change something.
    assert np.abs(network(np.concatenate([x, normal(3, CHANNELS)]))[0] - alone).max() > 1e-3
    other = padded(x)[np.random.default_rng(1).permutation(STEPS + 3)]
    change = np.abs(network(other)[0] - alone).max()
    assert change < 2e-6 if name in SETS else change > 1e-3


def test_a_gap_in_a_series_is_no_padding():
    for name in ("gru", "gru, both ways", "transformer"):
        network, x = built(name), normal(STEPS, CHANNELS)
        gap = np.insert(x, 3, np.nan, axis=0)
        assert np.abs(network(gap)[0] - network(x)[0]).max() > 1e-3


def test_both_directions_read_the_same_steps():
    network = apt.GRU(4, bidirectional=True).build(jax.random.key(0), (STEPS, CHANNELS))
    same = eqx.tree_at(lambda n: n.cells, network, (network.cells[0],) * 2)  # pyright: ignore
    x = normal(STEPS, CHANNELS)
    there, back = np.split(np.asarray(eqx.filter_jit(same)(x)), 2)  # pyright: ignore[reportArgumentType]
    forwards, _ = np.split(np.asarray(eqx.filter_jit(same)(x[::-1])), 2)  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(back, forwards, atol=1e-6)
    assert np.abs(there - back).max() > 1e-3


def test_the_size_of_a_set_is_seen():
    for name in SETS:
        network, one = built(name), normal(1, CHANNELS)
        assert np.abs(network(np.repeat(one, 5, axis=0))[0] - network(one)[0]).max() > 1e-3


def test_convolutions_along_time_by_hand():
    spec = Conv1D(channels=(3,), kernel=3, pool=2, hidden=(), activation=jnp.abs)
    network, features = build_embedding(spec, jax.random.key(0), (7, CHANNELS))
    assert features == 9  # seven steps are pooled to three
    x, linear = normal(7, CHANNELS), network.convolutions[0].linear  # pyright: ignore
    kernel = np.asarray(linear.weight).reshape(3, 3, CHANNELS)
    around = np.pad(x, ((1, 1), (0, 0)))
    by_hand = np.array([[np.sum(k * around[t : t + 3]) for k in kernel] for t in range(7)]) + linear.bias
    expected = np.abs(by_hand[:6].reshape(3, 2, 3).max(1)).ravel()
    np.testing.assert_allclose(network(x), expected, atol=1e-5)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((5,), MLP),
        ((200, 3), Conv1D),
        ((1, 1), Conv1D),
        ((3, 100, 100), CNN),
        ((1, 5, 40), CNN),
        ((2, 3, 3), MLP),
    ],
)
def test_the_shape_of_x_decides_when_none_is_named(shape, kind):
    assert type(ByShape().chosen(shape)) is kind
    for missing in (False, True):
        build = lambda missing=missing: build_embedding(ByShape(), jax.random.key(0), shape, missing=missing)  # noqa: E731
        network, features = eqx.filter_eval_shape(build)
        assert 16 <= features <= 64
        weights = sum(leaf.size for leaf in jax.tree.leaves(network))
        assert weights < 300_000


class TakesMask(eqx.Module):
    """A user's network of x and where it was observed."""

    def __call__(self, x):
        return x.ravel()[:3]


def test_a_users_network_is_told_what_is_missing():
    network, features = build_embedding(TakesMask(), jax.random.key(0), (2,), missing=True)
    assert features == 3
    seen = network(np.array([np.nan, 2.0], np.float32))  # pyright: ignore[reportCallIssue]
    np.testing.assert_array_equal(seen, [0, 2, 0])


def test_an_embedding_is_evaluated_once_per_x():
    """Floating-point operations of all pairs grow by the density's share alone when there are more atoms."""

    def operations(atoms: int) -> float:
        def pairs(key, x, values):
            embedding, features = build_embedding(apt.MLP((200, 200)), key, (50,))
            return log_prob_pairs(Embedded(embedding, MDN(1).build(key, 2, features)), x, values)

        lowered = jax.jit(pairs).lower(jax.random.key(0), normal(8, 50), normal(8, atoms, 2))
        return lowered.cost_analysis()["flops"]  # pyright: ignore[reportOptionalSubscript]

    assert operations(100) < 1.5 * operations(2)


REFUSED = [
    (apt.DeepSet(), (5,), r"sets of shape \(elements, channels\)"),
    (apt.SetTransformer(), (1, 5, 5), r"sets of shape \(elements, channels\)"),
    (apt.Transformer(), (5,), r"series of shape \(times, channels\)"),
    (Conv1D(), (5,), r"series of shape \(times, channels\)"),
    (Conv1D(channels=(4, 4, 4)), (7, 1), "series of 7 steps are too short for 3 convolutions"),
    (ByShape(), (2, 3, 4, 5), "no default embedding for 4 axes"),
]


@pytest.mark.parametrize(("spec", "shape", "says"), REFUSED)
def test_other_shapes_are_refused_with_advice(spec, shape, says):
    with pytest.raises(ValueError, match=says):
        build_embedding(spec, jax.random.key(0), shape)


def test_settings_are_checked():
    for spec in (apt.Transformer, apt.SetTransformer):
        with pytest.raises(ValueError, match="multiple of its heads"):
            spec(width=10, heads=4)
    with pytest.raises(ValueError, match="DeepSet hidden"):
        apt.DeepSet(hidden=(0,))
    with pytest.raises(ValueError, match="Conv1D pool"):
        apt.Conv1D(pool=0)
    with pytest.raises(TypeError, match="bidirectional must be True or False"):
        apt.GRU(bidirectional=2)  # pyright: ignore[reportArgumentType]
