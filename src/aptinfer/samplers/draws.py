"""What every sampler returns, and whether it can be trusted.

Chains agree when the split, rank-normalised R-hat is close to one, for the values and for their distances
from the median (Vehtari et al., "Rank-normalization, folding, and localization: an improved R-hat", Bayesian
Analysis 2021).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from aptinfer.errors import SamplingWarning
from aptinfer.keys import Key
from aptinfer.samplers.target import Target

LARGEST_R_HAT = 1.05
MANY = 50  # chains whose means tell the effective size better than autocorrelations of short chains do
FEWEST_EFFECTIVE = 100  # or a quarter of the draws that are wanted, if that is less


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws from a target.

    Attributes:
        values: (n, dim), in random order unless they are a single chain.
        r_hat: how well chains agree, the worst over the coordinates; 1 is perfect. NaN where there are none.
        effective: how many independent draws all that was recorded is worth, for the worst coordinate.
            `values` may be a part of what was recorded.
        notes: what happened, in numbers, such as the moves between records.
        state: what a sampler that persists needs to go on; None for the others.
    """

    values: np.ndarray
    r_hat: float
    effective: float
    notes: Mapping[str, float] = field(default_factory=dict)
    state: Any = None


@runtime_checkable
class Sampler(Protocol):
    """Settings that are called to draw; every sampler here is one.

    `block`, where a sampler has it, is how many draws a call makes for about the price of one. A sampler
    whose draws have a `state` takes it as a keyword of the next call.
    """

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws: ...


@runtime_checkable
class Starts(Protocol):
    """What can tell chains where to start: `Resampled` and `TemperedSMC`."""

    def starts(self, key: Key, target: Target, params: Any, n: int) -> Draws: ...


def agreement(chains: np.ndarray) -> tuple[float, float]:
    """The largest R-hat and the smallest effective size over the coordinates of chains (m, records, dim)."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    if chains.shape[1] < 4:
        return np.nan, np.nan
    folded = np.abs(chains - np.median(chains, axis=(0, 1)))
    scores = _normal_scores(chains)
    with np.errstate(invalid="ignore", divide="ignore"):  # a coordinate that never moves has no variance
        r_hat = np.max([split_gelman_rubin(scores), split_gelman_rubin(_normal_scores(folded))])
        if len(chains) >= MANY:
            of_means = np.var(np.mean(scores, axis=1), axis=0, ddof=1)
            sizes = len(chains) * np.var(scores, axis=(0, 1)) / of_means
        else:
            sizes = effective_sample_size(scores)
    return float(r_hat), float(min(np.min(sizes), chains.shape[0] * chains.shape[1]))


def _normal_scores(chains: np.ndarray) -> np.ndarray:
    """Each coordinate's ranks over all chains, as quantiles of N(0, 1)."""
    flat = chains.reshape(-1, chains.shape[-1])
    return ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25)).reshape(chains.shape)


def from_chains(key: Key, chains: np.ndarray, n: int, notes: Mapping[str, float]) -> Draws:
    """`n` of the records of chains (m, records, dim), in random order."""
    r_hat, effective = agreement(chains)
    flat = chains.reshape(-1, chains.shape[-1])
    values = flat[key.generator().permutation(len(flat))[:n]]
    return Draws(values, r_hat, effective, notes)


def checked(draws: Draws, remedy: str, *, stacklevel: int = 3) -> Draws:
    """The same draws, after a warning to the sampler's caller if they cannot be trusted."""
    enough = min(FEWEST_EFFECTIVE, len(draws.values) / 4)
    complaints = []
    if draws.r_hat > LARGEST_R_HAT:
        complaints.append(f"chains have not mixed: R-hat is {draws.r_hat:.2f}, above {LARGEST_R_HAT}")
    if not draws.effective >= enough:
        complaints.append(
            f"{len(draws.values)} draws are worth only {draws.effective:.0f} independent ones, less than "
            f"{enough:.0f}"
        )
    if complaints:
        warnings.warn(f"{'; '.join(complaints)}. {remedy}", SamplingWarning, stacklevel=stacklevel)
    return draws
