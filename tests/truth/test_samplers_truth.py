"""The default sampler against exact posterior draws of problems whose likelihood is known."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr

import aptinfer as apt
from aptinfer.keys import Key
from aptinfer.samplers import Automatic, Target


@dataclass(frozen=True)
class Known(Target):
    """A problem with a flat prior on [-bound, bound]^dim, in the latent coordinates of that prior."""

    name: str
    dim: int
    bound: float

    def log_likelihood(self, params, z):
        log_likelihood = apt.problems.get(self.name).log_likelihood
        assert log_likelihood is not None
        return log_likelihood(self.bound * (2 * ndtr(z) - 1), params)


@pytest.mark.slow
@pytest.mark.parametrize("target", [Known("slcp", 5, 3.0), Known("two_moons", 2, 1.0)], ids=lambda t: t.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_automatic_draws_are_indistinguishable_from_exact_ones(target, seed):
    problem = apt.problems.get(target.name)
    draws = Automatic()(Key((seed,)), target, jnp.asarray(problem.observation, jnp.float32), 5000)
    theta = problem.prior.forward(draws.values.astype(np.float64))
    exact = problem.reference_posterior(problem.observation, 5000, seed=seed)
    score = apt.diagnostics.c2st(theta, exact)
    print(f"{target.name}: C2ST {score:.3f}, R-hat {draws.r_hat:.3f}, effective {draws.effective:.0f}")
    # Four standard deviations of an accuracy at chance, over 10,000 rows, are 0.02.
    assert score < 0.52
