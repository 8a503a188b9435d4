"""Lotka-Volterra, raw: the rates of predators and prey, from their numbers at 151 times.

The model and the prior are those of `lotka_volterra.py`; x is the whole series (151, 2) of predators and
prey, and a simulation may take up to 50,000 events. The observation is one simulation at the true rates, but
not the one behind the nine statistics of `lotka_volterra.py`. The paper learns with a recurrent network.

Reference: Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation for likelihood-free
inference", ICML 2019, appendix; the observation is from their code.
"""

import jax.numpy as jnp
import numpy as np

from aptinfer import checks
from aptinfer.estimators.mdn import MDN
from aptinfer.estimators.recurrent import GRU
from aptinfer.methods.losses import GaussianProposal
from aptinfer.problems.jump_process import jump_process
from aptinfer.problems.lotka_volterra import CHUNK, PRIOR, TRUTH
from aptinfer.problems.problem import Problem
from aptinfer.simulators import JaxSimulator

__all__ = ["NETWORK", "OBSERVATION", "make", "problem"]

LIMIT = 50_000
NETWORK = {
    "estimator": MDN(components=1),
    "embedding": GRU(units=100, hidden=(50, 50), activation=jnp.tanh),
    "loss": GaussianProposal(),
}
PREDATORS = """
    50 59 66 81 97 109 127 148 163 188 217 239 236 235 228 217 211 193 175 171 162 151 136 128 111 110 96 95
    93 81 80 78 74 72 66 67 64 54 55 54 53 48 54 61 64 65 73 85 88 104 130 159 173 196 220 219 212 209 196
    188 176 166 158 154 138 128 119 107 99 94 86 81 78 67 63 58 58 57 53 55 53 55 54 54 54 53 64 76 94 116
    136 149 173 200 208 224 232 217 206 202 196 181 167 158 147 135 121 111 95 84 73 68 61 57 50 46 43 41 42
    45 48 48 47 49 48 42 43 46 40 45 55 67 83 100 129 148 163 182 195 206 216 224 207 202 193 182 174 161
    152 140 131
"""
PREY = """
    100 104 117 133 131 135 132 135 125 108 95 75 60 46 34 28 18 12 8 9 5 5 6 6 8 8 8 9 9 10 11 17 17 19 20
    25 29 30 45 45 48 50 65 75 77 95 106 107 114 113 114 110 95 77 72 49 33 24 18 18 17 15 14 10 13 11 11 9
    8 11 11 12 15 19 16 20 28 36 39 44 44 44 49 66 77 93 98 100 110 112 102 105 103 95 69 54 47 40 29 24 24
    23 13 14 9 8 9 8 10 10 11 14 16 20 19 25 33 38 40 50 57 60 63 68 66 71 84 81 89 121 134 136 135 142 135
    134 130 111 106 93 67 47 33 24 20 14 8 8 4 6 5
"""
OBSERVATION = np.array([PREDATORS.split(), PREY.split()], np.float64).T


@checks.suggests_keywords
def make(*, limit: int = LIMIT) -> Problem:
    """The problem with another limit.

    Args:
        limit: largest number of events; a simulation that needs more has failed.
    """
    return Problem(
        name="lotka_volterra_raw",
        prior=PRIOR,
        simulator=JaxSimulator(jump_process(checks.positive_int("limit", limit)), chunk=CHUNK),
        observation=OBSERVATION,
        truth=TRUTH,
        network=NETWORK,
    )


problem = make()
