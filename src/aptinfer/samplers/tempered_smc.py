"""Tempered particles from the prior to the posterior: finds all modes, with their shares."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key
from aptinfer.samplers.draws import Draws, checked
from aptinfer.samplers.target import Target
from aptinfer.samplers.tempering import effective_size, even_particles, tempered


@suggests_keywords
@dataclass(frozen=True)
class TemperedSMC:
    """Sequential Monte Carlo from the prior to the posterior, through adaptive powers of the likelihood.

    Draws are particles; more draws than particles come from more populations. For many draws `Automatic` is
    cheaper, and checks them better.

    Args:
        particles: size of one population. A mode's share is as uncertain as that of so many draws, at best.
    """

    particles: int = 2000

    def __post_init__(self):
        even_particles("TemperedSMC particles", self.particles)

    @property
    def block(self) -> int:
        """Draws of one population."""
        return self.particles

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        draws = self.starts(key, target, params, positive_int("n", n))
        return checked(draws, f"Take more particles: TemperedSMC(particles={10 * self.particles}).")

    def starts(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        """The same, for chains that start there; no warning."""
        found = [
            tempered(key.child(1, i), target, params, self.particles) for i in range(-(-n // self.particles))
        ]
        z = np.concatenate([p.z for p in found])
        families = np.concatenate([p.families + i * self.particles for i, p in enumerate(found)])
        notes = {"powers": found[0].powers, "moves": found[0].moves, "populations": len(found)}
        values = z[key.child(0).generator().permutation(len(z))[:n]]
        return Draws(values, np.nan, effective_size(z, families), notes)
