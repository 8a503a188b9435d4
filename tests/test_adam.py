"""AdamW against the papers' formulas in NumPy, float64; steps that are skipped change nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer import adam

pytestmark = pytest.mark.usefixtures("strict")

SIZE, STEPS, CLIP = 7, 40, 5.0
DECAY = (0.1 * (np.arange(SIZE) % 2)).astype(np.float32)
BAD = 11  # the number of a step that is not finite


@partial(jax.jit, static_argnames=("decays",))
def taken_step(weights, moments, gradient, usable, rate, decays):
    decay = DECAY if decays else None
    return adam.step(weights, moments, gradient, usable, rate=rate, clip=CLIP, decay=decay)


def gradients() -> np.ndarray:
    """Some longer than the clip, some shorter, some elements always zero."""
    rng = np.random.default_rng(3)
    lengths = np.where(np.arange(STEPS) % 3 == 0, 20, 0.5)[:, None]
    noise = rng.normal(size=(STEPS, SIZE)) * (np.arange(SIZE) != 4)
    return (lengths * noise).astype(np.float32)


def rates() -> np.ndarray:
    return np.float32(0.01) * np.minimum(np.arange(1, STEPS + 1, dtype=np.float32) / 10, 1)


def formulas(start: np.ndarray, gradients, rates, decay) -> np.ndarray:
    w, m, v = start.astype(np.float64), 0.0, 0.0
    for t, (g, rate) in enumerate(zip(gradients.astype(np.float64), rates, strict=True), start=1):
        g = g * min(1, CLIP / np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - rate * ((m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + decay * w)
    return w


def ours(start: np.ndarray, gradients, rates, decays, usable=None):
    weights, moments, taken = jnp.asarray(start), adam.Moments.start(start), []
    for i, (g, rate) in enumerate(zip(gradients, rates, strict=True)):
        use = jnp.asarray(usable is None or usable[i])
        weights, moments, was = taken_step(weights, moments, g, use, rate, decays)
        taken.append(bool(was))
    return np.asarray(weights), moments, taken


@pytest.mark.parametrize("decays", [False, True])
def test_steps_follow_the_formulas(decays):
    start = np.linspace(-1, 1, SIZE, dtype=np.float32)
    weights, moments, taken = ours(start, gradients(), rates(), decays)
    expected = formulas(start, gradients(), rates(), DECAY if decays else 0.0)
    np.testing.assert_allclose(weights, expected, atol=STEPS * 2e-7)
    assert np.abs(weights - start).max() > 0.1
    assert all(taken)
    assert int(moments.steps) == STEPS
    if not decays:
        assert weights[4] == start[4]  # nothing pulls it


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30, "loss"])
def test_a_step_that_is_not_finite_never_was(poison):
    """As if its gradient had not come: also where the sum of squares overflows, or the loss alone is lost."""
    start, all_gradients, usable = np.ones(SIZE, np.float32), gradients(), np.ones(STEPS, bool)
    if poison == "loss":
        usable[BAD] = False
    else:
        all_gradients[BAD, 2] = poison
    kept = np.arange(STEPS) != BAD
    with_it, moments, taken = ours(start, all_gradients, np.full(STEPS, np.float32(0.01)), True, usable)
    without, expected, _ = ours(start, all_gradients[kept], np.full(STEPS - 1, np.float32(0.01)), True)
    assert taken == kept.tolist()
    np.testing.assert_array_equal(with_it, without)
    jax.tree.map(np.testing.assert_array_equal, tuple(moments), tuple(expected))
