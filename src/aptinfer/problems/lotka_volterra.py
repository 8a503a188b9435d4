"""Lotka-Volterra: the rates of predators and prey, from nine statistics of their numbers over time.

The model is the Markov jump process of `jump_process.py`, whose parameters theta are the logarithms of four
rates, uniform on [-5, 2]^4. From the series X, Y of N = 151 states, with means m and variances v (divisor
N - 1), the data are

    x = (m_X, m_Y, log(v_X + 1), log(v_Y + 1), a_X(1), a_X(2), a_Y(1), a_Y(2), c),

where a(k) is the autocorrelation at lag k and c the correlation of X and Y, all of them sums over the pairs
there are, divided by N - 1. A simulation of more than 10,000 events has failed (one in eight from the
prior), as has one whose X or Y never changes: it has no correlations.

References: Papamakarios & Murray, "Fast ε-free inference of simulation models with Bayesian conditional
density estimation", NeurIPS 2016; Papamakarios, Sterratt & Murray, "Sequential neural likelihood", AISTATS
2019, from whose code the observation is; Greenberg, Nonnenmacher & Macke, "Automatic posterior
transformation", ICML 2019.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from aptinfer import checks
from aptinfer.priors import box
from aptinfer.problems.jump_process import jump_process
from aptinfer.problems.problem import PAPER_MAF, Problem
from aptinfer.simulators import JaxSimulator

__all__ = ["PRIOR", "TRUTH", "make", "problem", "statistics"]

LIMIT = 10_000
CHUNK = 1000  # rows per compiled call: the longer the queue, the fewer lanes are idle at its end
PRIOR = box(
    [-5.0] * 4,
    [2.0] * 4,
    names=("log_predator_birth", "log_predator_death", "log_prey_birth", "log_predation"),
)
TRUTH = np.log([0.01, 0.5, 1.0, 0.01])
OBSERVATION = np.array(
    [
        95.2251655629139,
        51.966887417218544,
        8.673645613767254,
        8.051495657751438,
        0.9800023163789862,
        0.9349876506264332,
        0.9772874722030622,
        0.9269218757264457,
        0.02293618463877707,
    ]
)


def statistics(series: Array) -> Array:
    """The nine statistics of a series (times, 2); NaN if predators or prey are always the same."""
    means = jnp.mean(series, axis=0)
    divisor = len(series) - 1
    variances = jnp.sum((series - means[None]) ** 2, axis=0) / divisor
    x, y = ((series - means[None]) / jnp.sqrt(variances)[None]).T
    correlations = [jnp.sum(z[lag:] * z[: len(z) - lag]) / divisor for z in (x, y) for lag in (1, 2)]
    values = jnp.concatenate(
        [means, jnp.log(variances + 1), jnp.stack([*correlations, jnp.sum(x * y) / divisor])]
    )
    # Asked of the numbers themselves: rounding in the mean can leave a constant series a variance.
    constant = jnp.any(jnp.max(series, axis=0) == jnp.min(series, axis=0))
    return jnp.where(constant, jnp.nan, values)


@checks.suggests_keywords
def make(*, limit: int = LIMIT) -> Problem:
    """The problem with another limit.

    Args:
        limit: largest number of events; a simulation that needs more has failed.
    """
    series = jump_process(checks.positive_int("limit", limit))

    def simulate(key: Array, theta: Array) -> Array:
        return statistics(series(key, theta))

    return Problem(
        name="lotka_volterra",
        prior=PRIOR,
        simulator=JaxSimulator(simulate, chunk=CHUNK),
        observation=OBSERVATION,
        truth=TRUTH,
        network=PAPER_MAF,
    )


problem = make()
