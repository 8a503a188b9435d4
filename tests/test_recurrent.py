"""The recurrent embedding against the equations of the gated recurrent unit, and its door."""

import equinox as eqx
import jax
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.estimators.embeddings import build_embedding


def test_the_last_state_follows_the_equations():
    network, features = build_embedding(apt.GRU(units=4), jax.random.key(0), (7, 2))
    assert features == 4
    x = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    cell = network.cells[0]  # pyright: ignore[reportAttributeAccessIssue]
    into, own, bias = (np.asarray(a, np.float64) for a in (cell.weight_ih, cell.weight_hh, cell.bias))
    bias_new = np.asarray(cell.bias_n, np.float64)

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    state = np.zeros(4)
    for values in x:
        of_x, of_state = np.split(into @ values + bias, 3), np.split(own @ state, 3)
        reset, keep = sigmoid(of_x[0] + of_state[0]), sigmoid(of_x[1] + of_state[1])
        new = np.tanh(of_x[2] + reset * (of_state[2] + bias_new))
        state = keep * state + (1 - keep) * new
    np.testing.assert_allclose(eqx.filter_jit(network)(x), state, atol=1e-5)  # pyright: ignore


def test_dense_layers_follow_and_order_matters():
    network, features = build_embedding(apt.GRU(units=5, hidden=(6, 3)), jax.random.key(1), (9, 1))
    assert features == 3
    x = np.random.default_rng(1).normal(size=(4, 9, 1)).astype(np.float32)
    vectors = eqx.filter_jit(lambda network, x: jax.vmap(network)(x))
    assert np.abs(vectors(network, x) - vectors(network, x[:, ::-1])).max() > 1e-2
    # tanh of the last layer
    assert np.abs(vectors(network, 100 * x)).max() <= 1


def test_it_learns_what_only_the_order_of_a_series_tells():
    # Of four numbers from the prior, theta is the second.
    def series(rng, theta):
        others = rng.uniform(-1, 1, 3)
        return np.array([others[0], theta[0], others[1], others[2]])[:, None]

    method = apt.NPE(
        estimator=apt.MDN(1),
        embedding=apt.GRU(units=16),
        trainer=apt.Trainer(epochs=300, learning_rate=1e-2),
    )
    x_o = np.array([-0.8, 0.5, -0.3, -0.6])[:, None]
    prior = apt.box([-1], [1])
    run = apt.infer(series, prior, x_o, method=method, rounds=1, simulations=1000, progress=False)
    assert run.posterior.mean()[0] == pytest.approx(0.5, abs=0.05)
    assert run.posterior.given(x_o[::-1]).mean()[0] == pytest.approx(-0.3, abs=0.05)


def test_other_shapes_and_settings_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"series of shape \(times, channels\); x has shape \(20,\)"):
        apt.GRU().build(jax.random.key(0), (20,))
    with pytest.raises(ValueError, match="GRU units must be a whole number"):
        apt.GRU(units=0)
    with pytest.raises(ValueError, match="GRU hidden must be a whole number"):
        apt.GRU(hidden=(5, -1))
