r"""The losses of APT, as objects (paper, sections 2-3 and appendix A.1-A.2).

Data drawn from a proposal p~ follow the proposal posterior p~(v | x), proportional to p(v | x) p~(v) / p(v).
APT trains the estimate q of the true posterior by maximising the estimated proposal posterior

    q~(v | x) = q(v | x) p~(v) / p(v) / Z(x),      Z(x) = integral of q(v | x) p~(v) / p(v) dv    (2)

so that q can be read off at once. The losses differ in how they compute Z:

* prior rows: Z = 1, plain maximum likelihood;
* Gaussian and mixture proposals: in closed form (`mog.log_normaliser`);
* atomic proposals: p~ uniform on M parameters, the integral becomes a sum, and the loss is that of a
  multiple-choice question, "which of these parameters generated this x?" (6).

Every loss maps an estimator and a batch to one number per row, each row with its own proposal, so all
rounds train together. Terms that do not depend on the network, log p~(v)/p(v), are left out.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.estimators.density import DensityEstimator, log_prob_pairs
from aptinfer.estimators.mog import Mixture, Ratio, log_normaliser


class Batch(NamedTuple):
    """Rows as a loss sees them. Candidate 0 of each row is the row's own value; the others are its
    contrasts, values of other rows that the same sampler drew.

    A loss that draws random numbers takes them from `key`, which every step of training has anew. Validation
    has none: there such a loss must be a fixed function of the rows and of their `position`.
    """

    x: Float[Array, "batch *event"]
    candidates: Float[Array, "batch atoms dim"]
    log_prior: Float[Array, "batch atoms"]
    from_prior: Bool[Array, " batch"]
    weight: Float[Array, " batch"]
    ratio: Ratio | None
    n_train: Int[Array, ""] | int = 0  # rows that are trained on in all
    key: PRNGKeyArray | None = None  # of this step; None in validation
    position: Int[Array, " batch"] | None = None  # in the order of validation, the same in every epoch


class Loss:
    """One number per row; `atoms` says how many candidates a row needs, itself included."""

    atoms: int = 1

    @abstractmethod
    def __call__(self, estimator: DensityEstimator, batch: Batch) -> Float[Array, " batch"]: ...


@dataclass(frozen=True)
class MaximumLikelihood(Loss):
    """-log q(v | x): exact for parameters drawn from the prior."""

    def __call__(self, estimator, batch):
        return -estimator.log_prob_rows(batch.x, batch.candidates[:, 0])


@dataclass(frozen=True)
class WeightedLikelihood(Loss):
    """-w log q(v | x): with w = p(v) / p~(v), rows of a proposal count as the prior's would."""

    def __call__(self, estimator, batch):
        return -batch.weight * estimator.log_prob_rows(batch.x, batch.candidates[:, 0])


@dataclass(frozen=True)
class ClosedForm(Loss):
    """-log q(v | x) + log Z(x) for mixture q and p~; the prior's rows have Z = 1."""

    def __call__(self, estimator, batch):
        def row(x, value, from_prior, ratio):
            q = estimator(x)
            assert isinstance(q, Mixture)  # APT refuses other estimators when it is built
            return -q.log_prob(value) + jnp.where(from_prior, 0.0, log_normaliser(q, ratio))

        return jax.vmap(row)(batch.x, batch.candidates[:, 0], batch.from_prior, batch.ratio)


@dataclass(frozen=True)
class GaussianProposal(ClosedForm):
    """Closed form with the last posterior projected to a single Gaussian, as in the paper's figures."""


@dataclass(frozen=True)
class MixtureProposal(ClosedForm):
    """Closed form with the last posterior's whole mixture as proposal: L x K pairs of components."""


@suggests_keywords
@dataclass(frozen=True)
class Atomic(Loss):
    """Multiple choice among M parameters: valid for any estimator, any prior and any proposal.

    Args:
        atoms: M, the true parameters included. They come without replacement from the minibatch; with
            as many as the batch has rows, every row is contrasted with every other. None: chosen by APT.
    """

    atoms: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        if self.atoms is not None:
            positive_int("Atomic atoms", self.atoms, minimum=2)

    def __call__(self, estimator, batch):
        return self.scores(estimator, batch)[0]

    def scores(self, estimator, batch):
        """The loss of each row and log q of its own value."""
        log_q = log_prob_pairs(estimator, batch.x, batch.candidates)
        log_ratio = log_q - batch.log_prior
        return logsumexp(log_ratio, axis=1) - log_ratio[:, 0], log_q[:, 0]


@suggests_keywords
@dataclass(frozen=True)
class Combined(Atomic):
    """Atomic loss plus maximum likelihood on the prior's rows, which ties down the far tails.

    Both terms are least at the true posterior, so the sum is too.
    """

    def __call__(self, estimator, batch):
        loss, log_q = self.scores(estimator, batch)
        return loss - jnp.where(batch.from_prior, log_q, 0.0)
