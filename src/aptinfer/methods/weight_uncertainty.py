r"""Uncertain weights: a Gaussian for every weight of a network, by stochastic variational inference.

Instead of weights w, their distribution N(m, diag(s^2)) is learned (Graves 2011; Blundell et al. 2015),

    minimise  E over w of the loss  +  KL( N(m, s^2) || N(m_0, s_0^2) ) / N,

N the rows trained on, with m_0 = 0 and s_0^2 = 1 / precision, or the weights' posterior of the round before.
It keeps a network from fitting few rows too closely, as SNPE-A and SNPE-B had it. Predictions use the means.

A step draws w once for the whole batch. Drawing activations row by row instead (local reparameterisation, as
in the original code) has less noise, but needs a formula for every kind of layer: so any network will do.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from aptinfer.checks import positive_float, suggests_keywords
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import as_members, count_members
from aptinfer.methods.learning import Network, Task, new_network, train_network
from aptinfer.methods.losses import Loss
from aptinfer.train import History

FIRST_LOG_SD = -5.0  # of every weight's Gaussian, as in the original code


class Gaussians(eqx.Module):
    """One Gaussian per weight, all weights of a member in one vector."""

    mean: Float[Array, "*members weights"]
    log_sd: Float[Array, "*members weights"]

    def divergence(self, other: "Gaussians") -> Float[Array, ""]:
        """KL(self || other)."""
        spread = jnp.exp(2 * (self.log_sd - other.log_sd))
        shift = (self.mean - other.mean) * jnp.exp(-other.log_sd)
        return jnp.sum(other.log_sd - self.log_sd + 0.5 * (spread + shift**2 - 1))


class UncertainWeights(eqx.Module):
    """What is trained in a network's place: its mean weights, their spread, and what both are compared with.

    `prior` is among the arrays, because every member of an ensemble has its own, but is never changed.
    """

    mean: Embedded
    log_sd: Float[Array, "*members weights"]
    prior: Gaussians

    def drawn(self, key: PRNGKeyArray) -> Embedded:
        """A network with random weights."""
        weights, rest = eqx.partition(self.mean, eqx.is_inexact_array)
        vector, arrays = ravel_pytree(weights)
        noise = jax.random.normal(key, vector.shape, vector.dtype)
        return eqx.combine(arrays(vector + jnp.exp(self.log_sd) * noise), rest)

    def divergence(self) -> Float[Array, ""]:
        """KL to the prior."""
        vector, _ = ravel_pytree(eqx.filter(self.mean, eqx.is_inexact_array))
        return Gaussians(vector, self.log_sd).divergence(jax.lax.stop_gradient(self.prior))


@dataclass(frozen=True)
class Uncertain(Loss):
    """Another loss at random weights, plus the divergence; validation: that loss alone, at mean weights."""

    loss: Loss

    @property
    def atoms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.loss.atoms

    def __call__(self, estimator: Any, batch):
        if batch.key is None:
            return self.loss(estimator.mean, batch)
        for_weights, for_loss = jax.random.split(batch.key)
        losses = self.loss(estimator.drawn(for_weights), batch._replace(key=for_loss))
        return losses + estimator.divergence() / batch.n_train


@suggests_keywords
@dataclass(frozen=True)
class WeightUncertainty:
    """A Gaussian for every weight instead of a number, for `SNPEA` and `SNPEB`.

    Args:
        precision: of the weights' prior N(0, 1 / precision); 0.01 is the original code's choice, and 0.001
            what it took for two moons.
    """

    precision: float = 0.01

    def __post_init__(self):
        positive_float("WeightUncertainty precision", self.precision)

    def around(self, estimator: Embedded, before: UncertainWeights | None = None) -> UncertainWeights:
        """Where a round's training starts, members along the first axis of all arrays.

        `before` is the result of the round before, which then takes the place of the prior.
        """
        members = count_members(estimator)
        leaves = [np.asarray(a).reshape(members, -1) for a in jax.tree.leaves(as_members(estimator)[0])]
        vectors = np.concatenate(leaves, axis=1)
        if before is not None:
            return UncertainWeights(estimator, before.log_sd, Gaussians(jnp.asarray(vectors), before.log_sd))

        def filled(value: float) -> Array:
            return jnp.full(vectors.shape, value, jnp.float32)

        prior = Gaussians(filled(0.0), filled(-0.5 * float(np.log(self.precision))))
        return UncertainWeights(estimator, filled(FIRST_LOG_SD), prior)


def check_uncertainty(method: Any) -> None:
    """Refuse what is no `WeightUncertainty`, when the method is built."""
    if method.uncertainty is not None and not isinstance(method.uncertainty, WeightUncertainty):
        raise TypeError(
            f"{type(method).__name__} uncertainty must be None or apt.WeightUncertainty(...); got "
            f"{method.uncertainty!r}."
        )


def train_weights(
    task: Task,
    method: Any,
    loss: Loss,
    network: Network | None,
    before: UncertainWeights | None = None,
    **rows: Any,
) -> tuple[Network, UncertainWeights | None, History]:
    """`train_network`; or, where the method has an `uncertainty`, the same of Gaussians over the weights.

    Args:
        task, method, loss, network: as for `train_network`.
        before: weights of the round before that take the place of the prior.
        rows: further arguments of `train_network`.

    Returns:
        The network with its mean weights, all about them, and how training went.
    """
    network = network or new_network(task, method)
    if method.uncertainty is None:
        network, history = train_network(task, method, loss, network, **rows)
        return network, None, history
    start: Any = method.uncertainty.around(network.estimator, before)
    trained, history = train_network(task, method, Uncertain(loss), network._replace(estimator=start), **rows)
    weights: Any = trained.estimator
    return network._replace(estimator=weights.mean), weights, history
