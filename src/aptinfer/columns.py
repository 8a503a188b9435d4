r"""x as a vector that has a density, for methods that learn p(x | theta).

A density needs numbers that are spread over a continuum. What simulators return besides is dealt with here:

* a constant, such as a fixed first entry of a series, says nothing about theta and has no density: it is
  dropped, and an observation that differs from it is refused;
* whole numbers, such as counts, get noise u ~ U(-1/2, 1/2) in training. The density of x + u is P(x | theta)
  all over the cell around x, so that its value at the observation itself is the probability that is wanted;
* where all are zero or one, they are left as they are, for a Bernoulli likelihood;
* positive numbers of very different sizes, such as populations, become their logarithms: errors in proportion
  are then errors of one size. The density at the observation changes by a factor that theta has no part in;
* entries that a screening has found to say nothing are left out;
* measurements that were repeated (`repeats`) stand one after another, and are scaled alike;
* anything else that repeats has neither a density nor an honest remedy, and is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aptinfer.scaling import Scaling, fit_scaling, in_blocks

MOST = 256  # numbers in x: beyond, a density over all of them is out of reach
REPEATED = 0.2  # share of rows that may repeat another's value
CLEARLY = 0.1  # nats per row by which logarithms must fit a normal better


class NoDensityError(ValueError):
    """x, or an entry of it, has no density."""


@dataclass(frozen=True, eq=False)
class Columns:
    """From x of shape `event` to the scaled numbers whose density is learned.

    Attributes:
        event: shape of one x.
        kept: which entries of flattened x are learned, in this order.
        fixed: which do not vary.
        constant: their values.
        whole: which of the kept entries are whole numbers that get noise.
        logarithmic: which of the kept entries are seen as logarithms.
        offset: what is added to them before.
        scaling: of the kept entries.
        binary: whether all are zero or one, and stay so.
        times: how many measurements of the same they are.
    """

    event: tuple[int, ...]
    kept: np.ndarray
    fixed: np.ndarray
    constant: np.ndarray
    whole: np.ndarray
    logarithmic: np.ndarray
    offset: np.ndarray
    scaling: Scaling
    binary: bool = False
    times: int = 1

    @property
    def size(self) -> int:
        return len(self.kept)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """An observation as networks see it.

        Raises:
            ValueError: it differs from what every simulation returned.
        """
        flat = np.asarray(x, np.float64).reshape(-1)
        apart = np.abs(flat[self.fixed] - self.constant) > 1e-6 * np.maximum(np.abs(self.constant), 1e-300)
        if apart.any():
            place = int(np.flatnonzero(self.fixed)[apart][0])
            raise ValueError(
                f"x_o is impossible under this model: entry {_entry(place, self.event)} is {flat[place]:g}, "
                f"and every simulation so far returned {self.constant[apart][0]:g}. Check x_o "
                f"and the simulator, or leave this entry out of both."
            )
        seen = flat[self.kept]
        impossible = self.logarithmic & (seen + self.offset <= 0)
        if impossible.any():
            place = int(self.kept[impossible][0])
            raise ValueError(
                f"x_o is impossible under this model: entry {_entry(place, self.event)} is {flat[place]:g}, "
                f"and every simulation so far returned positive numbers there. Check x_o and "
                f"the simulator."
            )
        return self.scaling(self._levelled(seen))

    def rows(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Simulations for training, (rows, size): whole numbers with their noise, equal for equal `rng`."""
        rows, first = np.empty((len(x), self.size), np.float32), 0
        for block in in_blocks(x):
            flat = np.asarray(block, np.float64).reshape(len(block), -1)[:, self.kept]
            if self.whole.any():
                flat[:, self.whole] += rng.uniform(-0.5, 0.5, (len(block), int(self.whole.sum())))
            rows[first : first + len(block)] = self.scaling(self._levelled(flat))
            first += len(block)
        return rows

    def _levelled(self, flat: np.ndarray) -> np.ndarray:
        """Logarithms where they are wanted; the smallest possible number for what is not positive."""
        raised = np.maximum(flat + self.offset, np.finfo(np.float32).tiny)
        return np.where(self.logarithmic, np.log(raised), flat)


def fit_columns(
    x: np.ndarray,
    method: str,
    informative: np.ndarray | None = None,
    *,
    bits: bool = False,
    repeats: Callable[[np.ndarray], np.ndarray | None] | None = None,
    observation: np.ndarray | None = None,
) -> Columns:
    """What rows of x (n, *event) are made of.

    `informative` says which entries a screening has kept, `bits` that zeros and ones may stay what they are,
    and `repeats` looks for measurements of the same among columns (`repeats.measurements`).
    A count that is the same in all rows and not in `observation` is rare, not impossible, and is kept.

    Raises:
        ValueError: a density of x is out of reach; the message names `method` and what to use instead.
    """
    event = x.shape[1:]
    flat = np.asarray(x, np.float64).reshape(len(x), -1)
    check_size(event, method)
    low, high = flat.min(axis=0), flat.max(axis=0)
    fixed = high - low <= 1e-12 * np.maximum(np.abs(low), np.abs(high))
    whole = (flat == np.round(flat)).all(axis=0)
    if observation is not None:
        seen = np.asarray(observation, np.float64).reshape(-1)
        fixed &= ~(whole & (seen != low) & (seen == np.round(seen)))
    if fixed.all():
        raise ValueError(
            f"every simulation so far returned the same x: there is nothing for {method} to "
            f"learn. Check the simulator."
        )
    varies = ~fixed if informative is None or not (informative & ~fixed).any() else informative & ~fixed
    _refuse_repeated(flat, varies & ~whole, event, method)
    kept = np.flatnonzero(varies)
    blocks = repeats(flat[:, kept]) if repeats else None
    times, kept = (1, kept) if blocks is None else (len(blocks), kept[blocks.ravel()])
    size, varying = len(kept) // times, flat[:, kept]
    settings = (event, kept, fixed, low[fixed])
    if bits and ((varying == 0) | (varying == 1)).all():
        nothing = np.zeros(len(kept))
        as_it_is = Scaling(nothing, np.ones(len(kept)))
        return Columns(*settings, nothing > 0, nothing > 0, nothing, as_it_is, binary=True, times=times)
    # Of numbers that are measurements of the same there is one answer, from all of them together.
    alike = varying.reshape(-1, size)
    whole = (alike == np.round(alike)).all(axis=0)
    spread_out = alike + np.where(whole, np.linspace(-0.5, 0.5, len(alike))[:, None], 0.0)
    offset = np.where(whole, 1.0, 0.0)
    logarithmic = _of_many_sizes(spread_out, offset)
    of_one = Columns(*settings, whole, logarithmic, offset, Scaling(*np.zeros((2, 1))))
    scaling = fit_scaling(of_one._levelled(spread_out))
    of_each = (np.tile(a, times) for a in (whole, logarithmic, offset, scaling.centre, scaling.spread))
    whole, logarithmic, offset, *scales = of_each
    return Columns(*settings, whole, logarithmic, offset, Scaling(*scales), times=times)


def _of_many_sizes(x: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Which columns are positive and clearly closer to normal as logarithms: by their normal likelihoods."""
    raised = x + offset
    positive = (raised > 0).all(axis=0)
    logs = np.log(np.where(positive, raised, 1.0))
    spread = np.maximum(x.std(axis=0), 1e-300)
    gain = np.log(spread) - np.log(np.maximum(logs.std(axis=0), 1e-300)) - logs.mean(axis=0)
    return positive & (gain > CLEARLY)


def _refuse_repeated(flat: np.ndarray, asked: np.ndarray, event: tuple[int, ...], method: str) -> None:
    """Raise if one of the columns `asked` has no density."""
    repeated = 1 - np.array([len(np.unique(column)) for column in flat.T]) / len(flat)
    bad = np.flatnonzero(asked & (repeated > REPEATED))
    if len(bad):
        place = int(bad[0])
        values, counts = np.unique(flat[:, place], return_counts=True)
        raise NoDensityError(
            f"{method} learns the density of x, and entry {_entry(place, event)} has none: "
            f"{100 * repeated[place]:.0f} % of its values repeat others, the value "
            f"{values[counts.argmax()]:g} {counts.max()} times in {len(flat)} simulations. Use apt.APT(), "
            f"which needs no density of x, or leave this entry out."
        )


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
