"""The best of many prior draws: sampling, importance, resampling."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key
from aptinfer.samplers.draws import Draws, checked
from aptinfer.samplers.target import Target, possible_prior_draws


@suggests_keywords
@dataclass(frozen=True)
class Resampled:
    """Prior draws, drawn again by their likelihood. Exact only while many of them remain effective.

    Args:
        candidates: how many prior draws are weighted.
    """

    candidates: int = 10_000

    def __post_init__(self):
        positive_int("Resampled candidates", self.candidates)

    @property
    def block(self) -> int:
        """Draws that one call makes for the price of a single one."""
        return self.candidates

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        draws = self.starts(key, target, params, positive_int("n", n))
        return checked(draws, "The posterior is much narrower than the prior: let Automatic() sample.")

    def starts(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        """The same, for chains that start there; no warning."""
        z, log_l = possible_prior_draws(key.child(0), target, params, self.candidates)
        weights = np.exp(log_l - np.max(log_l))
        weights /= weights.sum()
        values = z[key.child(1).generator().choice(len(z), n, p=weights)]
        return Draws(values, np.nan, float(1 / np.sum(weights**2)))
