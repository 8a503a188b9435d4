"""From the prior to the posterior in steps that leave half of the particles effective.

Draws of the prior become draws of the posterior through the targets p(z) L(z)^b with powers
0 < b_1 < ... < 1. At each power particles are weighted by the likelihood's increment, resampled, and moved by
a kernel that knows them all (`local_mixture.py`). Every mode that the prior's draws find keeps its share.

Particles that descend from one and the same prior draw are a family. How far families differ tells the
variance of an average from a single run.

BlackJAX's adaptive tempered SMC was tried first. Its loop is this one, in float32 and without families. What
decides is the move: with a random walk scaled by the particles' covariance, 200 steps at each power leave a
C2ST of 0.6 on SLCP with 2000 particles, where some 20 of the moves here leave 0.5. And one compiled program
then serves every power and the chains that follow.

References: Del Moral, Doucet & Jasra, "Sequential Monte Carlo samplers", JRSS B 2006; Lee & Whiteley,
"Variance estimation in the particle filter", Biometrika 2018.
"""

from typing import Any, NamedTuple

import numpy as np

from aptinfer.checks import positive_int
from aptinfer.errors import SamplingError
from aptinfer.keys import Key
from aptinfer.samplers.local_mixture import MOVES, LocalMixture, walk
from aptinfer.samplers.target import Target, possible_prior_draws

POWERS = 200  # at most
SHARE = 0.5  # of the particles that stay effective in a step
ACCEPTED = 4.0  # moves per particle, on average, before the next power
MOST_CALLS = 10  # for `MOVES` moves each, where few are accepted


class Population(NamedTuple):
    """Particles at power one.

    Attributes:
        z: (particles, dim).
        families: the prior draw from which each descends.
        powers: how many there were.
        moves: made by each particle, all in all.
    """

    z: np.ndarray
    families: np.ndarray
    powers: int
    moves: int


def even_particles(name: str, value: object) -> int:
    """`value` as a number of particles: enough for the moves to learn from, and in two halves."""
    particles = positive_int(name, value, minimum=100)
    if particles % 2:
        raise ValueError(f"{name} must be even, since each half moves by the other; got {particles}.")
    return particles


def tempered(key: Key, target: Target, params: Any, particles: int) -> Population:
    """`particles` draws from the posterior, dependent through their families.

    Raises:
        SamplingError: no prior draw has density, or the likelihood is so steep that `POWERS` do not suffice.
    """
    key_start, key_resample, key_fit, key_move = (key.child(i) for i in range(4))
    z, log_l = possible_prior_draws(key_start, target, params, particles)
    families = np.arange(particles) % len(z)
    z, log_l = z[families], log_l[families]
    power, made = 0.0, 0
    for step in range(POWERS):
        power, weights = next_power(power, log_l)
        chosen = resampled(key_resample.child(step).generator(), weights)
        mixture = LocalMixture.crossed(key_fit.child(step).generator(), z[chosen], z)
        z, families, accepted = z[chosen], families[chosen], 0.0
        for call in range(MOST_CALLS):
            z, log_l, count = walk(key_move.child(step, call), target, params, z, mixture, power, MOVES)
            accepted, made = accepted + count, made + MOVES
            if accepted >= ACCEPTED:
                break
        if power == 1:
            return Population(z, families, step + 1, made)
    raise SamplingError(
        f"after {POWERS} powers of the likelihood, the largest being {power:.2g}, particles are still on "
        f"their way from the prior to the posterior: the likelihood is extremely steep. Check x_o, and that "
        f"the networks were trained on data like it."
    )


def next_power(power: float, log_l: np.ndarray) -> tuple[float, np.ndarray]:
    """The next power of the likelihood, and the particles' weights; a share of them stays effective."""
    relative = log_l - np.max(log_l)

    def weights(step: float) -> np.ndarray:
        w = np.exp(step * relative)
        return w / w.sum()

    def effective(step: float) -> float:
        return float(1 / np.sum(weights(step) ** 2))

    low, high = 0.0, 1.0 - power
    if effective(high) >= SHARE * len(log_l):
        return 1.0, weights(high)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) > SHARE * len(log_l) else (low, middle)
    return power + high, weights(high)


def resampled(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Indices drawn by weight, systematically: each one's count is its expectation, rounded.

    Each half is drawn from itself, so that no copy of a particle is in the half by which it moves.
    """
    chosen = []
    for half in np.split(np.arange(len(weights)), 2):
        cumulative = np.cumsum(weights[half])
        positions = cumulative[-1] * (rng.uniform() + np.arange(len(half))) / len(half)
        chosen.append(half[np.minimum(np.searchsorted(cumulative, positions), len(half) - 1)])
    return np.concatenate(chosen)


def effective_size(z: np.ndarray, families: np.ndarray) -> float:
    """How many independent draws particles are worth, for the worst coordinate: var(z) / var(mean of z)."""
    apart = np.asarray(z, np.float64) - np.mean(z, axis=0, dtype=np.float64)
    sums = np.zeros((int(families.max()) + 1, z.shape[1]))
    np.add.at(sums, families, apart)
    with np.errstate(invalid="ignore", divide="ignore"):  # a coordinate that never moves has no variance
        sizes = np.sum(apart**2, axis=0) * len(z) / np.sum(sums**2, axis=0)
    return float(min(np.min(sizes), len(z)))
