"""Frames: values and theta go there and back, densities change by the volume, draws stay inside."""

import numpy as np
import pytest
import scipy.stats as st

import aptinfer as apt
from aptinfer.spaces import LatentFrame, StandardisedFrame


def disk() -> apt.CustomPrior:
    """Uniform on the unit disk: a prior without a bijection."""

    def sample(rng, n):
        angle, radius = 2 * np.pi * rng.random(n), np.sqrt(rng.random(n))
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    def log_prob(theta):
        return np.where((theta**2).sum(axis=1) < 1, -np.log(np.pi), -np.inf)

    return apt.CustomPrior(sample, log_prob, names=("a", "b"))


PRIORS = {
    "box": apt.box([-1, 100], [1, 101]),
    "mixed": apt.Prior(rate=st.gamma(2.0), scale=st.lognorm(1.0), place=st.norm(3, 0.1)),
    "gaussian": apt.gaussian([1, -1], [[1.0, 0.9], [0.9, 1.0]]),
    "one": apt.box([0], [1]),
    "disk": disk(),
}
CASES = [
    (prior, space, dtype)
    for prior in PRIORS
    for space in (apt.Latent(), apt.Theta())
    for dtype in (np.float64, np.float32)
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2].__name__}")
def frame(request):
    prior, space, dtype = request.param
    return space.frame(PRIORS[prior], dtype)


def test_which_frame():
    assert isinstance(apt.Latent().frame(PRIORS["box"], np.float64), LatentFrame)
    assert isinstance(apt.Latent().frame(PRIORS["disk"], np.float64), StandardisedFrame)
    assert isinstance(apt.Theta().frame(PRIORS["box"], np.float64), StandardisedFrame)


def test_draws_are_inside_and_of_the_simulators_type(frame):
    value, theta = frame.draw_prior(np.random.default_rng(0), 2000)
    assert value.dtype == np.float32
    assert theta.dtype == np.float64
    assert value.shape == theta.shape == (2000, frame.prior.dim)
    assert frame.prior.contains(theta).all()
    if frame.dtype == np.float32:
        np.testing.assert_array_equal(theta, theta.astype(np.float32))


def test_there_and_back(frame):
    value, theta = frame.draw_prior(np.random.default_rng(1), 500)
    np.testing.assert_allclose(
        frame.from_theta(theta), value, atol=2e-2 if frame.dtype == np.float32 else 1e-5
    )
    again = frame.to_theta(frame.from_theta(theta))
    low, high = np.quantile(theta, [0.16, 0.84], axis=0)
    np.testing.assert_allclose(again, theta, atol=1e-5 * (high - low).max() + 1e-5 * np.abs(theta).max())


def test_values_have_about_unit_size(frame):
    value, _ = frame.draw_prior(np.random.default_rng(2), 2000)
    assert (np.abs(np.median(value, axis=0)) < 0.15).all()
    low, high = np.quantile(value, [0.16, 0.84], axis=0)
    np.testing.assert_allclose((high - low) / 2, 1, atol=0.15)


def test_volume_relates_the_two_densities(frame):
    value, theta = frame.draw_prior(np.random.default_rng(3), 200)
    value = frame.from_theta(theta)
    expected = frame.prior.log_prob(theta) - frame.log_prior(value, theta)
    np.testing.assert_allclose(frame.log_volume(value, theta), expected, atol=1e-8)
    # |dvalue / dtheta| of the first parameter, moved by a little
    step = 1e-5 * np.std(theta[:, 0])
    if isinstance(frame, StandardisedFrame):
        moved = theta + step * np.eye(theta.shape[1])[0]
        slope = (frame.from_theta(moved) - value)[:, 0] / step
        np.testing.assert_allclose(slope, 1 / frame.spread[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("prior", "space", "precision"),
    [
        ("box", apt.Latent(), 1.0),
        ("mixed", apt.Latent(), 1.0),
        ("box", apt.Theta(), 0.0),
        ("gaussian", apt.Theta(), None),
        ("mixed", apt.Theta(), "no closed form"),
        ("disk", apt.Latent(), "no closed form"),
    ],
)
def test_where_there_is_a_closed_form(prior, space, precision):
    frame = space.frame(PRIORS[prior], np.float64)
    if precision == "no closed form":
        assert frame.gaussian is None
        return
    mean, found = frame.gaussian
    np.testing.assert_array_equal(mean, 0)
    if precision is None:  # the prior itself, in units of its own spread
        theta = frame.prior.sample(np.random.default_rng(0), 50)
        value = frame.from_theta(theta)
        difference = frame.log_prior(value, theta) + 0.5 * np.einsum("ni,ij,nj->n", value, found, value)
        np.testing.assert_allclose(difference, difference[0], atol=1e-9)
    else:
        np.testing.assert_array_equal(found, precision * np.eye(frame.prior.dim))
