"""GLM: the paper's neuron, whose stimulus and observation are made from a seed.

The model is in `spiking.py`. The neuron has b_0 = -2 and the filter h_k = k³ exp(-k); its stimulus is
white noise, drawn once and the same for every simulation, and x holds the spike count and nine
spike-triggered sums. Every seed is another experiment: the paper ran 42 to 51.

Reference: Greenberg, Nonnenmacher & Macke, "Automatic posterior transformation for likelihood-free
inference", ICML 2019, appendix.
"""

import numpy as np

from aptinfer import checks
from aptinfer.estimators.embeddings import Flatten
from aptinfer.estimators.flows import MAF
from aptinfer.methods.losses import Atomic
from aptinfer.problems.problem import Problem
from aptinfer.problems.spiking import BINS, TAPS, Neuron, prior
from aptinfer.simulators import JaxSimulator

__all__ = ["TRUTH", "make", "problem"]

LAGS = np.arange(1, TAPS + 1)
TRUTH = np.concatenate([[-2.0], LAGS**3 * np.exp(-LAGS)])


@checks.suggests_keywords
def make(seed: int = 42) -> Problem:
    """The problem with the stimulus and the observation of another seed.

    Args:
        seed: of NumPy's legacy generator, whose stream gives first the seed of the stimulus, then
            the uniform numbers that decide the observed spikes.
    """
    seed = checks.whole_seed(seed)
    generator = np.random.RandomState(seed)
    stimulus = np.random.RandomState(generator.randint(0, 2**31)).randn(BINS)
    neuron = Neuron(stimulus)
    rate = 1 / (1 + np.exp(-neuron.design @ TRUTH))
    spikes = generator.uniform(size=(BINS, 1))[:, 0] < rate
    return Problem(
        name="glm",
        prior=prior(),
        simulator=JaxSimulator(neuron.simulate),
        observation=spikes @ neuron.design,
        truth=TRUTH,
        log_likelihood=neuron.log_likelihood,
        reference=neuron.reference("glm", neuron.log_likelihood, {"seed": seed}),
        network={"estimator": MAF(layers=2, hidden=(10, 10)), "embedding": Flatten(), "loss": Atomic(100)},
    )


problem = make()
