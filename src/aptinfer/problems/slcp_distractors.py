"""SLCP with distractors: the eight numbers of SLCP hidden among others that say nothing.

x holds the eight numbers of `slcp` and m numbers y from a mixture of 20 equally likely Student-t
distributions with two degrees of freedom,

    y = μ_k + L_k z / sqrt(w),    z ~ N(0, I),    w ~ χ²(2) / 2,

all in one fixed random order. The tails are heavy: y has no variance. In the paper m is 12, 32, 52 or 92,
and the mixture is made from a seed: with white noise Z_k, z'_k and z''_k,

    L_k = sqrt(3 / m) (tril(Z_k) + diag(exp(z'_k)) + c_m I),    μ_k = 15 z''_k,

and c_m = 1, 3, 3 and 7.  (It keeps L_k from being nearly singular; other m interpolate.) The published
benchmark stores another mixture, of m = 92, with its own order. The posterior is that of the eight
numbers.

References: Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation for likelihood-free
inference", ICML 2019, section 5.2; Lueckmann et al., "Benchmarking simulation-based inference", AISTATS
2021, task T.4.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from aptinfer import checks
from aptinfer.estimators.embeddings import Flatten
from aptinfer.estimators.flows import MAF
from aptinfer.methods.losses import Atomic
from aptinfer.problems import benchmark, slcp
from aptinfer.problems.problem import Problem, floats
from aptinfer.simulators import JaxSimulator

__all__ = ["make", "problem"]

COMPONENTS = 20
INFORMATIVE = 2 * slcp.POINTS
PAPER_SEED = 52  # the first of the paper's
BENCHMARK_SIZE = 92


class Noise(NamedTuple):
    """The distractors' mixture, and the order of the data: `x[j] = (informative, distractors)[order[j]]`."""

    locations: np.ndarray
    factors: np.ndarray
    order: np.ndarray


class Hidden:
    """SLCP with the distractors of one mixture."""

    def __init__(self, noise: Noise):
        self.noise = noise
        self.places = np.argsort(noise.order)[:INFORMATIVE].astype(np.int32)

    def simulate(self, key: Array, theta: Array) -> Array:
        """One draw x of shape (8 + m,) given theta of shape (5,)."""
        key_x, key_component, key_noise, key_tail = jax.random.split(key, 4)
        locations, factors = (jnp.asarray(part, theta.dtype) for part in self.noise[:2])
        k = jax.random.randint(key_component, (), 0, len(locations))
        z = jax.random.normal(key_noise, locations.shape[1:], theta.dtype)
        # χ²(2) / 2 from two normals: unlike the logarithm of a uniform number it is never exactly zero.
        w = jnp.mean(jax.random.normal(key_tail, (2,), theta.dtype) ** 2)
        distractors = locations[k] + factors[k] @ z / jnp.sqrt(w)
        return jnp.concatenate([slcp.simulate(key_x, theta), distractors]).take(self.noise.order)

    def log_likelihood(self, theta: ArrayLike, x: ArrayLike) -> Array:
        """log p(informative entries | theta), which is log p(x | theta) but for a term without theta."""
        theta, x = floats(theta, x)
        return slcp.log_likelihood(theta, jnp.take(x, self.places, axis=-1))

    def reference(self, rng: np.random.Generator, x_o: np.ndarray, n: int) -> np.ndarray:
        """Exact, independent posterior draws: those of SLCP given the informative entries."""
        return slcp.reference(rng, x_o[self.places], n)


def paper_noise(generator: np.random.RandomState, m: int) -> Noise:
    """A mixture of the paper's kind. The generator's stream gives all L_k, then all μ_k, then the order."""
    ridge = np.interp(m, [12, 32, 52, 92], [1, 3, 3, 7])
    factors = np.empty((COMPONENTS, m, m))
    for factor in factors:
        factor[:] = np.tril(generator.randn(m, m)) + np.diag(np.exp(generator.randn(m)) + ridge)
    locations = 15 * generator.randn(COMPONENTS, m)
    return Noise(locations, np.sqrt(3 / m) * factors, generator.permutation(INFORMATIVE + m).astype(np.int32))


def benchmark_noise() -> Noise:
    """The published benchmark's mixture and order."""
    locations, triangles, order = benchmark.arrays(
        *(f"slcp_distractors_{part}" for part in ("locations", "factors", "permutation"))
    )
    factors = np.zeros((COMPONENTS, BENCHMARK_SIZE, BENCHMARK_SIZE), triangles.dtype)
    rows, columns = np.tril_indices(BENCHMARK_SIZE)
    factors[:, rows, columns] = triangles
    return Noise(locations, factors, order.astype(np.int32))


@checks.suggests_keywords
def make(distractors: int = 92, mixture: str = "paper", seed: int | None = None) -> Problem:
    """The problem with another number of distractors, or with the published benchmark's.

    Args:
        distractors: m; 12, 32, 52 and 92 are the paper's.
        mixture: `"paper"`, made from the seed, or `"sbibm"`, the benchmark's with its observations.
        seed: of NumPy's legacy generator, which makes the paper's mixture, the order of the data and the
            observed distractors; None: 52, the paper's first.
    """
    m = checks.positive_int("distractors", distractors)
    if mixture == "paper":
        return _paper(m, PAPER_SEED if seed is None else checks.whole_seed(seed))
    if mixture != "sbibm":
        raise ValueError(f'mixture must be "paper" or "sbibm", got {mixture!r}.')
    if m != BENCHMARK_SIZE:
        raise ValueError(f'distractors must be {BENCHMARK_SIZE} with mixture="sbibm", got {m}.')
    if seed is not None:
        raise ValueError(f'seed must be left out with mixture="sbibm", which is stored; got {seed!r}.')
    observations, truths = benchmark.observations("slcp_distractors")
    return _problem(Hidden(benchmark_noise()), observations, truths)


def _paper(m: int, seed: int) -> Problem:
    generator = np.random.RandomState(seed)
    noise = paper_noise(generator, m)
    k = generator.randint(COMPONENTS)
    z, w = generator.randn(m), generator.chisquare(2) / 2
    y = noise.locations[k] + noise.factors[k] @ z / np.sqrt(w)
    x_o = np.concatenate([slcp.problem.observation, y])[noise.order]
    assert slcp.problem.truth is not None
    return _problem(Hidden(noise), x_o[None], slcp.problem.truth[None])


def _problem(model: Hidden, observations: np.ndarray, truths: np.ndarray) -> Problem:
    return Problem(
        name="slcp_distractors",
        prior=slcp.problem.prior,
        simulator=JaxSimulator(model.simulate),
        observation=observations[0],
        truth=truths[0],
        log_likelihood=model.log_likelihood,
        reference=model.reference,
        observations=observations,
        truths=truths,
        network={"estimator": MAF(), "embedding": Flatten(), "loss": Atomic(100)},
    )


problem = make()
