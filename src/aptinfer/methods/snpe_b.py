r"""SNPE-B (Lueckmann et al. 2017): maximum likelihood with importance weights.

Rows drawn from proposals count as rows of the prior would if each is weighted,

    minimise  - sum_i w_i log q(v_i | x_i),    w_i = p(v_i) / sum_s pi_s p~_s(v_i),

where round s has the share pi_s of the rows. With all rounds in the denominator no weight exceeds 1 / pi_1,
as the first round is the prior. The paper's own weights, p / p~ of the row's own round, are unbiased too, but
their variance is infinite as soon as a proposal is narrower than the prior by a factor of 1.4.

With the prior truncated to a region T_s as each round's proposal this is TSNPE (Deistler et al. 2022): the
weights are 1 / sum_s pi_s 1[v in T_s] / P(T_s), and regions need not be nested.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from aptinfer.checks import suggests_keywords, true_or_false
from aptinfer.methods.choices import check_choices, with_defaults
from aptinfer.methods.learning import Learned, Network, Task, direct
from aptinfer.methods.losses import WeightedLikelihood
from aptinfer.methods.weight_uncertainty import (
    UncertainWeights,
    WeightUncertainty,
    check_uncertainty,
    train_weights,
)
from aptinfer.posteriors import Posterior
from aptinfer.proposals import LastPosterior, Truncated, as_choice
from aptinfer.proposals.choice import check_density
from aptinfer.protocols import Proposal
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer


class Memory(NamedTuple):
    """The network so far, how sure its weights are, and what rounds 2, 3, ... were drawn from."""

    network: Network
    uncertain: UncertainWeights | None
    proposals: tuple[Any, ...]


@suggests_keywords
@dataclass(frozen=True)
class SNPEB:
    """Sequential posterior estimation by importance weights.

    Args:
        estimator, embedding, space, trainer: as for `APT`.
        own_weights: weight a row by its own round's proposal alone, as the paper did, instead of by all.
        proposal: where later rounds draw from: `LastPosterior()`, `Defensive()`, which bounds the weights
            further, or `Truncated()`. It needs a density.
        uncertainty: `WeightUncertainty(...)` learns a Gaussian for every weight, as the original did: later
            rounds measure its divergence from the round before ("continual learning"). None: a number.
    """

    estimator: Any = None
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=Trainer)
    own_weights: bool = False
    proposal: Any = field(default_factory=LastPosterior)
    uncertainty: WeightUncertainty | None = None

    one_round = False
    embeds_x = True

    def __post_init__(self):
        check_choices(self)
        check_uncertainty(self)
        object.__setattr__(self, "proposal", as_choice(self.proposal))
        check_density(type(self).__name__, self.proposal)

    def settled(self, frame: Frame) -> "SNPEB":
        del frame
        return with_defaults(self)

    def propose(self, posterior: Posterior, number: int) -> Proposal:
        return self.proposal.after(posterior, number)

    def learn(self, task: Task, memory: Memory | None) -> Learned:
        network, before, proposals = memory or (None, None, ())
        if task.number:
            proposals = (*proposals, task.proposal)
        weights = self.weights(task, proposals)
        weights = weights / weights.mean()
        network, uncertain, history = train_weights(
            task, self, WeightedLikelihood(), network, before, weights=weights
        )
        learned = direct(task, network, history, memory=Memory(network, uncertain, proposals))
        effective = weights.sum() ** 2 / np.sum(weights**2)
        return learned._replace(notes={**learned.notes, "effective_rows": float(effective)})

    def weights(self, task: Task, proposals: tuple[Any, ...]) -> np.ndarray:
        """One weight per row proposed so far, failed ones included: their average is one, up to chance."""
        rows = task.simulations
        log_ratios = np.stack(
            [np.zeros(len(rows.round)), *(p.log_ratio(rows.value, rows.theta) for p in proposals)]
        )
        if self.own_weights:
            return np.exp(-log_ratios[rows.round, np.arange(len(rows.round))])
        shares = np.bincount(rows.round, minlength=len(log_ratios)) / len(rows.round)
        with np.errstate(divide="ignore"):
            log_shares = np.log(shares)
        return np.exp(-np.logaddexp.reduce(log_ratios + log_shares[:, None], axis=0))


@suggests_keywords
@dataclass(frozen=True)
class TSNPE(SNPEB):
    """Truncated sequential posterior estimation: rounds draw from the prior, cut to where the last posterior
    has density, and every row has the weight that makes maximum likelihood exact for all of them together.

    Args:
        estimator, embedding, space, trainer: as for `APT`.
        proposal: `Truncated(outside)`. Every round may cut off so much of the posterior; the less, the more
            of the prior is simulated in vain: on SLCP, 10 x 1000 simulations, C2ST is 0.68 with 1e-2, as with
            `APT`, 0.79 with 1e-3 and 0.82 with 1e-4.
        all_rows: learn also from rows outside the newest region. Exact even where regions have missed the
            posterior, but a network then spends itself on the rest of the prior, where rows are few and
            weights large: with regions of 1e-4 the C2ST above is 0.91.
    """

    proposal: Any = field(default_factory=lambda: Truncated(1e-2))
    all_rows: bool = False

    def __post_init__(self):
        super().__post_init__()
        true_or_false("TSNPE all_rows", self.all_rows)

    def weights(self, task: Task, proposals: tuple[Any, ...]) -> np.ndarray:
        weights = super().weights(task, proposals)
        if self.all_rows or not proposals:
            return weights
        rows = task.simulations
        return np.where(np.isfinite(proposals[-1].log_ratio(rows.value, rows.theta)), weights, 0.0)
