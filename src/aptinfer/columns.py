r"""x as a vector that has a density, for methods that learn p(x | theta).

A density needs numbers that are spread over a continuum. What simulators return besides is dealt with here:

* a constant, such as a fixed first entry of a series, says nothing about theta and has no density: it is
  dropped, and an observation that differs from it is refused;
* whole numbers, such as counts, get noise u ~ U(-1/2, 1/2) in training. The density of x + u is P(x | theta)
  all over the cell around x, so that its value at the observation itself is the probability that is wanted;
* anything else that repeats has neither a density nor an honest remedy, and is refused.
"""

from dataclasses import dataclass

import numpy as np

from aptinfer.scaling import Scaling, fit_scaling, in_blocks

MOST = 256  # numbers in x: beyond, a density over all of them is out of reach
REPEATED = 0.2  # share of rows that may repeat another's value


@dataclass(frozen=True, eq=False)
class Columns:
    """From x of shape `event` to the scaled numbers whose density is learned; fixed after the first round.

    Attributes:
        event: shape of one x.
        kept: which entries of flattened x vary.
        constant: the others' values.
        whole: which of the kept entries are whole numbers.
        scaling: of the kept entries.
    """

    event: tuple[int, ...]
    kept: np.ndarray
    constant: np.ndarray
    whole: np.ndarray
    scaling: Scaling

    @property
    def size(self) -> int:
        return int(self.kept.sum())

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """An observation as networks see it.

        Raises:
            ValueError: it differs from what every simulation returned.
        """
        flat = np.asarray(x, np.float64).reshape(-1)
        apart = np.abs(flat[~self.kept] - self.constant) > 1e-6 * np.maximum(np.abs(self.constant), 1e-300)
        if apart.any():
            place = int(np.flatnonzero(~self.kept)[apart][0])
            raise ValueError(
                f"x_o is impossible under this model: entry {_entry(place, self.event)} is {flat[place]:g}, "
                f"and every simulation of the first round returned {self.constant[apart][0]:g}. Check x_o "
                f"and the simulator, or leave this entry out of both."
            )
        return self.scaling(flat[self.kept])

    def rows(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Simulations for training, (rows, size): whole numbers with their noise, equal for equal `rng`."""
        rows, first = np.empty((len(x), self.size), np.float32), 0
        for block in in_blocks(x):
            flat = np.asarray(block, np.float64).reshape(len(block), -1)[:, self.kept]
            if self.whole.any():
                flat[:, self.whole] += rng.uniform(-0.5, 0.5, (len(block), int(self.whole.sum())))
            rows[first : first + len(block)] = self.scaling(flat)
            first += len(block)
        return rows


def fit_columns(x: np.ndarray, method: str) -> Columns:
    """What rows of x (n, *event) are made of.

    Raises:
        ValueError: a density of x is out of reach; the message names `method` and what to use instead.
    """
    event = x.shape[1:]
    flat = np.asarray(x, np.float64).reshape(len(x), -1)
    check_size(event, method)
    low, high = flat.min(axis=0), flat.max(axis=0)
    kept = high - low > 1e-12 * np.maximum(np.abs(low), np.abs(high))
    if not kept.any():
        raise ValueError(
            f"every simulation of the first round returned the same x: there is nothing for {method} to "
            f"learn. Check the simulator."
        )
    whole = (flat == np.round(flat)).all(axis=0) & kept
    repeated = 1 - np.array([len(np.unique(column)) for column in flat.T]) / len(flat)
    bad = np.flatnonzero(kept & ~whole & (repeated > REPEATED))
    if len(bad):
        place = int(bad[0])
        values, counts = np.unique(flat[:, place], return_counts=True)
        raise ValueError(
            f"{method} learns the density of x, and entry {_entry(place, event)} has none: "
            f"{100 * repeated[place]:.0f} % of its values repeat others, the value "
            f"{values[counts.argmax()]:g} {counts.max()} times in {len(flat)} simulations. Use apt.APT(), "
            f"which needs no density of x, or leave this entry out."
        )
    varying = flat[:, kept]
    spread_out = varying + np.where(whole[kept], np.linspace(-0.5, 0.5, len(flat))[:, None], 0.0)
    return Columns(event, kept, low[~kept], whole[kept], fit_scaling(spread_out))


def check_size(event: tuple[int, ...], method: str) -> None:
    """Refuse x of so many numbers that their joint density cannot be learned."""
    size = int(np.prod(event))
    if size > MOST:
        raise ValueError(
            f"{method} learns the density of all of x, and x of shape {event} has {size} numbers; up to "
            f"{MOST} are possible. Use apt.APT() with an embedding, such as apt.CNN() or apt.GRU(), which "
            f"learns what it needs of x, or return a few summary statistics."
        )


def _entry(place: int, event: tuple[int, ...]) -> str:
    index = [int(i) for i in np.unravel_index(place, event)]
    return f"x[{', '.join(map(str, index))}]"
