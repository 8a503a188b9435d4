"""Lotka-Volterra, noisy: as raw, but predators and prey are counted with large errors.

To every number of the series of `lotka_volterra_raw.py`, those at time 0 included, independent noise from
N(0, 50²) is added: about the size of the numbers themselves. The observation is the noise-free one of the
raw problem with the noise that the paper's code drew.

Reference: Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation for likelihood-free
inference", ICML 2019, appendix.
"""

import jax
import numpy as np
from jax import Array

from aptinfer import checks
from aptinfer.problems.jump_process import jump_process
from aptinfer.problems.lotka_volterra import CHUNK, PRIOR, TRUTH
from aptinfer.problems.lotka_volterra_raw import LIMIT, NETWORK
from aptinfer.problems.lotka_volterra_raw import OBSERVATION as EXACT
from aptinfer.problems.problem import Problem
from aptinfer.simulators import JaxSimulator

__all__ = ["make", "problem"]

NOISE = 50.0
NOISE_SEED = 1305  # of the legacy generator, whose stream NumPy keeps for ever


@checks.suggests_keywords
def make(*, limit: int = LIMIT, noise: float = NOISE) -> Problem:
    """The problem with another limit, or other noise, by which the observation's noise is scaled too.

    Args:
        limit: largest number of events; a simulation that needs more has failed.
        noise: standard deviation of the noise.
    """
    exact = jump_process(checks.positive_int("limit", limit))
    noise = checks.positive_float("noise", noise, zero=True)

    def simulate(key: Array, theta: Array) -> Array:
        for_process, for_noise = jax.random.split(key)
        series = exact(for_process, theta)
        return series + noise * jax.random.normal(for_noise, series.shape, series.dtype)

    standard = np.random.RandomState(NOISE_SEED).randn(*EXACT.shape)
    return Problem(
        name="lotka_volterra_noisy",
        prior=PRIOR,
        simulator=JaxSimulator(simulate, chunk=CHUNK),
        observation=EXACT + noise * standard,
        truth=TRUTH,
        network=NETWORK,
    )


problem = make()
