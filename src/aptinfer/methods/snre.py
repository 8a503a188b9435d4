r"""Sequential neural ratio estimation with contrasts (Hermans et al. 2020; Durkan et al. 2020).

A network f(v, x) answers APT's multiple-choice question, "which of these M parameters generated this x?":

    minimise  - log [ exp f(v_1, x) / sum_a exp f(v_a, x) ],      p(v | x_o) ∝ exp f(v, x_o) p(v).

It is the atomic loss with f in the place of log q - log p. Contrasts come from the same rows, so every
round's proposal is right, and parameters of failed simulations stay among the contrasts.

f is fixed up to a function of x, a different one in every network. So an ensemble averages f, not exp f:
members of an average of densities would be weighted by these arbitrary functions.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import each_member, split_ensemble
from aptinfer.estimators.ratio import RatioNetwork
from aptinfer.methods.choices import check_choices, with_defaults
from aptinfer.methods.learning import Learned, Network, Task, train_network
from aptinfer.methods.losses import Atomic
from aptinfer.methods.sampling import check_prior, proposed, sampled
from aptinfer.posteriors import SampledPosterior
from aptinfer.posteriors.sampled import check_sampler
from aptinfer.protocols import Proposal
from aptinfer.samplers.automatic import Automatic
from aptinfer.samplers.draws import Sampler
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer


class NeuralRatio(eqx.Module):
    """log r(x, z), averaged over members."""

    estimator: Embedded

    def log_likelihood(self, x: Float[Array, "*event"], z: Float[Array, " dim"]) -> Float[Array, ""]:
        return jnp.mean(each_member(self.estimator, lambda one: one(x).log_prob(z)), axis=0)


class Memory(NamedTuple):
    """The network so far, and where a persistent sampler is."""

    network: Network
    state: Any


@suggests_keywords
@dataclass(frozen=True)
class SNRE:
    """Sequential neural ratio estimation: likelihood over evidence, times the prior, sampled.

    Args:
        estimator: `RatioNetwork()`, or an `Ensemble` of them.
        embedding, space, trainer: as for `APT`.
        atoms: parameters in a question, the true ones included.
        sampler: `samplers.Automatic()`, or another of `apt.samplers`.
    """

    estimator: Any = field(default_factory=RatioNetwork)
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=Trainer)
    atoms: int = 10
    sampler: Sampler = field(default_factory=Automatic)

    one_round = False
    takes_any_theta = True

    def __post_init__(self):
        check_choices(self, ratio=True)
        check_sampler("SNRE", self.sampler)
        if not isinstance(split_ensemble(self.estimator)[0], RatioNetwork):
            raise TypeError(
                f"SNRE estimator must be apt.RatioNetwork(...) or an Ensemble of it; got {self.estimator!r}. "
                f"A density of theta learns from the same contrasts with apt.APT(estimator=..., "
                f"loss=apt.Atomic())."
            )
        if positive_int("SNRE atoms", self.atoms, minimum=2) > self.trainer.batch:
            raise ValueError(
                f"SNRE atoms ({self.atoms}) must not exceed the batch ({self.trainer.batch}), from which "
                f"they are drawn without replacement. Raise Trainer(batch=...) or ask for fewer atoms."
            )

    def settled(self, frame: Frame) -> "SNRE":
        check_prior(self.sampler, frame)
        return with_defaults(self)

    def propose(self, posterior: SampledPosterior, number: int) -> Proposal:
        return proposed(posterior, number)

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        network, state = memory or (None, None)
        # The network is log q - log p itself: there is no prior to subtract.
        nothing = np.zeros(len(task.simulations.value))
        network, history = train_network(task, self, Atomic(self.atoms), network, log_prior=nothing)
        model = NeuralRatio(network.estimator)
        posterior = SampledPosterior(
            task.frame, network.scaling, model, self.sampler, task.observation, task.event, start=state
        )
        learned = sampled(task, posterior, history, memory=None)
        return learned._replace(memory=Memory(network, posterior.first_draws.state))
