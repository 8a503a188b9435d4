r"""The prior cut to where the last posterior has density (Deistler, Goncalves & Macke 2022).

    p~(v) = p(v) 1[v in T] / P(T),      T = {v : log q(v | x_o) >= cut},

with the cut so low that only `outside` of the posterior's mass lies below it. Draws come from the prior by
rejection. Where that would take too long, in latent space, the region is approached through a sequence of
larger ones, each holding a quarter of the one before (subset simulation; Au & Beck 2001), in which particles
move by elliptical slice sampling (Murray, Adams & MacKay 2010): it leaves N(0, I) on any region invariant,
without tuning. P(T) is estimated on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from aptinfer.checks import positive_float, suggests_keywords
from aptinfer.errors import SamplingError
from aptinfer.keys import Key
from aptinfer.posteriors import Posterior
from aptinfer.proposals.choice import ProposalChoice
from aptinfer.protocols import Draws
from aptinfer.spaces import Frame

THRESHOLD_DRAWS = 100_000  # posterior draws that decide the cut
BLOCK, BLOCKS = 8192, 32  # prior draws at a time, and how often, before rejection gives way to splitting
FEWEST_ACCEPTED = 1000  # so that P(T) is known to 3 %
PARTICLES = 4096
KEPT = 0.25  # of the particles, from one region to the next
SWEEPS = 10  # elliptical moves of each particle in each region
LEVELS = 100  # regions at most: a share of 10^-60
SHRINKS = 60  # of a bracket, after which a particle stays where it is


class Region(NamedTuple):
    """Draws of the prior inside the region, and the prior's mass there."""

    value: np.ndarray
    mass: float


@dataclass(frozen=True, eq=False)
class FromRegion:
    """The prior inside the highest-density region of a posterior."""

    posterior: Posterior
    outside: float
    source: int

    @cached_property
    def cut(self) -> float:
        value, _ = self.posterior.draw(Key((0,)), THRESHOLD_DRAWS)
        return float(np.quantile(self.posterior.log_prob_inside(value), self.outside))

    @cached_property
    def log_mass(self) -> float:
        """log P(T): from draws of its own, so that it is known before and after any other draw."""
        return float(np.log(self._region(Key((1,)), FEWEST_ACCEPTED).mass))

    def draw(self, key: Key, n: int) -> Draws:
        value = self._region(key, n).value[:n]
        theta = self.posterior.frame.to_theta(value)
        return Draws(value.astype(np.float32), theta, np.full(n, self.source, np.int32))

    def log_ratio(self, value: np.ndarray, theta: np.ndarray) -> np.ndarray:
        del theta
        inside = self.posterior.log_prob_inside(value) >= self.cut
        return np.where(inside, -self.log_mass, -np.inf)

    def _region(self, key: Key, n: int) -> Region:
        frame, score = self.posterior.frame, self.posterior.log_prob_inside
        try:
            return rejected(key.child(0), frame, score, self.cut, n)
        except SamplingError:
            if not frame.always_inside:
                raise
        return split(key.child(1), frame.prior.dim, score, self.cut, n)


@suggests_keywords
@dataclass(frozen=True)
class Truncated(ProposalChoice):
    """The prior, cut to the highest-density region of the last posterior.

    Args:
        outside: the share of the posterior's mass that is given up.
    """

    outside: float = 1e-4
    has_density: ClassVar[bool] = True

    def __post_init__(self):
        if not positive_float("Truncated outside", self.outside) < 0.5:
            raise ValueError(f"Truncated outside must be a share below 0.5, got {self.outside}.")

    def after(self, posterior, number):
        return FromRegion(posterior, self.outside, number)


def rejected(key: Key, frame: Frame, score: Callable[[np.ndarray], np.ndarray], cut: float, n: int) -> Region:
    """At least `n` prior draws whose score reaches the cut.

    Raises:
        SamplingError: there are fewer among so many draws as are affordable.
    """
    rng, found, count = key.generator(), [], 0
    for block in range(1, BLOCKS + 1):
        value, _ = frame.draw_prior(rng, BLOCK)
        found.append(value[score(value) >= cut])
        count += len(found[-1])
        if count >= max(n, FEWEST_ACCEPTED):
            return Region(np.concatenate(found), count / (block * BLOCK))
    raise SamplingError(
        f"only {count} of {BLOCKS * BLOCK} prior draws lie in the region to which the proposal is truncated "
        f"(share {count / (BLOCKS * BLOCK):.2g}), and {n} are wanted. Learn in latent space "
        f"(space=apt.Latent()), where no region is too small, or use proposal=apt.Defensive()."
    )


def split(key: Key, dim: int, score: Callable[[np.ndarray], np.ndarray], cut: float, n: int) -> Region:
    """At least `n` draws of N(0, I) whose score reaches the cut, through ever smaller regions."""
    rng, particles = key.generator(), max(n, PARTICLES)
    z = rng.standard_normal((particles, dim))
    scores, log_mass = score(z), 0.0
    for _ in range(LEVELS):
        level = min(cut, float(np.quantile(scores, 1 - KEPT)))
        kept = np.flatnonzero(scores >= level)
        log_mass += np.log(len(kept) / particles)
        z = z[rng.choice(kept, particles)]
        for _ in range(SWEEPS):
            z = elliptical_move(rng, z, score, level)
        if level >= cut:
            return Region(z, float(np.exp(log_mass)))
        scores = score(z)
    raise SamplingError(
        f"the region to which the proposal is truncated holds less than {KEPT**LEVELS:.0e} of the prior. Use "
        f"proposal=apt.Defensive(), or check the posterior of the last round."
    )


def elliptical_move(
    rng: np.random.Generator, z: np.ndarray, score: Callable[[np.ndarray], np.ndarray], level: float
) -> np.ndarray:
    """One elliptical slice move of every row of z within {score >= level}."""
    other = rng.standard_normal(z.shape)
    angle = rng.uniform(0, 2 * np.pi, len(z))
    low, high = angle - 2 * np.pi, angle.copy()
    moved, waiting = z.copy(), np.arange(len(z))
    for _ in range(SHRINKS):
        a = angle[waiting, None]
        proposed = np.cos(a) * z[waiting] + np.sin(a) * other[waiting]
        good = score(proposed) >= level
        moved[waiting[good]] = proposed[good]
        waiting = waiting[~good]
        if not len(waiting):
            break
        left = angle[waiting] < 0
        low[waiting] = np.where(left, angle[waiting], low[waiting])
        high[waiting] = np.where(left, high[waiting], angle[waiting])
        angle[waiting] = rng.uniform(low[waiting], high[waiting])
    return moved
