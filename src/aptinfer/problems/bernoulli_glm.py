"""Bernoulli GLM: a neuron's bias and filter from ten sufficient statistics of its spikes.

The model is in `spiking.py`. The stimulus is white noise, the same for every simulation; x holds the
spike count and nine spike-triggered sums of the stimulus.

Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021, task T.5.
"""

import numpy as np

from aptinfer.problems import benchmark
from aptinfer.problems.problem import Problem
from aptinfer.problems.spiking import BINS, Neuron, prior
from aptinfer.simulators import JaxSimulator

__all__ = ["neuron", "problem"]

# The benchmark's stimulus is this legacy stream in single precision.
neuron = Neuron(np.random.RandomState(42).randn(BINS).astype(np.float32).astype(np.float64))

_observations, _truths = benchmark.observations("bernoulli_glm")

problem = Problem(
    name="bernoulli_glm",
    prior=prior(),
    simulator=JaxSimulator(neuron.simulate),
    observation=_observations[0],
    truth=_truths[0],
    log_likelihood=neuron.log_likelihood,
    reference=neuron.reference("bernoulli_glm", neuron.log_likelihood),
    observations=_observations,
    truths=_truths,
)
