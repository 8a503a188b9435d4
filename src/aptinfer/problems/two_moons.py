"""Two moons: a posterior of two crescents, bimodal on the large scale and thin on the small one.

Draw an angle a ~ U(-π/2, π/2) and a radius r ~ N(0.1, 0.01²), and shift the half ring by theta:

    x = (r cos a + 1/4, r sin a) + (-|theta_1 + theta_2|, theta_2 - theta_1) / √2,

with theta uniform on [-1, 1]². The noise is known in polar coordinates, so that with
(u, v) = x - (1/4, 0) - shift(theta) and R² = u² + v²

    p(x | theta) = N(R; 0.1, 0.01²) / (π R)    for u > 0, and 0 otherwise,

up to the radii below zero, of probability 1e-23. The factor 1 / R is the polar Jacobian.

Reference: Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation for
likelihood-free inference", ICML 2019, section 5.1 and appendix.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from aptinfer.priors import box
from aptinfer.problems import benchmark
from aptinfer.problems.problem import PAPER_MAF, Problem, accepted, floats
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "log_likelihood"]

CENTRE, RADIUS, WIDTH = 0.25, 0.1, 0.01
BOUND = 1.0
ROOT = math.sqrt(2)


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (2,) given theta of shape (2,)."""
    key_angle, key_radius = jax.random.split(key)
    angle = math.pi * (jax.random.uniform(key_angle, (), theta.dtype) - 0.5)
    radius = RADIUS + WIDTH * jax.random.normal(key_radius, (), theta.dtype)
    x_1 = radius * jnp.cos(angle) + CENTRE - jnp.abs(theta[0] + theta[1]) / ROOT
    x_2 = radius * jnp.sin(angle) + (theta[1] - theta[0]) / ROOT
    return jnp.stack([x_1, x_2])


def log_likelihood(theta: ArrayLike, x: ArrayLike) -> Array:
    """log p(x | theta), exactly; -inf on the empty side of the half ring."""
    theta, x = floats(theta, x)
    u = x[..., 0] - CENTRE + jnp.abs(theta[..., 0] + theta[..., 1]) / ROOT
    v = x[..., 1] - (theta[..., 1] - theta[..., 0]) / ROOT
    inside = u > 0
    # u = 1 where there is no density keeps gradients of the discarded branch finite.
    radius = jnp.hypot(jnp.where(inside, u, jnp.ones_like(u)), v)
    standard = (radius - RADIUS) / WIDTH
    density = -0.5 * standard**2 - math.log(WIDTH * math.sqrt(2 * math.pi)) - jnp.log(math.pi * radius)
    return jnp.where(inside, density, -jnp.inf)


def reference(rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
    """Exact posterior draws.

    In the rotated parameters q = (theta_1 + theta_2, theta_2 - theta_1) / √2 the model reads
    x = p + (-|q_1|, q_2) with p on the half ring, and the prior is flat. Hence |q_1| = p_1 - x_1
    and q_2 = x_2 - p_2 with p drawn as in the simulator, either sign of q_1 being equally likely.
    Draws with p_1 < x_1 have no q_1, and those outside the prior's box no prior density.
    """

    def propose(count: int) -> np.ndarray:
        angle = rng.uniform(-np.pi / 2, np.pi / 2, count)
        radius = rng.normal(RADIUS, WIDTH, count)
        size = radius * np.cos(angle) + CENTRE - x_o[0]
        q_1 = size * rng.choice([-1.0, 1.0], count)
        q_2 = x_o[1] - radius * np.sin(angle)
        theta = np.stack([q_1 - q_2, q_1 + q_2], axis=1) / ROOT
        return theta[(size >= 0) & np.all(np.abs(theta) <= BOUND, axis=1)]

    return accepted(propose, n)


_observations, _truths = benchmark.observations("two_moons")

problem = Problem(
    name="two_moons",
    prior=box([-BOUND] * 2, [BOUND] * 2, names=("theta_1", "theta_2")),
    simulator=JaxSimulator(simulate),
    observation=np.zeros(2),
    log_likelihood=log_likelihood,
    reference=reference,
    network=PAPER_MAF,
    observations=_observations,  # the benchmark's; `observation` is the paper's
    truths=_truths,
)
