"""M/G/1: a queue with one server, from five quantiles of the times between departures.

Fifty customers arrive at the rate theta_3 and are served one after the other, each for a time between
theta_1 and theta_2:

    s_i ~ U(theta_1, theta_2),    w_i ~ Exp(theta_3),    v_i = w_1 + ... + w_i,
    y_i = s_i + max(0, v_i - d_(i-1)),    d_i = d_(i-1) + y_i,    d_0 = 0,

and x holds the 0, 25, 50, 75 and 100 % quantiles of the times y_i between departures, linearly interpolated.
theta_1 and theta_2 - theta_1 are uniform on [0, 10], theta_3 on [0, 1/3]. The work that is left after an
arrival, u_i = d_i - v_i, spares us sums that grow without end (Lindley's recursion):

    u_0 = 0,    y_i = s_i + max(0, w_i - u_(i-1)),    u_i = s_i + max(0, u_(i-1) - w_i).

Where theta_3 is small the quantiles are large: their mean over the prior is infinite.

References: Papamakarios & Murray, "Fast ε-free inference of simulation models with Bayesian conditional
density estimation", NeurIPS 2016; Papamakarios, Sterratt & Murray, "Sequential neural likelihood", AISTATS
2019, from whose code the observation and the whitening are; Greenberg, Nonnenmacher & Macke, "Automatic
posterior transformation", ICML 2019.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from aptinfer import checks
from aptinfer.priors import Prior
from aptinfer.priors.marginal_maps import Uniform
from aptinfer.problems.problem import PAPER_MAF, Problem
from aptinfer.simulators import JaxSimulator

__all__ = ["problem", "simulate", "whiten"]

CUSTOMERS = 50
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)

# Mean, principal axes (columns) and inverse standard deviations along them, of 100,000 simulations.
WHITEN_MEAN = np.array(
    [5.603234325370021, 16.107032258552668, 32.50289819710783, 57.74035798901813, 185.078850661258]
)
AXES = """
    0.00157097513721181 0.0064377295054526135 0.9964273277620008 0.029757086033113816 0.0787602945387488
    0.05240408063458723 -0.06298405883548136 -0.009529410008945529 0.9670835169308942 -0.24071867873284594
    0.1405825872694616 -0.5040348960039842 0.07457798874217113 -0.242225305249023 -0.8136033338544593
    0.25994724465162494 -0.8081792277096052 -0.038434646592266176 0.06314790642870316 0.523267508786594
    0.9538948110376817 0.29797101114098723 -0.0016347386517975848 -0.03468761338114704 -0.0095949519260637
"""
WHITEN_AXES = np.array(AXES.split(), np.float64).reshape(5, 5)
WHITEN_SCALE = np.array(
    [
        0.00010186778755424188,
        0.0015912190224202712,
        0.07446486280591076,
        0.008847935589549135,
        0.015420789214655277,
    ]
)


def simulate(key: Array, theta: Array) -> Array:
    """One draw x of shape (5,) given theta of shape (3,)."""
    for_service, for_arrival = jax.random.split(key)
    uniform = jax.random.uniform(for_service, (CUSTOMERS,), theta.dtype)
    service = theta[0] + (theta[1] - theta[0]) * uniform
    between = jax.random.exponential(for_arrival, (CUSTOMERS,), theta.dtype) / theta[2]

    def customer(work, times):
        served, waited = times
        return served + jnp.maximum(work - waited, 0), served + jnp.maximum(waited - work, 0)

    _, departures = jax.lax.scan(customer, jnp.zeros((), theta.dtype), (service, between))
    return jnp.quantile(departures, jnp.array(QUANTILES, theta.dtype))


def whiten(x: object) -> np.ndarray:
    """x in the coordinates in which earlier work measures distances: its principal components, scaled.

    Args:
        x: quantiles on the last axis.
    """
    array = checks.numeric_array("x", x)
    if array.shape[-1:] != WHITEN_MEAN.shape:
        raise ValueError(
            f"x must have {len(QUANTILES)} quantiles on its last axis; got an array of shape {array.shape}."
        )
    return (array - WHITEN_MEAN) @ WHITEN_AXES * WHITEN_SCALE


problem = Problem(
    name="mg1",
    prior=Prior(
        shortest_service=Uniform(0.0, 10.0),
        longest_service=lambda shortest_service: Uniform(shortest_service, shortest_service + 10),
        arrival_rate=Uniform(0.0, 1 / 3),
    ),
    simulator=JaxSimulator(simulate),
    observation=np.array(
        [
            1.0787934709627232,
            2.732723383940167,
            3.7515250019437225,
            5.618340699252755,
            21.425366916171754,
        ]
    ),
    truth=np.array([1.0, 5.0, 0.2]),
    network=PAPER_MAF,
)
