"""Gaussian mixtures as proposals, for closed forms: the last posterior's own, clipped and perhaps reshaped.

`ratios` is a proposal's density over the prior's, by member of the ensemble.
"""

from dataclasses import dataclass

import jax
import numpy as np

from aptinfer.errors import SamplingError
from aptinfer.estimators.ensemble import count_members, member
from aptinfer.estimators.mog import (
    HostMixture,
    Mixture,
    Ratio,
    clipped,
    density_ratio,
    on_host,
)
from aptinfer.keys import Key
from aptinfer.posteriors import DirectPosterior
from aptinfer.protocols import Draws
from aptinfer.spaces import Frame


@dataclass(frozen=True)
class FromMixtures:
    """A clipped Gaussian mixture per member of the ensemble; every row belongs to one member's mixture.

    `first_source` is the number of the first member's entry in the run's table of proposals.
    """

    frame: Frame
    mixtures: tuple[HostMixture, ...]
    first_source: int

    def draw(self, key: Key, n: int) -> Draws:
        rng = key.generator()
        whose = rng.permutation(np.arange(n) % len(self.mixtures))
        value = np.empty((n, self.frame.prior.dim), np.float32)
        theta = np.empty((n, self.frame.prior.dim))
        for m, mixture in enumerate(self.mixtures):
            mine = whose == m
            value[mine], theta[mine] = self._inside(rng, mixture, int(mine.sum()))
        return Draws(value, theta, (self.first_source + whose).astype(np.int32))

    def _inside(self, rng, mixture: HostMixture, n: int):
        found, tried = np.empty((0, self.frame.prior.dim), np.float32), 0
        while len(found) < n:
            if tried * self.frame.least_accepted >= n:
                raise SamplingError(
                    f"only {len(found)} of {tried} draws from the Gaussian proposal lie inside the "
                    f"prior's support (acceptance rate {len(found) / tried:.2g}). Learn in latent space "
                    f"(space=apt.Latent()), where none is lost."
                )
            more = mixture.sample(rng, n).astype(np.float32)
            if not self.frame.always_inside:
                more = more[self.frame.prior.contains(self.frame.to_theta(more))]
            found, tried = np.concatenate([found, more]), tried + n
        return found[:n], self.frame.to_theta(found[:n])

    @property
    def ratios(self) -> Ratio:
        """p~/p of every member's mixture, stacked."""
        prior = self.frame.gaussian
        assert prior is not None  # the method refuses closed forms without one
        entries = [density_ratio(mixture, prior) for mixture in self.mixtures]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *entries)


def mixtures_at(posterior: DirectPosterior, *, single: bool) -> tuple[HostMixture, ...]:
    """Each member's mixture at x_o, projected to a single Gaussian if asked, clipped at the prior."""
    prior = posterior.frame.gaussian
    assert prior is not None  # the method refuses closed forms without one
    found = [on_host(q) for q in members_at(posterior)]
    return tuple(clipped(mixture.projected() if single else mixture, prior) for mixture in found)


def members_at(posterior: DirectPosterior) -> list[Mixture]:
    """What each member of an ensemble of mixture density networks says at x_o."""
    found = []
    for m in range(count_members(posterior.estimator)):
        q = member(posterior.estimator, m)(posterior.condition)  # pyright: ignore[reportArgumentType]
        assert isinstance(q, Mixture)
        found.append(q)
    return found


def proposal_table(ratios: tuple[Ratio, ...], rounds: int) -> Ratio:
    """All rounds' proposals, padded to the run's capacity; entry 0 stands for the prior and is not used."""
    flat = jax.tree.map(lambda *leaves: np.concatenate(leaves), *ratios)
    per_round = ratios[0].means.shape[0]
    capacity = 1 + per_round * max(rounds - 1, 1)

    def padded(a):
        return np.concatenate([a[:1], a, np.repeat(a[:1], capacity - 1 - len(a), axis=0)])

    return jax.tree.map(padded, flat)
