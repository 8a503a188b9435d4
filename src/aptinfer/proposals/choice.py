"""What may be given as `proposal=`, and which losses a choice is valid with.

| loss                        | needs of the proposal                                        |
|-----------------------------|--------------------------------------------------------------|
| atomic, SNRE, SNL           | nothing: parameters may be chosen in any way                 |
| SNPE-B                      | a normalised density: `has_density`, proposals' `log_ratio`  |
| closed forms                | a Gaussian mixture: `reshaped`                               |
| maximum likelihood (NPE)    | to be the prior                                              |
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from aptinfer.estimators.mog import GaussianTerms, HostMixture
from aptinfer.posteriors import Posterior
from aptinfer.protocols import Proposal
from aptinfer.spaces import Frame


class ProposalChoice(ABC):
    """Makes each round's proposal from the posterior of the round before."""

    has_density: ClassVar[bool] = False  # its proposals have `log_ratio(value, theta)`, log p~ / p

    @abstractmethod
    def after(self, posterior: Posterior, number: int) -> Proposal:
        """The proposal of round `number`."""

    def check(self, frame: Frame, members: int) -> None:
        """Refuse, before the first simulation, coordinates or an ensemble that it cannot work with."""
        del frame, members

    def reshaped(self, mixture: HostMixture, prior: GaussianTerms, number: int) -> HostMixture:
        """The proposal of round `number` as a Gaussian mixture, where the last posterior is one (`mixture`,
        clipped)."""
        raise ValueError(_no_mixture(self))

    def check_mixture(self, components: int) -> None:
        """Refuse to be reshaped, if that is impossible for mixtures of so many components."""
        del components
        raise ValueError(_no_mixture(self))


def _no_mixture(choice: ProposalChoice) -> str:
    return (
        f"{choice!r} is no mixture of Gaussians, which closed forms need of a proposal. Use "
        f"loss=apt.Atomic(), which takes any proposal, or proposal=apt.LastPosterior() or apt.Defensive()."
    )


def check_density(method: str, choice: ProposalChoice) -> None:
    """Refuse a choice without a density, for methods that weight rows by it."""
    if not choice.has_density:
        raise ValueError(
            f"{method} weights every row by the density of its proposal, and {choice!r} has none that is "
            f"known. Use proposal=apt.LastPosterior(), apt.Defensive() or apt.Truncated(), or apt.APT() with "
            f"its atomic loss, which never evaluates the proposal."
        )


def as_choice(value: object) -> ProposalChoice:
    """`value` as a choice: one of the library's, a user's object with `sample`, or a function to make one."""
    from aptinfer.proposals.custom import UserProposal

    if isinstance(value, ProposalChoice):
        return value
    if isinstance(value, type) or not (hasattr(value, "sample") or callable(value)):
        raise TypeError(
            f"proposal must be a choice such as apt.LastPosterior() or apt.Truncated(), an object with "
            f"sample(rng, n), or a function from the last posterior to such an object; got {value!r}."
        )
    return UserProposal(value)
