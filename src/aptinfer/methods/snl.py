r"""Sequential neural likelihood (Papamakarios, Sterratt & Murray 2019).

An estimator learns the density of the data given parameters, with the roles of the two swapped,

    minimise  - sum_i log q(x_i | v_i)   over all rows of all rounds,      p(v | x_o) ∝ q(x_o | v) p(v).

Where the parameters come from does not matter to a conditional density: no correction is needed, whatever the
proposal. The price is a density over all of x, and a sampler for the posterior.

An estimator may be a `Stack`: several kinds of density, weighted by what they say of held-back rows.

A simulation may fail. The rows that did not teach p(x | v, success); the likelihood of seeing x_o at all is
that times P(success | v), which a classifier learns from all rows as soon as one has failed.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from aptinfer.checks import positive_float, suggests_keywords, true_or_false
from aptinfer.columns import Columns, NoDensityError, check_size, fit_columns
from aptinfer.estimators.autoregressive import AutoregressiveMixture
from aptinfer.estimators.bernoulli import Bernoulli
from aptinfer.estimators.embeddings import MLP, Embedded, Flatten
from aptinfer.estimators.ensemble import build_members, each_member, mean_of_densities
from aptinfer.estimators.mdn import MDN
from aptinfer.estimators.natural import Natural
from aptinfer.estimators.repeated import Repeated
from aptinfer.estimators.shifted import Shifted
from aptinfer.estimators.stack import (
    Family,
    Stack,
    build_families,
    families_of,
    of_family,
    stacking_weights,
    telling,
)
from aptinfer.methods.choices import check_choices
from aptinfer.methods.learning import Learned, Task, fit, notes_of_weights
from aptinfer.methods.losses import MaximumLikelihood
from aptinfer.methods.nearby import Nearby
from aptinfer.methods.sampling import check_prior, proposed, sampled
from aptinfer.posteriors import SampledPosterior
from aptinfer.posteriors.sampled import check_sampler
from aptinfer.precision import precise
from aptinfer.protocols import Proposal, Simulations
from aptinfer.repeats import measurements
from aptinfer.samplers.automatic import Automatic
from aptinfer.samplers.draws import Sampler
from aptinfer.screening import informative
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer

SETTLED = 500  # rows by which entries of x are screened and put in order for the last time
LEAST_NEAR = 50  # rows, with a tenth as many held back, for others to be left out
LEAST = np.float32(np.log(1e-3))  # of a family's log weight, for it to count
BLOCK = 256  # rows that are evaluated at once


class NeuralLikelihood(eqx.Module):
    """q(x | z), weighted over families and averaged over members, times P(success | z) where some failed."""

    estimators: tuple[Embedded, ...]
    log_weights: Float[Array, " families"]
    success: Embedded | None
    nearby: Nearby | None = None

    def log_likelihood(self, x: Float[Array, " size"], z: Float[Array, " dim"]) -> Float[Array, ""]:
        if len(self.estimators) == 1:
            log_l = _log_density(self.estimators[0], x, z)
        else:
            # A family without weight is not evaluated at all: weights are the same for every x and z.
            families = zip(self.estimators, self.log_weights, strict=True)
            weighted = [
                jax.lax.cond(w > LEAST, lambda f, w=w: w + _log_density(f, x, z), _nothing, family)
                for family, w in families
            ]
            log_l = logsumexp(jnp.stack(weighted))
        if self.nearby is not None:
            log_l += self.nearby.log_weight(z)
        if self.success is None:
            return log_l
        return log_l + _log_density(self.success, jnp.ones(1, jnp.float32), z)

    def knows(self, values: np.ndarray) -> np.ndarray:
        """Which parameters are among those that it has learned from."""
        return np.ones(len(values), bool) if self.nearby is None else self.nearby.contains(values)

    def log_densities(self, x: Float[Array, " size"], z: Float[Array, " dim"]) -> Float[Array, " families"]:
        """log q_k(x | z) of each family."""
        return jnp.stack([_log_density(family, x, z) for family in self.estimators])


def _log_density(family: Embedded, x, z) -> Float[Array, ""]:
    return mean_of_densities(each_member(family, lambda one: one(z).log_prob(x)))


def _nothing(family: Embedded) -> Float[Array, ""]:
    del family
    return jnp.float32(-jnp.inf)


class Memory(NamedTuple):
    """How x is seen, what has been learned, and where a persistent sampler is."""

    columns: Columns
    model: NeuralLikelihood
    state: Any
    draws: np.ndarray | None


@suggests_keywords
@dataclass(frozen=True)
class SNL:
    """Sequential neural likelihood: a density of x given theta, times the prior, sampled.

    Args:
        estimator: settings of the density of x, such as `MAF()`, `NSF()`, `MDN()`, an `Ensemble`, or a
            `Stack` of them. None: chosen from the size of x.
        embedding: of the parameters, on which the density is conditioned: `MLP()`, `Flatten()`, ...
        space: coordinates to learn and to sample in, `Latent()` or `Theta()`.
        trainer: optimiser and stopping.
        sampler: `samplers.Automatic()`, or another of `apt.samplers`; `SingleSlice()` is the paper's single
            chain, which goes on from round to round.
        screen: leave out entries of x that are independent of the parameters and of all other entries, as far
            as the first 500 simulations can tell; see `aptinfer.screening`.
        local: learn only from parameters that are at most so many times as far from the posterior's mean as
            its own draws, once a round has found it; see `aptinfer.methods.nearby`. None: from all.
        repeats: where these simulations show that x is several measurements of the same, learn the density of
            one, too; see `aptinfer.repeats`. For `Stack()`, whose families then compete with those of all x.
    """

    estimator: Any = None
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=lambda: Trainer(early_patience=10))
    sampler: Sampler = field(default_factory=Automatic)
    screen: bool = False
    local: float | None = None
    repeats: bool = False

    one_round = False
    takes_any_theta = True

    def __post_init__(self):
        check_choices(self, stack=True)
        check_sampler("SNL", self.sampler)
        if self.local is not None and positive_float("SNL local", self.local) < 2:
            raise ValueError(
                f"SNL local must be at least 2, got {self.local}: the posterior itself reaches farther than "
                f"that from its mean. None learns from all rows."
            )
        true_or_false("SNL screen", self.screen)
        if true_or_false("SNL repeats", self.repeats) and self.estimator != Stack():
            raise ValueError(
                f"SNL repeats=True is for estimator=apt.Stack(), whose families are chosen by the data, got "
                f"estimator={self.estimator!r}. For data known to be repeated use "
                f"apt.Repeated(estimator, times)."
            )

    def settled(self, frame: Frame) -> "SNL":
        check_prior(self.sampler, frame)
        return replace(self, embedding=MLP() if self.embedding is None else self.embedding)

    @property
    def _chosen_here(self) -> bool:
        """Whether the kinds of density are left to this method."""
        return self.estimator is None or self.estimator == Stack()

    def check_run(self, rounds: int, simulations: int, observation: np.ndarray) -> None:
        """Refuse x of which a density is out of reach."""
        del rounds, simulations
        check_size(observation.shape, "SNL")

    def propose(self, posterior: SampledPosterior, number: int) -> Proposal:
        return proposed(posterior, number)

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        rows = task.simulations
        columns, model, state, draws = self._begun(task, memory)
        if self.trainer.restart:
            model = self._new(task, columns)
        noise = task.for_weights.child(0, 1).generator()
        swapped = rows._replace(x=rows.value, value=columns.rows(rows.x, noise))
        nearby, near = self._nearby(task, draws)
        fits = [
            fit(self._of_family(task, k), self.trainer, MaximumLikelihood(), family, swapped, teaching=near)
            for k, family in enumerate(model.estimators)
        ]
        model = NeuralLikelihood(
            tuple(family for family, _ in fits),
            model.log_weights,
            self._success(task, rows, model.success),
            nearby,
        )
        weights = np.ones(1) if len(fits) == 1 else self._weights(model, swapped, near)
        log_weights = np.log(np.maximum(weights, np.exp(LEAST) / 2)).astype(np.float32)
        model = eqx.tree_at(lambda m: m.log_weights, model, jnp.asarray(log_weights))
        posterior = SampledPosterior(
            task.frame, columns, model, self.sampler, task.observation, task.event, start=state
        )
        learned = sampled(task, posterior, fits[int(weights.argmax())][1], memory=None)
        notes = notes_of_weights(weights) if len(fits) > 1 else {}
        draws = posterior.first_draws
        memory = Memory(columns, model, draws.state, None if self.local is None else draws.values)
        return learned._replace(memory=memory, notes={**learned.notes, **notes})

    def _begun(self, task: Task, memory: Memory | None) -> Memory:
        """Before training. Networks begin anew where more rows have another opinion of the entries of x."""
        if memory is None:
            columns = self._columns(task)
            columns(task.observation)  # refuses an impossible one before anything is trained
            return Memory(columns, self._new(task, columns), None, None)
        rows = task.simulations
        if not (self.screen or self.repeats) or rows.done[rows.round < task.number].sum() >= SETTLED:
            return memory
        try:
            columns = self._columns(task)
        except NoDensityError:  # an entry left out so far has none: it stays out
            return memory
        if columns.times == memory.columns.times and np.array_equal(columns.kept, memory.columns.kept):
            return memory
        columns(task.observation)
        return memory._replace(columns=columns, model=self._new(task, columns))

    def measurements_in(self, task: Task) -> int:
        """How many measurements of the same x is, as far as the rows so far can tell."""
        return self._columns(task).times if self.repeats else 1

    def _columns(self, task: Task) -> Columns:
        rows = task.simulations
        values, x = np.asarray(rows.value[rows.done], np.float64), rows.x[rows.done]
        screening, ordering = (task.for_weights.child(0, branch).generator() for branch in (3, 4))
        repeats = partial(measurements, values, rng=ordering) if self.repeats else None
        flat, kept = x.reshape(len(x), -1).astype(np.float64), None
        # Of measurements of the same, all have something to say or none.
        if self.screen and (repeats is None or repeats(flat) is None):
            kept = informative(values, flat, screening)
        settings = {"bits": self._chosen_here, "repeats": repeats, "observation": task.observation}
        return fit_columns(x, "SNL", kept, **settings)

    def _nearby(self, task: Task, draws: np.ndarray | None) -> tuple[Nearby | None, np.ndarray | None]:
        """Where the last round's posterior has its draws, and which rows are there to be learned from."""
        if self.local is None:
            return None, None
        rows = task.simulations
        if draws is not None:
            nearby = Nearby.of(draws, rows.value[rows.done], self.local)
            near = nearby.contains(rows.value)
            held_back = self.trainer.validates(np.arange(len(rows.done)))
            counted = near & rows.done
            if min(counted.sum(), 10 * (counted & held_back).sum()) >= LEAST_NEAR:
                return nearby, near
        return Nearby.everywhere(task.frame.prior.dim), None

    def _new(self, task: Task, columns: Columns) -> NeuralLikelihood:
        """With the random weights that belong to this round."""
        several = self.estimator is not None
        chosen = self._chosen_here
        families = default_families(columns, several=several) if chosen else families_of(self.estimator)
        key = task.for_weights.child(task.number) if task.number else task.for_weights
        families = [f._replace(embedding=self._embedding(task, f.embedding)) for f in families]
        built = build_families(key, families, columns.size, (task.frame.prior.dim,))
        return NeuralLikelihood(built, jnp.zeros(len(built), jnp.float32), None)

    def _embedding(self, task: Task, embedding: Any) -> Any:
        """Of a family that may name none, in natural coordinates."""
        embedding = self.embedding if embedding is None else embedding
        uniform = task.frame.prior.uniform
        return Natural(embedding, uniform) if task.frame.always_inside and any(uniform) else embedding

    def _of_family(self, task: Task, k: int) -> Task:
        """The task of training family `k`; only the first is listened to, and may have a head start."""
        if k == 0:
            return task
        key = of_family(task.for_training, k)
        return replace(task, for_training=key, listen=lambda progress: None, head_start=None)

    def _weights(self, model: NeuralLikelihood, rows: Simulations, near: np.ndarray | None) -> np.ndarray:
        """Of the families, by held-back rows: those of proposals, near the posterior, if they are enough."""
        index = np.arange(len(rows.done))
        held_back = self.trainer.validates(index) & rows.done
        if near is not None:
            held_back &= near
        chosen = telling(held_back, rows.source)
        return stacking_weights(_log_densities(model, rows.value[chosen], rows.x[chosen]))

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


def default_families(columns: Columns, *, several: bool) -> tuple[Family, ...]:
    """For such data: mixtures, or a range that begins with signal plus Gaussian noise.

    Where measurements were repeated, the range is there for one of them, too.
    """
    if not several:
        return (Family(Bernoulli()) if columns.binary else Family(_mixture(columns.size)),)
    families = _range(columns.size, columns.binary)
    if columns.times == 1:
        return families
    of_one = _range(columns.size // columns.times, columns.binary)
    repeated = (family._replace(estimator=Repeated(family.estimator, columns.times)) for family in of_one)
    return (*families, *repeated)


def _range(size: int, binary: bool) -> tuple[Family, ...]:
    """From the simplest density of so many numbers to the most flexible."""
    linear, curved = Flatten(), MLP(skip=True)
    if binary:
        return Family(Bernoulli(), linear), Family(Bernoulli())
    mixture = _mixture(size)
    return (
        Family(Shifted(MDN(1)), linear),
        Family(Shifted(MDN(4)), linear),
        Family(Shifted(MDN(1)), curved),
        Family(Shifted(mixture), curved),
        Family(MDN(1), linear),
        Family(MDN(1), curved),
        Family(replace(mixture, components=1)),
        Family(mixture),
    )


def _mixture(size: int) -> AutoregressiveMixture:
    """Layers are wide enough for each number to depend on all before it."""
    width = max(64, 16 * -(-2 * size // 16))
    return AutoregressiveMixture(hidden=(width, width))


@eqx.filter_jit
@precise
def _block(model: NeuralLikelihood, x, z):
    return jax.vmap(model.log_densities)(x, z)


def _log_densities(model: NeuralLikelihood, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """log q_k(x_i | z_i): (families, rows). In blocks of one size, so that one program serves all rounds."""
    found = []
    for first in range(0, len(x), BLOCK):
        part = [np.asarray(a[first : first + BLOCK], np.float32) for a in (x, z)]
        padded = [np.pad(a, ((0, BLOCK - len(a)), (0, 0)), mode="edge") for a in part]
        found.append(np.asarray(_block(model, *padded), np.float64)[: len(part[0])])
    return np.concatenate(found).T
