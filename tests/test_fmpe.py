"""Flow matching: its loss against NumPy, its solver against Gaussians, its posteriors as densities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.estimators.velocity import _angles, _clock, _solved
from aptinfer.methods.fmpe import QUESTIONS, FlowMatching
from aptinfer.methods.losses import Batch

ROWS, DIM, FEATURES = 6, 2, 3


def randomised(seed: int, *, scale: float = 0.4):
    """A velocity network with no weight left at zero, made on the host."""
    settings = apt.VelocityNetwork(hidden=7, blocks=2)
    shapes = eqx.filter_eval_shape(lambda: settings.build(jax.random.key(0), DIM, FEATURES))
    rng = np.random.default_rng(seed)
    is_shape = lambda a: isinstance(a, jax.ShapeDtypeStruct)  # noqa: E731
    fill = lambda a: np.float32(scale * rng.normal(size=a.shape)) if is_shape(a) else a  # noqa: E731
    return jax.tree.map(fill, shapes, is_leaf=is_shape)


def batch_of(*, key=None, first: int = 0, rows: int = ROWS) -> Batch:
    rng = np.random.default_rng(3)
    x, value = rng.normal(size=(rows, FEATURES)), rng.normal(size=(rows, 1, DIM))
    nothing = jnp.zeros((rows, 1), jnp.float32)
    return Batch(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(value, jnp.float32),
        nothing,
        jnp.ones(rows, bool),
        nothing[:, 0],
        None,
        key=key,
        position=None if key is not None else first + jnp.arange(rows),
    )


def numpy_velocity(head, x, t, z):
    """v(t, z, x) in float64, from the weights and the definitions alone."""
    dense = lambda layer, h: np.float64(layer.weight) @ h + np.float64(layer.bias)  # noqa: E731
    s = np.sqrt(t**2 + (1 - t) ** 2)
    left = np.pi / 2 - np.arctan2(t, 1 - t)
    clock = np.arcsinh(left / 0.005) / np.arcsinh(np.pi / 2 / 0.005)
    waves = np.pi * clock * np.arange(1, 5)
    inputs = np.concatenate([z / s, [clock], np.sin(waves), np.cos(waves)])
    h = dense(head.context, np.float64(x)) + dense(head.first, inputs)
    for block in head.blocks:
        normal = (h - h.mean()) / np.sqrt(h.var() + 1e-5) * block.norm.weight + block.norm.bias
        gate = dense(block.gate, normal)
        h = h + dense(block.out, gate / (1 + np.exp(-gate)) * dense(block.features, normal))
    return ((2 * t - 1) * z / s + dense(head.last, h)) / s


@pytest.mark.parametrize("validation", [False, True])
def test_the_loss_is_the_squared_error_of_the_velocity(validation):
    head, loss = randomised(0), FlowMatching(exponent=1.0)
    batch = batch_of(key=None if validation else jax.random.key(5))
    losses, (times, noise) = eqx.filter_jit(lambda h, b: (loss(h, b), loss.questions(b)))(head, batch)
    assert times.shape == (ROWS, QUESTIONS if validation else 1)
    for b in range(ROWS):
        x, z_1, errors = batch.x[b], np.float64(batch.candidates[b, 0]), []
        for t, z_0 in zip(np.asarray(times[b], float), np.asarray(noise[b], float), strict=True):
            v = numpy_velocity(head, x, t, (1 - t) * z_0 + t * z_1)
            errors.append(np.sum((v - (z_1 - z_0)) ** 2))
        assert losses[b] == pytest.approx(np.mean(errors), rel=1e-4)


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 1.0])
def test_times_follow_the_power_law_in_training_and_validation(exponent):
    loss, rows = FlowMatching(exponent), 500
    questions = jax.jit(loss.questions)
    keys = jax.random.key(0), jax.random.key(1), None, None
    first, other, fixed, again = (questions(batch_of(key=key, rows=rows)) for key in keys)
    for times, _ in (first, other, fixed):
        # Even sets of n points have a discrepancy of at most about log(n) / n.
        uniform = np.sort(np.ravel(times).astype(float)) ** (1 + exponent)
        n = len(uniform)
        assert np.abs(uniform - (np.arange(n) + 0.5) / n).max() < 1.5 * np.log(n) / n
    assert not np.array_equal(first[0], other[0])
    for a, b in zip(fixed, again, strict=True):
        np.testing.assert_array_equal(a, b)
    # A row's questions belong to its position, whichever batch it comes in; times say nothing about noise.
    later = questions(batch_of(first=100, rows=50))
    np.testing.assert_array_equal(fixed[1][100:150], later[1])
    for times, noise in (first, fixed):
        draws = np.asarray(noise, float).reshape(-1, DIM)
        assert np.abs(draws.mean(axis=0)).max() < 5 / len(draws) ** 0.5
        assert abs(np.corrcoef(np.ravel(times), draws[:, 0])[0, 1]) < 5 / len(draws) ** 0.5


@pytest.mark.parametrize("width", [1.8, 0.3, 0.03, 0.003])
def test_the_default_steps_follow_gaussians_of_any_width(width):
    """The field of a Gaussian posterior is known: its flow must end at mean + width x noise."""
    mean, noise = 0.7, np.linspace(-3, 3, 13, dtype=np.float32)

    def field(angle, u):
        c, s = jnp.cos(angle), jnp.sin(angle)
        return mean * c - s * c * (1 - width**2) / (c**2 + (s * width) ** 2) * (u - mean * s)

    angles = _angles(apt.VelocityNetwork().steps)

    @jax.jit
    def there_and_back(noise):
        found = _solved(field, noise, angles)
        return found, _solved(field, found, angles[::-1])

    found, back = there_and_back(noise)
    np.testing.assert_allclose((found - mean) / width, noise, atol=0.003)
    np.testing.assert_allclose(back, noise, atol=0.003)


def test_the_clock_runs_evenly_over_the_steps():
    angles = _angles(8)
    np.testing.assert_allclose(_clock(angles), np.linspace(1, 0, 9), atol=1e-5)
    np.testing.assert_allclose(angles[[0, -1]], [0, np.pi / 2], atol=1e-6)


def simulator(rng, theta):
    return theta + 0.3 * rng.standard_normal(2)


SETTINGS = {
    "embedding": apt.MLP((16,)),
    "trainer": apt.Trainer(batch=30, epochs=30, learning_rate=5e-3, warmup=10, average=0.5),
}


@pytest.fixture(scope="module")
def runs():
    method = apt.FMPE(apt.Ensemble(apt.VelocityNetwork(hidden=16, blocks=1, steps=16), 2), **SETTINGS)
    settings = {"method": method, "simulations": 300, "progress": False}
    prior = apt.box([-1, -1], [1, 1])
    return [apt.infer(simulator, prior, [0.4, -0.8], seed=seed, **settings) for seed in (0, 0, 1)]


def test_equal_seeds_give_equal_bits(runs):
    first, again, other = (run.posterior.sample(20, seed=3) for run in runs)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    values = [run.rounds[0].history.validation_loss for run in runs]
    np.testing.assert_array_equal(values[0], values[1])


def test_the_posterior_is_a_density_in_theta_at_any_observation(runs):
    posterior = runs[0].posterior
    several = posterior.given([[0.4, -0.8], [0.0, 0.5]])
    assert several.sample(7).shape == (2, 7, 2)
    np.testing.assert_array_equal(several.sample(7)[0], posterior.sample(7))
    axis = (np.arange(64) + 0.5) / 32 - 1
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(several.log_prob(grid))
    # The middle of a cell is wrong by its curvature: at the edges of the box it can be steep.
    np.testing.assert_allclose(density.sum(axis=1) / 32**2, 1, atol=0.02)
    for i in range(2):
        mean = density[i] @ grid / density[i].sum()
        draws = several.sample(4000)[i]
        assert (np.abs(draws) < 1).all()
        error = draws.std(axis=0) / 4000**0.5
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5 * error + 0.01)
    # It has learned something: the two posteriors lie apart.
    assert np.abs(several.mean()[0] - several.mean()[1]).max() > 0.3
