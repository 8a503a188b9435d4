"""The default: tempered particles find the modes, then each of them becomes a chain that mixes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key
from aptinfer.samplers.draws import LARGEST_R_HAT, Draws, agreement, from_chains
from aptinfer.samplers.local_mixture import LocalMixture, move
from aptinfer.samplers.target import Target
from aptinfer.samplers.tempering import MOVES, even_particles, tempered

RECORDS = 8  # of each chain, at least: R-hat compares their halves


@suggests_keywords
@dataclass(frozen=True)
class Automatic:
    """A robust combination that needs no gradient, no tuning and no single good starting point.

    1. `particles` draws of the prior become draws of the posterior, by tempered SMC: all modes are found.
    2. Each particle becomes a chain; the moves are fitted to the particles, and stay the same from then on.
    3. Chains are recorded every ten moves. While R-hat between them is too large, the moves are fitted anew
       to where chains are, and four times as many lie between records, up to `moves`.

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

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        n = positive_int("n", n)
        key_order, key_temper, key_fit, key_move = (key.child(i) for i in range(4))
        population = tempered(key_temper, target, params, self.particles)
        z, moves, made = population.z, MOVES, population.moves
        for attempt in range(32):  # `moves` reaches any limit before
            mixture = LocalMixture.crossed(key_fit.child(attempt).generator(), z, z)

            def record(number: int, z=z, mixture=mixture, moves=moves, attempt=attempt) -> np.ndarray:
                words = key_move.child(attempt, number).words()
                return np.asarray(move(target, params, words, z, mixture, np.float32(1), np.int32(moves)).z)

            records = [z]
            for number in range(RECORDS):
                records.append(record(number, z=records[-1]))
            z, made = records[-1], made + RECORDS * moves
            if agreement(np.stack(records[1:], axis=1))[0] <= LARGEST_R_HAT or moves == self.moves:
                break
            moves = min(4 * moves, self.moves)
        for number in range(RECORDS, -(-n // self.particles)):
            records.append(record(number, z=records[-1]))
            made += moves
        notes = {"powers": population.powers, "moves": moves, "evaluations": made * self.particles}
        remedy = (
            f"Take more particles, Automatic(particles={10 * self.particles}), or longer chains, "
            f"Automatic(moves={10 * self.moves})."
        )
        return from_chains(key_order, np.stack(records[1:], axis=1), n, remedy, notes)
