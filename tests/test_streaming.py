"""Data streamed to the device train the same network as data that lie on it."""

import threading

import jax
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.streaming import one_ahead


@pytest.mark.parametrize(("members", "rounds"), [(1, 2), (2, 1)])
def test_streamed_training_equals_training_in_memory(members, rounds):
    """Several blocks per epoch, the last one shorter, and failed rows among them."""

    def simulate(rng, theta):
        return None if theta[0] > 0.8 else theta + 0.1 * rng.standard_normal((3, 2))

    def run(device_memory):
        trainer = apt.Trainer(epochs=8, batch=20, warmup=5, device_memory=device_memory)
        estimator = apt.Ensemble(apt.MDN(1), members)
        method = apt.APT(estimator=estimator, loss=apt.Atomic(5), embedding=apt.MLP((6,)), trainer=trainer)
        prior = apt.box([-1, -1], [1, 1])
        return apt.infer(
            simulate, prior, np.zeros((3, 2)), method=method, rounds=rounds, simulations=150, progress=False
        )

    row = 4 * 3 * 2
    whole, streamed = run(None), run(2 * members * 4 * 20 * row)  # four minibatches per block
    for a, b in zip(whole.rounds, streamed.rounds, strict=True):
        assert a.history is not None
        assert b.history is not None
        np.testing.assert_allclose(b.history.training_loss, a.history.training_loss, atol=1e-4)
        np.testing.assert_allclose(b.history.validation_loss, a.history.validation_loss, atol=1e-4)
        weights = zip(*(jax.tree.leaves(r.posterior.estimator) for r in (a, b)), strict=True)  # pyright: ignore
        for first, second in weights:
            if hasattr(first, "dtype"):
                np.testing.assert_allclose(second, first, atol=2e-3)


def test_the_next_item_is_made_while_one_is_used():
    started, made = threading.Event(), []

    def make(item):
        made.append(item)
        if item == 1:
            started.set()
        return 10 * item

    items = one_ahead(make, range(4))
    assert next(items) == 0
    assert started.wait(10)  # the second is made though nobody has asked for it
    assert list(items) == [10, 20, 30]
    assert made == [0, 1, 2, 3]
    assert list(one_ahead(make, [])) == []


def test_a_limit_must_be_a_number_of_bytes():
    with pytest.raises(ValueError, match="Trainer device_memory must be a finite number above 0"):
        apt.Trainer(device_memory=0)
