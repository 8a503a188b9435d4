"""Rock-paper-scissors: rates of three species that hunt each other in a ring, from an image of densities.

On a lattice, individuals reproduce into empty sites at the rate mu, kill the species that they beat at the
rate sigma, and move with the diffusion constant D, on the unit square with periodic boundaries. For many
sites the densities a, b, c follow stochastic partial differential equations. With ρ = a + b + c,

    ∂a/∂t = D Δa + mu a (1 - ρ) - sigma a c + g √(a [mu (1 - ρ) + sigma c]) ξ_a,

the same for b (eaten by a) and c (eaten by b), where ξ is white noise. The drift and noise terms are the
first and second moments of the lattice's jumps, every reaction changing one species alone.

theta = (log10 mu, log10 sigma, log10 D) is uniform on [-1, 1] x [-1, 1] x [-6, -5]. x is the image
(3, size, size) of densities at t = 100, by the Euler-Maruyama method with steps of 1 from the uniform
equilibrium a = b = c = mu / (3 mu + sigma), which is unstable: spirals grow from the noise at the rate
mu sigma / (2 (3 mu + sigma)).

What the paper leaves open was chosen here. The ξ of a cell are N(0, 1) per unit of time, and g = 1 / size
(the noise of one site per cell is larger by a factor of size, and drowns every pattern). Densities are
clipped to [0, 1] after each step; without that half of the prior's draws diverge. For mu > 2 steps of 1
overshoot, which is seen as a checkerboard; `substeps` cures it.

References: Reichenbach, Mobilia & Frey, "Self-organization of mobile populations in cyclic competition",
Journal of Theoretical Biology 2008; Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation
for likelihood-free inference", ICML 2019, appendix. Their observations were not published: ours is one
simulation at their example's theta.
"""

import functools
import math
from types import ModuleType
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import Array

from aptinfer import checks
from aptinfer.estimators.convolutions import CNN
from aptinfer.estimators.mdn import MDN
from aptinfer.methods.losses import Atomic
from aptinfer.priors import box
from aptinfer.problems.problem import Problem
from aptinfer.simulators import JaxSimulator

__all__ = ["make", "problem"]

SIZE, STEPS = 100, 100
CHUNK = 10  # images per compiled call: few enough for a processor's cache
TRUTH = np.array([-0.5, 0.5, -5.25])
OBSERVATION_SEED = 1
PRIOR = box([-1.0, -1.0, -6.0], [1.0, 1.0, -5.0], names=("log10_mu", "log10_sigma", "log10_diffusion"))
LARGEST_DIFFUSION = 1e-5
NETWORK = {
    "estimator": MDN(components=1),
    "embedding": CNN(
        channels=(8, 8, 8, 16, 32, 32),
        kernel=(3, 3, 3, 3, 2, 2),
        padding=(1, 0, 0, 0, 0, 0),
        pool=(1, 3, 2, 2, 2, 1),
        hidden=(50, 50),
        activation=jax.nn.relu,
        hidden_activation=jnp.tanh,
    ),
    "loss": Atomic(atoms=100),
}


@checks.suggests_keywords
def make(
    *,
    size: int = SIZE,
    steps: int = STEPS,
    substeps: int = 1,
    noise_gain: float | None = None,
    clipping: bool = True,
) -> Problem:
    """The problem on another lattice, or with other steps or noise.

    Args:
        size: cells along a side of the lattice.
        steps: units of time that are simulated.
        substeps: steps per unit of time.
        noise_gain: standard deviation g of the noise in a cell per unit of time. None: 1 / size.
        clipping: keep densities in [0, 1]. Without it, simulations that diverge fail.
    """
    size, steps = checks.positive_int("size", size, minimum=3), checks.positive_int("steps", steps)
    substeps = checks.positive_int("substeps", substeps)
    gain = 1 / size if noise_gain is None else checks.positive_float("noise_gain", noise_gain, zero=True)
    checks.true_or_false("clipping", clipping)
    if LARGEST_DIFFUSION * size**2 / substeps > 0.25:
        raise ValueError(
            f"size={size} needs at least {math.ceil(4 * LARGEST_DIFFUSION * size**2)} substeps for diffusion "
            f"to be stable, got substeps={substeps}. Ask for more of them, or for a smaller lattice."
        )
    settings = {"size": size, "steps": steps * substeps, "dt": 1 / substeps, "gain": gain}
    return Problem(
        name="rock_paper_scissors",
        prior=PRIOR,
        simulator=JaxSimulator(functools.partial(simulate, clipping=clipping, **settings), chunk=CHUNK),
        observation=simulate_on_host(np.random.RandomState(OBSERVATION_SEED), TRUTH, **settings),
        truth=TRUTH,
        network=NETWORK,
    )


def simulate(
    key: Array, theta: Array, /, size: int, steps: int, dt: float, gain: float, clipping: bool
) -> Array:
    """One image (3, size, size) given theta of shape (3,)."""
    rates = jnp.power(jnp.array(10, theta.dtype), theta)

    def step(field, number):
        normal = normals(jax.random.fold_in(key, number), field.shape)
        # Both are made once and kept: fused into what reads them, they would be computed several times.
        normal, padded = jax.lax.optimization_barrier((normal, around(jnp, field)))
        return moved(jnp, field, padded, normal.astype(theta.dtype), rates, dt, gain, clipping), None

    start = jnp.broadcast_to(equilibrium(rates), (3, size, size))
    return jax.lax.scan(step, start, jnp.arange(steps))[0]


def simulate_on_host(
    rng: np.random.RandomState, theta: np.ndarray, size: int, steps: int, dt: float, gain: float
) -> np.ndarray:
    """The same in NumPy, with clipping. Its legacy generator gives the same image everywhere and for ever."""
    rates = 10.0**theta
    field = np.full((3, size, size), equilibrium(rates))
    for _ in range(steps):
        normal = rng.standard_normal(field.shape)
        field = moved(np, field, around(np, field), normal, rates, dt, gain, clipping=True)
    return field


def equilibrium(rates: Any) -> Any:
    """The density of each species at which nothing changes, but for the noise."""
    return rates[0] / (3 * rates[0] + rates[1])


def around(xp: ModuleType, field: Any) -> Any:
    """The lattice with the neighbours of its edges, from the opposite edges."""
    return xp.pad(field, ((0, 0), (1, 1), (1, 1)), mode="wrap")


def moved(
    xp: ModuleType, field: Any, padded: Any, normal: Any, rates: Any, dt: float, gain: float, clipping: bool
) -> Any:
    """The densities after a step, with the functions of NumPy or of JAX (`xp`)."""
    mu, sigma, diffusion = rates
    across = padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
    along = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1]
    spread = diffusion * field.shape[-1] ** 2 * (across + along - 4 * field)
    free = mu * (1 - (field[0] + field[1] + field[2]))[None]
    eaten = sigma * xp.stack([field[2], field[0], field[1]])
    variance = xp.maximum(field * (xp.maximum(free, 0) + eaten), 0)
    field = field + dt * (spread + field * (free - eaten)) + gain * dt**0.5 * xp.sqrt(variance) * normal
    return xp.clip(field, 0, 1) if clipping else field


def normals(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers. Like `jax.random.normal`, which throws half of the random bits away."""
    pair = jax.random.bits(key, (2,), jnp.uint32)
    count = jax.lax.iota(jnp.uint32, math.prod(shape))
    bits = jax.extend.random.threefry_2x32((pair[0], pair[1]), count)
    # The 23 highest bits are the fraction of a number in [1, 2); 2^-23 centres them in (-1, 1).
    fraction = (bits >> np.uint32(9)) | np.uint32(0x3F800000)
    uniform = (jax.lax.bitcast_convert_type(fraction, jnp.float32) - 1.5) * 2 + 2.0**-23
    return (math.sqrt(2) * jax.lax.erf_inv(uniform)).reshape(shape)


problem = make()
