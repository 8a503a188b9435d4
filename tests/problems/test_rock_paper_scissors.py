"""Rock-paper-scissors: against equations written anew in NumPy, linear stability, noise and options."""

import functools

import jax
import numpy as np
import pytest
from scipy.stats import kstest

from aptinfer import problems
from aptinfer.problems import rock_paper_scissors as rps
from aptinfer.protocols import Rows, Status

THETAS = [(-0.5, 0.5, -5.25), (0.1, 0.2, -5.0), (0.6, -0.3, -5.9)]
SMALL = {"size": 16, "steps": 30}


def in_numpy(rng, theta, n, size, steps, gain):
    """n images side by side, species by species."""
    mu, sigma, diffusion = 10 ** np.array(theta)
    a = b = c = np.full((n, size, size), mu / (3 * mu + sigma))

    def changed(own, hunter, empty):
        neighbours = sum(np.roll(own, shift, axis) for shift in (-1, 1) for axis in (1, 2))
        drift = diffusion * size**2 * (neighbours - 4 * own) + mu * own * empty - sigma * own * hunter
        deviation = gain * np.sqrt(own * (mu * np.maximum(empty, 0) + sigma * hunter))
        return np.clip(own + drift + deviation * rng.standard_normal(own.shape), 0, 1)

    for _ in range(steps):
        empty = 1 - a - b - c
        a, b, c = changed(a, c, empty), changed(b, a, empty), changed(c, b, empty)
    return np.stack([a, b, c], axis=1)


def summaries(images):
    """Numbers per image: densities, products of species, products of neighbours and of one cell."""
    a, b, c = np.moveaxis(np.asarray(images, np.float64), 1, 0)
    shifted = np.roll(images, 1, axis=2), np.roll(images, 3, axis=3)
    values = [images, images**2, *(images * s for s in shifted)]
    columns = [v.mean(axis=(2, 3)) for v in values]
    columns += [np.stack([(u * v).mean(axis=(1, 2)) for u, v in ((a, b), (b, c), (c, a))], axis=1)]
    # Which species follows which across space tells the hunter from the prey.
    columns += [
        np.stack([(u * np.roll(v, 1, axis=1)).mean(axis=(1, 2)) for u, v in ((a, b), (b, a))], axis=1)
    ]
    return np.concatenate([*columns, images[:, :, 0, 0], images[:, :, 5, 7] ** 2], axis=1)


def image(theta, **options) -> np.ndarray:
    """One simulation by the problem with these options."""
    problem = problems.get("rock_paper_scissors", **options)
    (outcome,) = problem.simulator(0, Rows(np.array([0]), np.asarray(theta)[None]))
    assert outcome.x is not None
    return outcome.x


@pytest.fixture(scope="module")
def images():
    """200 small images at each of THETAS."""
    n = 200
    theta = np.repeat(np.array(THETAS, np.float32), n, axis=0)
    simulate = functools.partial(rps.simulate, **SMALL, dt=1.0, gain=1 / 16, clipping=True)
    keys = jax.random.split(jax.random.key(0), len(theta))
    x = np.asarray(jax.jit(jax.vmap(simulate))(keys, theta))
    assert x.dtype == np.float32
    return dict(zip(THETAS, x.reshape(len(THETAS), n, 3, 16, 16), strict=True))


@pytest.mark.parametrize("theta", THETAS)
def test_the_simulator_agrees_with_numpy(images, theta, same_mean):
    ours = images[theta]
    theirs = in_numpy(np.random.default_rng(1), theta, len(ours), **SMALL, gain=1 / 16)
    same_mean(summaries(ours), summaries(theirs))
    assert ours.min() >= 0
    assert ours.max() <= 1
    # The lattice has no edge: what happens across it is what happens elsewhere.
    across, inside = (np.mean(ours[..., i, :] * ours[..., j, :], axis=(1, 2)) for i, j in ((0, -1), (7, 8)))
    same_mean(across, inside)


def test_the_twin_on_the_host_is_the_same_model(images, same_mean):
    settings = {**SMALL, "dt": 1.0, "gain": 1 / 16}
    rng = np.random.RandomState(0)
    theirs = np.stack([rps.simulate_on_host(rng, np.array(THETAS[0]), **settings) for _ in range(100)])
    same_mean(summaries(images[THETAS[0]]), summaries(theirs))


def test_without_noise_the_equilibrium_stays():
    mu, sigma = 0.3, 3.0
    x = image([np.log10(mu), np.log10(sigma), -5.25], size=8, noise_gain=0.0)
    np.testing.assert_allclose(x, mu / (3 * mu + sigma), rtol=1e-5)


@pytest.mark.parametrize(("mu", "sigma"), [(0.3, 3.0), (2.0, 0.5)])
def test_small_deviations_grow_and_turn_at_the_linearised_rate(mu, sigma):
    rates, dt, steps = np.array([mu, sigma, 1e-5]), 1e-3, 1000
    start = rps.equilibrium(rates)

    def after(direction):
        field = start + 1e-6 * direction[:, None, None] * np.ones((3, 4, 4))
        for _ in range(steps):
            field = rps.moved(np, field, rps.around(np, field), 0.0, rates, dt, 0.0, True)
        return (field[:, 0, 0] - start) / 1e-6

    wave = np.exp(2j * np.pi * np.arange(3) / 3)  # turns among the species, their sum staying zero
    found = np.log(wave.conj() @ (after(np.real(wave)) + 1j * after(np.imag(wave))) / 3)
    expected = mu * sigma * (1 + 1j * np.sqrt(3)) / (2 * (3 * mu + sigma))
    assert found == pytest.approx(expected, rel=2e-3)
    np.testing.assert_allclose(np.log(after(np.ones(3))), -mu, rtol=5e-3)


def test_diffusion_flattens_waves_at_the_rate_of_the_lattice():
    size, diffusion = 20, 1e-4
    x = np.arange(size)
    wave = np.cos(2 * np.pi * x / size)[:, None] * np.cos(4 * np.pi * x / size)[None, :]
    field = 0.2 + 0.01 * np.stack([wave, 2 * wave, -wave])
    after = rps.moved(
        np, field, rps.around(np, field), 0.0, np.array([0.0, 0.0, diffusion]), 1.0, 0.0, clipping=False
    )
    rate = diffusion * size**2 * 2 * (np.cos(2 * np.pi / size) + np.cos(4 * np.pi / size) - 2)
    np.testing.assert_allclose(after - 0.2, (1 + rate) * (field - 0.2), atol=1e-12)


@pytest.mark.parametrize("substeps", [1, 4])
def test_the_noise_of_a_unit_of_time_does_not_depend_on_the_steps(substeps):
    theta = np.array([-1.0, -1.0, -6.0])  # so slow that in one unit of time only the noise is seen
    x = image(theta, size=64, steps=1, substeps=substeps, noise_gain=0.02)
    variance = 0.02**2 * 0.25 * (0.1 * 0.25 + 0.1 * 0.25)
    assert x.var() == pytest.approx(variance, rel=5 * np.sqrt(2 / x.size) + 0.05)


def test_without_clipping_fast_reproduction_diverges():
    theta = np.array([[0.9, 0.0, -5.5], [-0.5, -0.5, -5.5]])
    problem = problems.get("rock_paper_scissors", size=8, clipping=False)
    statuses = [outcome.status for outcome in problem.simulator(0, Rows(np.arange(2), theta))]
    assert statuses == [Status.INVALID, Status.DONE]
    assert np.ptp(image(theta[0], size=8)) > 0.5


def test_normals():
    draw = jax.jit(functools.partial(rps.normals, shape=(3, 111, 111)))
    first, second = (np.asarray(draw(key)).ravel() for key in jax.random.split(jax.random.key(0)))
    n = first.size
    assert kstest(first, "norm").pvalue > 1e-4
    assert abs(np.mean(first**4) - 3) < 5 * np.sqrt(96 / n)
    assert np.isfinite(first).all()
    for other in (second, np.roll(first, 1), np.roll(first, n // 2)):
        assert abs(np.mean(first * other)) < 5 / np.sqrt(n)


def test_the_observation_is_the_same_everywhere():
    problem = problems.get("rock_paper_scissors")
    assert problem.observation.shape == (3, 100, 100)
    assert problem.observation.min() == 0
    assert problem.observation.max() <= 1
    means = [0.21202026, 0.23208546, 0.1537644]
    np.testing.assert_allclose(problem.observation.mean(axis=(1, 2)), means, atol=1e-6)


def test_an_image_does_not_depend_on_its_neighbours():
    problem = problems.get("rock_paper_scissors", size=12, steps=20)
    theta = problem.prior.sample(np.random.default_rng(0), 25)
    whole = [outcome.x for outcome in problem.simulator(5, Rows(np.arange(25), theta))]
    for outcome in problem.simulator(5, Rows(np.array([3, 17]), theta[[3, 17]])):
        np.testing.assert_array_equal(outcome.x, whole[outcome.index])
    again = problem.simulator(5, Rows(np.array([4]), theta[[3]]))[0].x
    assert not np.array_equal(again, whole[3])  # pyright: ignore[reportArgumentType]


def test_options_are_checked():
    with pytest.raises(ValueError, match="size must be a whole number of at least 3"):
        problems.get("rock_paper_scissors", size=2)
    with pytest.raises(ValueError, match="size=200 needs at least 2 substeps"):
        problems.get("rock_paper_scissors", size=200)
    with pytest.raises(ValueError, match="noise_gain must be a finite number"):
        problems.get("rock_paper_scissors", noise_gain=-1)
    with pytest.raises(TypeError, match="clipping must be True or False, got 'no'"):
        problems.get("rock_paper_scissors", clipping="no")
    with pytest.raises(TypeError, match=r"unknown argument 'noise'. Did you mean 'noise_gain'"):
        problems.get("rock_paper_scissors", noise=1.0)
