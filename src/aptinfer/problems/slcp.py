"""SLCP, simple likelihood and complex posterior: four points from a Gaussian in the plane.

The five parameters, uniform on [-3, 3]^5, set its mean and covariance,

    m = (theta_1, theta_2),    Σ = [[s_1², ρ s_1 s_2], [ρ s_1 s_2, s_2²]],
    s_1 = theta_3²,  s_2 = theta_4²,  ρ = tanh(theta_5),

and x = (x_11, x_12, x_21, ..., x_42) holds four independent draws. (s_1 and s_2 are standard
deviations: the papers print variances, but their code, and the published reference posteriors,
use this form.) The signs of theta_3 and theta_4 are not identified, hence four equal modes, and
the prior's box cuts them off.

References: Papamakarios, Sterratt & Murray, "Sequential neural likelihood", AISTATS 2019;
Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation", ICML 2019.
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

BOUND = 3.0
POINTS = 4
SMALLEST = 1e-6  # of |theta_3| and |theta_4|: below it, squares overflow in single precision


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (8,) given theta of shape (5,)."""
    u_1, u_2 = jax.random.normal(key, (2, POINTS), theta.dtype)
    rho = jnp.tanh(theta[4])
    x_1 = theta[0] + theta[2] ** 2 * u_1
    x_2 = theta[1] + theta[3] ** 2 * (rho * u_1 + jnp.sqrt(1 - rho**2) * u_2)
    return jnp.stack([x_1, x_2], axis=1).reshape(2 * POINTS)


def log_likelihood(theta: ArrayLike, x: ArrayLike) -> Array:
    """log p(x | theta), exactly."""
    theta, x = floats(theta, x)
    s_1 = jnp.maximum(jnp.abs(theta[..., 2]), SMALLEST) ** 2
    s_2 = jnp.maximum(jnp.abs(theta[..., 3]), SMALLEST) ** 2
    # sqrt(1 - tanh²) = 1 / cosh, without the cancellation.
    rho, root = jnp.tanh(theta[..., 4]), 1 / jnp.cosh(theta[..., 4])
    total = -POINTS * math.log(2 * math.pi) - POINTS * jnp.log(s_1 * s_2 * root)
    for i in range(POINTS):
        z_1 = (x[..., 2 * i] - theta[..., 0]) / s_1
        z_2 = (x[..., 2 * i + 1] - theta[..., 1]) / s_2
        total = total - 0.5 * (z_1**2 + ((z_2 - rho * z_1) / root) ** 2)
    return total


def reference(rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
    """Exact, independent posterior draws, by rejection from a normal-inverse-Wishart distribution.

    Let x̄ be the mean of the N = 4 points and S their scatter matrix. Under the flat prior

        p(theta | x) ∝ N(m; x̄, Σ/N) |Σ|^(-(N-1)/2) exp(-tr(Σ⁻¹ S) / 2)    in the box.

    The map from theta_3, theta_4 > 0 and theta_5 to Σ has the Jacobian

        16 theta_3⁵ theta_4⁵ (1 - ρ²) = 16 |Σ|^(5/4) (1 - ρ²)^(-1/4),

    so that as a density of Σ the second factor becomes |Σ|^(-11/4) (1 - ρ²)^(1/4) exp(...): an
    inverse-Wishart density with ν = 5/2 degrees of freedom and scale S, thinned by
    (1 - ρ²)^(1/4) ≤ 1. Draw Σ, draw m ~ N(x̄, Σ/N), keep the pair with that probability and if
    theta lies in the box, and give theta_3 and theta_4 random signs.
    """
    points = x_o.reshape(POINTS, 2)
    centre = points.mean(0)
    scatter = (points - centre).T @ (points - centre)
    try:
        factor = np.linalg.cholesky(scatter)
    except np.linalg.LinAlgError:
        raise ValueError(
            "x_o must be four points that do not lie on one line; the likelihood of these is "
            "unbounded and the posterior has no density."
        ) from None

    def propose(count: int) -> np.ndarray:
        # Bartlett: Σ = (C A⁻ᵀ)(C A⁻ᵀ)ᵀ with S = C Cᵀ and A lower triangular, A_11² ~ χ²(ν),
        # A_22² ~ χ²(ν - 1), A_21 ~ N(0, 1). The same root then makes m from white noise.
        a, d = np.sqrt(rng.chisquare(2.5, count)), np.sqrt(rng.chisquare(1.5, count))
        inverse = np.zeros((count, 2, 2))
        inverse[:, 0, 0], inverse[:, 1, 1] = 1 / a, 1 / d
        inverse[:, 0, 1] = -rng.normal(size=count) / (a * d)
        root = factor @ inverse
        sigma = root @ root.transpose(0, 2, 1)
        mean = centre + (root @ rng.normal(size=(count, 2, 1)))[..., 0] / np.sqrt(POINTS)
        s_1, s_2 = np.sqrt(sigma[:, 0, 0]), np.sqrt(sigma[:, 1, 1])
        rho = np.clip(sigma[:, 0, 1] / (s_1 * s_2), -1 + 1e-15, 1 - 1e-15)
        signs = rng.choice([-1.0, 1.0], (2, count))
        spread = signs * np.sqrt([s_1, s_2])
        theta = np.column_stack([mean, spread.T, np.arctanh(rho)])
        kept = rng.uniform(size=count) < (1 - rho**2) ** 0.25
        return theta[kept & np.all(np.abs(theta) <= BOUND, axis=1)]

    return accepted(propose, n)


_observations, _truths = benchmark.observations("slcp")

problem = Problem(
    name="slcp",
    prior=box([-BOUND] * 5, [BOUND] * 5, names=tuple(f"theta_{i}" for i in range(1, 6))),
    simulator=JaxSimulator(simulate),
    observation=np.array(
        [
            [-0.9707123230673205, -2.9461224440977625],
            [-0.449472184276428, -3.4231848416735753],
            [-0.13285633971409394, -3.3640169882695594],
            [-0.8536759514579374, -2.4271637680153977],
        ]
    ).reshape(-1),
    truth=np.array([-0.7, -2.9, -1.0, -0.9, 0.6]),
    log_likelihood=log_likelihood,
    reference=reference,
    network=PAPER_MAF,
    observations=_observations,  # the benchmark's; `observation` is the paper's
    truths=_truths,
)
