r"""Sequential neural likelihood (Papamakarios, Sterratt & Murray 2019).

An estimator learns the density of the data given parameters, with the roles of the two swapped,

    minimise  - sum_i log q(x_i | v_i)   over all rows of all rounds,      p(v | x_o) ∝ q(x_o | v) p(v).

Where the parameters come from does not matter to a conditional density: no correction is needed, whatever the
proposal. The price is a density over all of x, and a sampler for the posterior.

A simulation may fail. The rows that did not teach p(x | v, success); the likelihood of seeing x_o at all is
that times P(success | v), which a classifier learns from all rows as soon as one has failed.
"""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aptinfer.checks import suggests_keywords
from aptinfer.columns import Columns, check_size, fit_columns
from aptinfer.estimators.autoregressive import AutoregressiveMixture
from aptinfer.estimators.bernoulli import Bernoulli
from aptinfer.estimators.embeddings import MLP, Embedded
from aptinfer.estimators.ensemble import build_members, each_member, mean_of_densities
from aptinfer.methods.learning import Learned, Task, check_choices, fit
from aptinfer.methods.losses import MaximumLikelihood
from aptinfer.methods.sampling import check_prior, proposed, sampled
from aptinfer.posteriors import SampledPosterior
from aptinfer.posteriors.sampled import check_sampler
from aptinfer.protocols import Proposal, Simulations
from aptinfer.samplers.automatic import Automatic
from aptinfer.samplers.draws import Sampler
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer


class NeuralLikelihood(eqx.Module):
    """q(x | z), averaged over members, times P(success | z) where simulations have failed."""

    estimator: Embedded
    success: Embedded | None

    def log_likelihood(self, x: Float[Array, " size"], z: Float[Array, " dim"]) -> Float[Array, ""]:
        log_l = mean_of_densities(each_member(self.estimator, lambda one: one(z).log_prob(x)))
        if self.success is None:
            return log_l
        yes = jnp.ones(1, jnp.float32)
        return log_l + mean_of_densities(each_member(self.success, lambda one: one(z).log_prob(yes)))


class Memory(NamedTuple):
    """How x is seen, what has been learned, and where a persistent sampler is."""

    columns: Columns
    model: NeuralLikelihood
    state: Any


@suggests_keywords
@dataclass(frozen=True)
class SNL:
    """Sequential neural likelihood: a density of x given theta, times the prior, sampled.

    Args:
        estimator: settings of the density of x, such as `MAF()`, `NSF()`, `MDN()` or an `Ensemble`.
        embedding: of the parameters, on which the density is conditioned: `MLP()`, `Flatten()`, ...
        space: coordinates to learn and to sample in, `Latent()` or `Theta()`.
        trainer: optimiser and stopping.
        sampler: `samplers.Automatic()`, or another of `apt.samplers`; `SingleSlice()` is the paper's single
            chain, which goes on from round to round.
    """

    estimator: Any = None
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=Trainer)
    sampler: Sampler = field(default_factory=Automatic)

    one_round = False
    takes_any_theta = True

    def __post_init__(self):
        check_choices(self)
        check_sampler("SNL", self.sampler)

    def settled(self, frame: Frame) -> "SNL":
        check_prior(self.sampler, frame)
        return replace(self, embedding=MLP() if self.embedding is None else self.embedding)

    def check_run(self, rounds: int, simulations: int, observation: np.ndarray) -> None:
        """Refuse x of which a density is out of reach."""
        del rounds, simulations
        check_size(observation.shape, "SNL")

    def propose(self, posterior: SampledPosterior, number: int) -> Proposal:
        return proposed(posterior, number)

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        rows = task.simulations
        columns, model, state = memory or self._first(task)
        if self.trainer.restart:
            model = self._new(task, columns)
        noise = task.for_weights.child(0, 1).generator()
        swapped = rows._replace(x=rows.value, value=columns.rows(rows.x, noise))
        estimator, history = fit(task, self.trainer, MaximumLikelihood(), model.estimator, swapped)
        model = NeuralLikelihood(estimator, self._success(task, rows, model.success))
        posterior = SampledPosterior(
            task.frame, columns, model, self.sampler, task.observation, task.event, start=state
        )
        learned = sampled(task, posterior, history, memory=None)
        return learned._replace(memory=Memory(columns, model, posterior.first_draws.state))

    def _first(self, task: Task) -> Memory:
        """Before the first round of training."""
        columns = fit_columns(task.simulations.x[task.simulations.done], "SNL")
        columns(task.observation)  # refuses an impossible one before anything is trained
        return Memory(columns, self._new(task, columns), None)

    def _new(self, task: Task, columns: Columns) -> NeuralLikelihood:
        """With the random weights that belong to this round."""
        estimator = default_estimator(columns.size) if self.estimator is None else self.estimator
        key = task.for_weights.child(task.number) if task.number else task.for_weights
        built = build_members(key, estimator, self.embedding, columns.size, (task.frame.prior.dim,))
        return NeuralLikelihood(built, None)

    def _success(self, task: Task, rows: Simulations, before: Embedded | None) -> Embedded | None:
        """P(success | v), once a simulation has failed: a Bernoulli likelihood, in the same training loop."""
        if rows.done.all():
            return None
        key = task.for_weights.child(0, 2)
        before = before or build_members(key, Bernoulli(), MLP(), 1, (task.frame.prior.dim,))
        outcomes = rows.done[:, None].astype(np.float32)
        every = rows._replace(x=rows.value, value=outcomes, done=np.ones(len(rows.done), bool))
        quiet = replace(
            task, for_training=task.for_training.child(2), listen=lambda progress: None, head_start=None
        )
        success, _ = fit(quiet, self.trainer, MaximumLikelihood(), before, every)
        return success


def default_estimator(size: int) -> Any:
    """For x of so many numbers: layers wide enough for each to depend on all before it."""
    width = max(64, 16 * -(-2 * size // 16))
    return AutoregressiveMixture(hidden=(width, width))
