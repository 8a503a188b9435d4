r"""SNPE-B (Lueckmann et al. 2017): maximum likelihood with importance weights.

Rows drawn from proposals count as rows of the prior would if each is weighted,

    minimise  - sum_i w_i log q(v_i | x_i),    w_i = p(v_i) / sum_s pi_s p~_s(v_i),

where round s has the share pi_s of the rows. With all rounds in the denominator no weight exceeds 1 / pi_1,
as the first round is the prior. The paper's own weights, p / p~ of the row's own round, are unbiased too, but
their variance is infinite as soon as a proposal is narrower than the prior by a factor of 1.4.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from aptinfer.checks import positive_float, suggests_keywords
from aptinfer.methods.learning import (
    Learned,
    Network,
    Task,
    check_choices,
    direct,
    with_defaults,
)
from aptinfer.methods.losses import WeightedLikelihood
from aptinfer.methods.weight_uncertainty import (
    UncertainWeights,
    WeightUncertainty,
    check_uncertainty,
    train_weights,
)
from aptinfer.posteriors import Posterior
from aptinfer.proposals import Defensive, FromPosterior
from aptinfer.protocols import Proposal
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer


class Memory(NamedTuple):
    """The network so far, how sure its weights are, and what rounds 2, 3, ... were drawn from."""

    network: Network
    uncertain: UncertainWeights | None
    proposals: tuple[Posterior, ...]


@suggests_keywords
@dataclass(frozen=True)
class SNPEB:
    """Sequential posterior estimation by importance weights.

    Args:
        estimator, embedding, space, trainer: as for `APT`.
        own_weights: weight a row by its own round's proposal alone, as the paper did, instead of by all.
        defensive: share of every proposal's draws that come from the prior, which bounds the weights.
        uncertainty: `WeightUncertainty(...)` learns a Gaussian for every weight, as the original did: in later
            rounds its divergence is from the round before ("continual learning"). None: a number.
    """

    estimator: Any = None
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=Trainer)
    own_weights: bool = False
    defensive: float = 0.0
    uncertainty: WeightUncertainty | None = None

    one_round = False
    embeds_x = True

    def __post_init__(self):
        check_choices(self)
        check_uncertainty(self)
        if not positive_float("SNPEB defensive", self.defensive, zero=True) < 1:
            raise ValueError(f"SNPEB defensive must be a share in [0, 1), got {self.defensive}.")

    def settled(self, frame: Frame) -> "SNPEB":
        del frame
        return with_defaults(self)

    def propose(self, posterior: Posterior, number: int) -> Proposal:
        last = FromPosterior(posterior, source=number)
        return Defensive(last, posterior.frame, self.defensive) if self.defensive else last

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        network, before, proposals = memory or (None, None, ())
        if task.number:
            proposal = task.proposal.last if isinstance(task.proposal, Defensive) else task.proposal
            assert isinstance(proposal, FromPosterior)
            proposals = (*proposals, proposal.posterior)
        weights = self.weights(task, proposals)
        network, uncertain, history = train_weights(
            task, self, WeightedLikelihood(), network, before, weights=weights
        )
        learned = direct(task, network, history, memory=Memory(network, uncertain, proposals))
        effective = weights.sum() ** 2 / np.sum(weights**2)
        return learned._replace(notes={**learned.notes, "effective_rows": float(effective)})

    def weights(self, task: Task, proposals: tuple[Posterior, ...]) -> np.ndarray:
        """One weight per row proposed so far, failed ones included, with mean one."""
        rows = task.simulations
        log_prior = task.frame.log_prior(rows.value, rows.theta)
        prior = np.log(self.defensive) if self.defensive else -np.inf
        log_proposals = np.stack(
            [
                log_prior,
                *(
                    np.logaddexp(prior + log_prior, np.log1p(-self.defensive) + q.log_prob_inside(rows.value))
                    for q in proposals
                ),
            ]
        )
        if self.own_weights:
            log_mixture = log_proposals[rows.round, np.arange(len(rows.round))]
        else:
            shares = np.bincount(rows.round, minlength=len(log_proposals)) / len(rows.round)
            log_mixture = logsumexp(log_proposals, axis=0, b=shares[:, None])
        weights = np.exp(log_prior - log_mixture)
        return weights / weights.mean()
