"""The default: tempered particles find the modes, then each of them becomes a chain that mixes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key
from aptinfer.samplers.draws import LARGEST_R_HAT, Draws, agreement, checked, from_chains
from aptinfer.samplers.local_mixture import MOVES, LocalMixture, walk
from aptinfer.samplers.target import Target
from aptinfer.samplers.tempering import even_particles, tempered

RECORDS = 8  # of each chain, at least: R-hat compares their halves, and there are many


@suggests_keywords
@dataclass(frozen=True)
class Automatic:
    """A robust combination that needs no gradient, no tuning and no single good starting point.

    1. `particles` draws of the prior become draws of the posterior, by tempered SMC: all modes are found.
    2. Each particle becomes a chain; the moves are fitted to the particles, and stay the same from then on.
    3. Chains are recorded every ten moves. While R-hat between them is too large, the moves are fitted anew
       to where chains are, and twice as many lie between records, up to `moves`.

    Chains that stay in the mode where they started give a large R-hat and a warning; their modes' shares are
    then those of the tempered particles.

    Args:
        particles: how many there are, and chains.
        moves: between two records of a chain, at most.
    """

    particles: int = 1000
    moves: int = 640

    def __post_init__(self):
        even_particles("Automatic particles", self.particles)
        positive_int("Automatic moves", self.moves, minimum=MOVES)

    @property
    def block(self) -> int:
        """Draws that one call makes for about the price of a single one."""
        return 10 * self.particles

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        n = positive_int("n", n)
        key_order, key_temper, key_fit, key_move = (key.child(i) for i in range(4))
        population = tempered(key_temper, target, params, self.particles)
        z, moves, attempt = population.z, MOVES, 0
        while True:
            mixture = LocalMixture.crossed(key_fit.child(attempt).generator(), z, z)
            chains = _Chains(key_move.child(attempt), target, params, mixture, moves)
            records = chains.records(z, range(RECORDS))
            if agreement(np.stack(records, axis=1))[0] <= LARGEST_R_HAT or moves >= self.moves:
                break
            z, moves, attempt = records[-1], min(2 * moves, self.moves), attempt + 1
        records += chains.records(records[-1], range(RECORDS, -(-n // self.particles)))
        notes = {"powers": population.powers, "tempered moves": population.moves, "moves": moves}
        draws = from_chains(key_order, np.stack(records, axis=1), n, notes)
        remedy = (
            f"Take more particles, Automatic(particles={10 * self.particles}), or longer chains, "
            f"Automatic(moves={10 * self.moves})."
        )
        return checked(draws, remedy)


class _Chains(NamedTuple):
    """Chains with moves that stay the same."""

    key: Key
    target: Target
    params: Any
    mixture: LocalMixture
    moves: int

    def records(self, z: np.ndarray, numbers: range) -> list[np.ndarray]:
        """Where chains that start at `z` are after each so many moves."""
        found = []
        for number in numbers:
            key = self.key.child(number)
            z = walk(key, self.target, self.params, z, self.mixture, 1.0, self.moves).z
            found.append(z)
        return found
