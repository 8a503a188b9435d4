r"""A stack of estimators of different kinds, weighted by what they say of rows that none was trained on.

    q(value | condition) = sum_k w_k q_k(value | condition),
    w_k = E_a [ exp(l_k) / sum_j exp(l_j) ],    l_k = n sum_i a_i log q_k(value_i | condition_i)

over n held-back rows i, with a from Dirichlet(1, ..., 1): the Bayesian bootstrap, which spreads the weight
over families that so few rows cannot tell apart (pseudo-BMA+; Yao, Vehtari, Simpson & Gelman 2018). Where a
simple family is enough it gets the weight, and nobody has to choose.

Weights that maximise the mixture's own likelihood are better for prediction and worse for inference: they
keep a little of every family, and a tenth of a density that knows nothing of a parameter is a floor under its
likelihood, so that the posterior gets tails that no good family has.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from aptinfer.checks import suggests_keywords

BOOTSTRAPS = 1000


class Family(NamedTuple):
    """An estimator, and the embedding of its condition; None: the method's."""

    estimator: Any
    embedding: Any = None


@suggests_keywords
@dataclass(frozen=True)
class Stack:
    """Several estimators of different kinds, each trained on its own, mixed by their validation likelihood.

    Args:
        families: estimators, such as `MDN(1)` or an `Ensemble`, or pairs `Family(estimator, embedding)`.
            None: from signal plus Gaussian noise to mixtures, as the data allow.
    """

    families: tuple[Any, ...] | None = None

    def __post_init__(self):
        if self.families is None:
            return
        families = tuple(f if isinstance(f, Family) else Family(f) for f in self.families)
        if not families:
            raise ValueError("Stack families must not be empty: give estimators such as apt.MDN(1), or None.")
        for family in families:
            if isinstance(family.estimator, Stack) or not _builds(family.estimator):
                raise TypeError(
                    f"Stack families must be estimators such as apt.MDN() or apt.Ensemble(...); got "
                    f"{family.estimator!r}."
                )
        object.__setattr__(self, "families", families)


def _builds(estimator: Any) -> bool:
    return hasattr(getattr(estimator, "estimator", estimator), "build")


def families_of(estimator: Any) -> tuple[Family, ...]:
    """Those of a stack; a single estimator is a stack of one."""
    families = estimator.families if isinstance(estimator, Stack) else (Family(estimator),)
    assert families is not None
    return families


def stacking_weights(log_q: np.ndarray) -> np.ndarray:
    """The weights w_k of densities whose logarithms at held-back rows are given: (families, rows)."""
    rows = log_q.shape[1]
    shares = np.random.default_rng(0).dirichlet(np.ones(rows), BOOTSTRAPS)
    return softmax(rows * shares @ log_q.T, axis=1).mean(axis=0)
