"""Automatic Posterior Transformation (SNPE-C; Greenberg, Nonnenmacher, Macke 2019) and its first round.

A method is a small record of choices. `settled` makes those that were left open; then the sequential loop
asks it two things, what to propose and what the simulations teach (see `learning.py`).
"""

from dataclasses import dataclass, field, replace
from typing import Any

from aptinfer.checks import suggests_keywords
from aptinfer.estimators.ensemble import split_ensemble
from aptinfer.estimators.mdn import MDN
from aptinfer.estimators.mog import Ratio
from aptinfer.methods.choices import check_choices, check_members, with_defaults
from aptinfer.methods.learning import Learned, Network, Task, direct, train_network
from aptinfer.methods.losses import (
    Atomic,
    ClosedForm,
    GaussianProposal,
    Loss,
    MaximumLikelihood,
    MixtureProposal,
)
from aptinfer.posteriors import DirectPosterior
from aptinfer.proposals import LastPosterior, as_choice
from aptinfer.proposals.mixtures import FromMixtures, mixtures_at, proposal_table
from aptinfer.protocols import Proposal
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer

DEFAULT_ATOMS = 10


@suggests_keywords
@dataclass(frozen=True)
class APT:
    """Sequential posterior estimation with any proposal.

    Args:
        loss: `Atomic()`, `Combined()`, `MixtureProposal()` or `GaussianProposal()`. None: the closed
            form for a mixture density network, atomic for everything else.
        estimator: settings of the density, such as `MDN()`, `MAF()`, `NSF()`, an `Ensemble`, or a `Stack` of
            several kinds.
        embedding: settings such as `MLP()`, `GRU()`, `CNN()` or `DeepSet()`, or any `eqx.Module` that maps x
            to a vector. None: chosen from the shape of x.
        space: coordinates to learn in, `Latent()` or `Theta()`.
        trainer: optimiser and stopping.
        proposal: where later rounds draw from: `LastPosterior()`, `Defensive()`, `Truncated()`,
            `Tempered()`, `Active()`, or an object with `sample(rng, n)`. The atomic loss takes any of them;
            closed forms need a mixture of Gaussians.
    """

    loss: Loss | None = None
    estimator: Any = None
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=Trainer)
    proposal: Any = field(default_factory=LastPosterior)

    one_round = False
    embeds_x = True

    def __post_init__(self):
        check_choices(self, stack=True)
        check_members(self)
        object.__setattr__(self, "proposal", as_choice(self.proposal))
        if self.loss is not None and not isinstance(self.loss, Atomic | ClosedForm):
            raise TypeError(
                f"APT loss must be apt.Atomic(), apt.Combined(), apt.MixtureProposal() or "
                f"apt.GaussianProposal(); got {self.loss!r}."
            )
        if isinstance(self.loss, ClosedForm) and not _is_mixture(self.estimator):
            raise ValueError(
                f"{type(self.loss).__name__}() needs a mixture density network: its closed form exists "
                f"for mixtures of Gaussians only. Use estimator=apt.MDN(), or loss=apt.Atomic() with "
                f"{self.estimator!r}."
            )
        atoms = self.loss.atoms if isinstance(self.loss, Atomic) else None
        if atoms is not None and atoms > self.trainer.batch:
            raise ValueError(
                f"Atomic atoms ({atoms}) must not exceed the batch ({self.trainer.batch}), from which "
                f"they are drawn without replacement. Raise Trainer(batch=...) or ask for fewer atoms."
            )

    def settled(self, frame: Frame) -> "APT":
        """This method with every open choice made."""
        settled, loss = with_defaults(self), self.loss
        if loss is None:
            closed = _is_mixture(settled.estimator) and frame.gaussian is not None
            loss = MixtureProposal() if closed else Atomic()
        if isinstance(loss, Atomic) and loss.atoms is None:
            loss = replace(loss, atoms=min(DEFAULT_ATOMS, self.trainer.batch))
        if isinstance(loss, Atomic):
            self.proposal.check(frame, split_ensemble(settled.estimator)[1])
        if isinstance(loss, ClosedForm):
            single = isinstance(loss, GaussianProposal)
            self.proposal.check_mixture(1 if single else split_ensemble(settled.estimator)[0].components)
        if isinstance(loss, ClosedForm) and frame.gaussian is None:
            raise ValueError(
                f"{type(loss).__name__}() has no closed form for {frame.prior!r} in this space: the "
                f"prior must be Gaussian or uniform in theta, or have a bijection to N(0, I) and be "
                f"learned in latent space. Use loss=apt.Atomic(), which takes any prior."
            )
        return replace(settled, loss=loss)

    @property
    def takes_any_theta(self) -> bool:
        """Whether rows of unknown origin may be learned from; of a settled method."""
        return isinstance(self.loss, Atomic)

    def learn(self, task: Task, memory: tuple[Network, tuple[Ratio, ...]] | None) -> Learned:
        """Maximum likelihood while all rows come from the prior, the corrected loss afterwards."""
        network, ratios = memory or (None, ())
        all_from_prior = task.number == 0 and (task.simulations.source == 0).all()
        if isinstance(task.proposal, FromMixtures):
            ratios = (*ratios, task.proposal.ratios)
        assert self.loss is not None
        loss = MaximumLikelihood() if all_from_prior else self.loss
        table = proposal_table(ratios, task.rounds) if isinstance(loss, ClosedForm) else None
        network, history = train_network(task, self, loss, network, ratios=table)
        return direct(task, network, history, memory=(network, ratios))

    def propose(self, posterior: DirectPosterior, number: int) -> Proposal:
        """What round `number` draws from."""
        if not isinstance(self.loss, ClosedForm):
            return self.proposal.after(posterior, number)
        members, prior = split_ensemble(self.estimator)[1], posterior.frame.gaussian
        last = mixtures_at(posterior, single=isinstance(self.loss, GaussianProposal))
        mixtures = tuple(self.proposal.reshaped(mixture, prior, number) for mixture in last)
        return FromMixtures(posterior.frame, mixtures, first_source=1 + (number - 1) * members)


@suggests_keywords
@dataclass(frozen=True)
class NPE:
    """Neural posterior estimation in a single round from the prior: amortised over observations.

    Args:
        estimator, embedding, space, trainer: as for `APT`.
    """

    estimator: Any = None
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=Trainer)

    one_round = True
    embeds_x = True

    def __post_init__(self):
        check_choices(self, stack=True)
        check_members(self)

    def settled(self, frame: Frame) -> "NPE":
        del frame
        return with_defaults(self)

    def learn(self, task: Task, memory: None) -> Learned:
        network, history = train_network(task, self, MaximumLikelihood(), memory)
        return direct(task, network, history)

    def propose(self, posterior: DirectPosterior, number: int) -> Proposal:
        raise ValueError("NPE is the one-round method: use method=apt.APT() for several rounds.")


def _is_mixture(estimator: Any) -> bool:
    return isinstance(split_ensemble(estimator)[0], MDN)
