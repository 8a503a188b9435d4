"""Bernoulli GLM, raw: the same neuron, its spike train of 100 zeros and ones instead of statistics.

The model is in `spiking.py`. The posterior is that of the sufficient statistics V^T y; a network has to
find them.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.6.
"""

from aptinfer.problems import benchmark
from aptinfer.problems.bernoulli_glm import neuron
from aptinfer.problems.problem import Problem
from aptinfer.problems.spiking import prior
from aptinfer.simulators import JaxSimulator

__all__ = ["problem"]

_observations, _truths = benchmark.observations("bernoulli_glm_raw")

problem = Problem(
    name="bernoulli_glm_raw",
    prior=prior(),
    simulator=JaxSimulator(neuron.spikes),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=neuron.log_likelihood_of_spikes,
    reference=neuron.reference("bernoulli_glm_raw", neuron.log_likelihood_of_spikes),
    observations=_observations,
    truths=_truths,
)
