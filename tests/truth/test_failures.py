"""Simulations that fail, with a probability that depends on theta, under every loss.

Failure is an outcome of the model, one that x_o is not: the posterior is proportional to
p(theta) p(x_o | theta) P(success | theta). Rows that are scored one by one may be dropped. Dropping them from
multiple-choice questions, or from a likelihood, divides by P(success | theta): that must show, too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

import aptinfer as apt
from aptinfer.rows import training_rows

NOISE, X_O = 0.5, np.array([0.0, 0.4])
PRIOR = apt.gaussian(np.zeros(2), np.eye(2))
SIMULATIONS, ROUNDS, DRAWS = 1000, 3, 20_000


@apt.JaxSimulator
def simulator(key, theta):
    for_noise, for_failure = jax.random.split(key)
    x = theta + np.float32(NOISE) * jax.random.normal(for_noise, (2,), jnp.float32)
    success = 0.05 + 0.95 * norm.cdf(4 * theta[0])  # from 0.05 to 1
    return jnp.where(jax.random.uniform(for_failure, (), jnp.float32) < success, x, jnp.nan)


def exact() -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation by quadrature; the second parameter has nothing to do with failures."""
    theta = np.linspace(-4, 4, 4001)
    narrow = NOISE / np.sqrt(1 + NOISE**2)
    weight = stats.norm.pdf(theta, X_O[0] / (1 + NOISE**2), narrow) * (
        0.05 + 0.95 * stats.norm.cdf(4 * theta)
    )
    weight /= weight.sum()
    mean = weight @ theta
    return np.array([mean, X_O[1] / (1 + NOISE**2)]), np.array(
        [np.sqrt(weight @ (theta - mean) ** 2), narrow]
    )


def worst(method, several: int = ROUNDS) -> float:
    """The larger error of mean and spread, in units of its bound.

    About half of the rows succeed, and early stopping loses half of their information. The posterior depends
    on x by six terms up to second order. Three standard errors.
    """
    rounds = 1 if method.one_round else several
    settings = {"rounds": rounds, "simulations": SIMULATIONS * several // rounds, "progress": False}
    run = apt.infer(simulator, PRIOR, X_O, method=method, **settings)
    theta = run.posterior.sample(DRAWS, seed=1)
    mean, std = exact()
    rows = run.rounds[-1].notes.get("effective_rows", SIMULATIONS * several) / 4
    if isinstance(method, apt.SNPEA):  # learns from its last round alone, and divides
        rows = SIMULATIONS / 8
    bound = 3 * np.sqrt(6 / rows + 1 / DRAWS)
    errors = np.abs(theta.mean(axis=0) - mean) / std / bound, np.abs(theta.std(axis=0) / std - 1) / bound
    return float(np.max(errors))


LOSSES = {
    "maximum likelihood": apt.NPE(estimator=apt.MDN(4)),
    "mixture proposal": apt.APT(estimator=apt.MDN(4)),
    "gaussian proposal": apt.APT(loss=apt.GaussianProposal(), estimator=apt.MDN(4)),
    "atomic": apt.APT(),
    "combined": apt.APT(loss=apt.Combined()),
    "snpe-a": apt.SNPEA(estimator=apt.MDN(4)),
    "snpe-b": apt.SNPEB(estimator=apt.MDN(4)),
    "tsnpe": apt.TSNPE(estimator=apt.MDN(4)),
    "fmpe": apt.FMPE(),
    "snre": apt.SNRE(),
    "snl": apt.SNL(estimator=apt.AutoregressiveMixture(components=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_meets_the_posterior(name):
    assert worst(LOSSES[name]) < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["atomic", "combined", "snre", "snl"])
def test_dropping_failed_rows_does_not(name, monkeypatch):
    from aptinfer.methods import learning

    dropped = lambda *args, **keywords: training_rows(*args, **{**keywords, "contrasts": False})  # noqa: E731
    monkeypatch.setattr(learning, "training_rows", dropped)
    monkeypatch.setattr(apt.SNL, "_success", lambda *args: None)
    # Rows of the prior, which the combined loss scores one by one, hide the bias until there are many others.
    assert worst(LOSSES[name], several=6) > 1
