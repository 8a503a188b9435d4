r"""SNPE-A (Papamakarios & Murray 2016): learn the proposal posterior, divide the proposal out afterwards.

A network trained on a round's rows alone learns p~(v | x), proportional to p(v | x) p~(v) / p(v). With
Gaussian proposals the posterior is a quotient of Gaussians,

    q(v | x_o)  proportional to  q~(v | x_o) p(v) / p~(v)    (`mog.divided`),

one Gaussian until the last round, whose network is a mixture grown from it. The quotient exists only where
q~ is narrower than p~ / p. Where it does not, or hardly does, so that a component comes out much wider than
the prior itself, the round is lost: its posterior is that of the round before, and so is the next proposal,
as in the original code; the round's note `not_positive_definite` says so.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aptinfer.checks import suggests_keywords
from aptinfer.estimators.density import DensityEstimator
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import Ensemble, split_ensemble
from aptinfer.estimators.mdn import MDN, MixtureHead
from aptinfer.estimators.mog import GaussianTerms, Mixture, Ratio, divided
from aptinfer.keys import as_jax
from aptinfer.methods.choices import check_choices, with_defaults
from aptinfer.methods.learning import Learned, Network, Task, direct, new_network, notes_on
from aptinfer.methods.losses import MaximumLikelihood
from aptinfer.methods.weight_uncertainty import WeightUncertainty, check_uncertainty, train_weights
from aptinfer.posteriors import DirectPosterior
from aptinfer.proposals.mixtures import FromMixtures, members_at, mixtures_at
from aptinfer.protocols import Proposal, Simulations
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer

WIDEST = 2.0  # of a quotient's components, in standard deviations of the prior
APART = 1e-3  # of the standard deviation: how far copies of a component start from each other


class Quotient(DensityEstimator):
    """A mixture density network with the proposal divided out."""

    head: DensityEstimator
    ratio: Ratio

    def __call__(self, condition: Float[Array, " features"]) -> Mixture:
        q = self.head(condition)
        assert isinstance(q, Mixture)
        return divided(q, self.ratio)


class Memory(NamedTuple):
    """The network, which has learned the last proposal posterior, and the last posterior that exists."""

    network: Network
    posterior: DirectPosterior


@suggests_keywords
@dataclass(frozen=True)
class SNPEA:
    """Sequential posterior estimation by dividing the proposal out.

    Args:
        estimator: `MDN(components)`, the network of the last round, or an `Ensemble` of them; the rounds
            before it have one component.
        embedding, space, trainer: as for `APT`. The prior must be Gaussian in the space, which it always is
            in latent space, or uniform.
        uncertainty: `WeightUncertainty(...)` learns a Gaussian for every weight, as the original did; None: a
            number, and the trainer's weight decay.
    """

    estimator: Any = field(default_factory=MDN)
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=lambda: Trainer(early_patience=None))
    uncertainty: WeightUncertainty | None = None

    one_round = False
    embeds_x = True

    def __post_init__(self):
        check_choices(self)
        check_uncertainty(self)
        if not isinstance(split_ensemble(self.estimator)[0], MDN):
            raise ValueError(
                f"SNPEA divides densities, which is possible for mixtures of Gaussians only: its estimator "
                f"must be apt.MDN(...); got {self.estimator!r}. For other estimators use "
                f"apt.APT(estimator=...) or apt.SNPEB(estimator=...)."
            )

    def settled(self, frame: Frame) -> "SNPEA":
        if frame.gaussian is None:
            raise ValueError(
                f"SNPEA has no closed form for {frame.prior!r} in this space: the prior must be Gaussian or "
                f"uniform in theta, or have a bijection to N(0, I) and be learned in latent space. Use "
                f"apt.APT(), which takes any prior."
            )
        return with_defaults(self)

    def propose(self, posterior: DirectPosterior, number: int) -> Proposal:
        return FromMixtures(posterior.frame, mixtures_at(posterior, single=True), first_source=number)

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        network = memory.network if memory else None
        mixture, members = split_ensemble(self.estimator)
        if network is None:
            single = MDN(1 if task.rounds > 1 else mixture.components)
            network = new_network(task, replace(self, estimator=Ensemble(single, members)))
        elif task.number + 1 == task.rounds and _components(network) < mixture.components:
            network = network._replace(estimator=grown(task, network.estimator, mixture.components))
        rows = _of_round(task.simulations, task.number)
        network, _, history = train_weights(task, self, MaximumLikelihood(), network, simulations=rows)
        answer = network
        if isinstance(task.proposal, FromMixtures):
            answer = network._replace(estimator=_quotient(network.estimator, task.proposal.ratios))
        learned = direct(task, answer, history)
        # Asked of the mixture, not of draws from it: those may all come from components that do exist.
        exists = all(_exists(mixture, task.frame.gaussian) for mixture in members_at(learned.posterior))
        posterior = learned.posterior if exists or memory is None else memory.posterior
        notes = {**notes_on(posterior), "not_positive_definite": float(not exists)}
        return learned._replace(posterior=posterior, notes=notes, memory=Memory(network, posterior))


def grown(task: Task, estimator: Embedded, components: int) -> Embedded:
    """The network with its only component copied, the copies a little apart so that they can specialise."""
    head = estimator.head
    assert isinstance(head, MixtureHead)
    assert head.components == 1
    assert head.linear.bias is not None
    n = head.dim
    features = head.linear.weight.shape[-1]
    means, factors = jnp.split(head.linear.weight, [n], axis=-2)
    means_bias, factors_bias = jnp.split(head.linear.bias, [n], axis=-1)
    members = means_bias.shape[:-1]

    def copied(array: Array, axis: int) -> Array:
        return jnp.concatenate([array] * components, axis=axis)

    key = as_jax(task.for_weights.child(1).words())
    noise = APART * jax.random.normal(key, (*members, components * n), jnp.float32)
    logits = jnp.zeros((*members, components), jnp.float32)
    weight = [jnp.zeros((*members, components, features)), copied(means, -2), copied(factors, -2)]
    bias = [logits, copied(means_bias, -1) + noise, copied(factors_bias, -1)]
    larger = eqx.filter_eval_shape(MDN(components).build, jax.random.key(0), n, features)
    arrays = jnp.concatenate(weight, -2), jnp.concatenate(bias, -1)
    larger = eqx.tree_at(lambda h: (h.linear.weight, h.linear.bias), larger, arrays)
    return Embedded(estimator.embedding, larger)


def _exists(mixture: Mixture, prior: GaussianTerms | None) -> bool:
    """Whether all components are positive definite, with something to spare. A flat prior has no width."""
    if not all(np.isfinite(array).all() for array in jax.tree.leaves(mixture)):
        return False
    assert prior is not None  # the method refuses others
    factors = np.asarray(mixture.factors, np.float64)
    spare = np.swapaxes(factors, -1, -2) @ factors - prior.precision / WIDEST**2
    return bool((np.linalg.eigvalsh(spare) > 0).all())


def _components(network: Network) -> int:
    head = network.estimator.head
    assert isinstance(head, MixtureHead)
    return head.components


def _quotient(estimator: Embedded, ratios: Ratio) -> Embedded:
    """Each member's network over its own proposal: both have the members along the first axis."""
    return Embedded(estimator.embedding, Quotient(estimator.head, ratios))


def _of_round(simulations: Simulations, number: int) -> Simulations:
    """The rows of one round."""
    return Simulations(*(column[simulations.round == number] for column in simulations))
