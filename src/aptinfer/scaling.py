"""Robust standardisation of x, fixed after the first round and applied on the host in float64: data such as
1e8 +- 1 keep their digits before they become the float32 numbers that networks see."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aptinfer import scratch

ENTRIES = 2**22  # of x that are in float64 at once: 32 MiB
FEWEST_ROWS = 1000  # that statistics are made of, however large x is
LINEAR_UP_TO = 5.0  # scaled data keep their spacing this far out, and only then are compressed
SMALL = 0.01  # of the deviation: an interquartile range below it is that of numbers that repeat


@dataclass(frozen=True)
class Scaling:
    """u = (x - centre) / spread, then u for |u| <= 5 and sign(u) 5 (1 + log(|u| / 5)) beyond.

    One-to-one and smooth, so nothing is lost, while an outlier of a heavy-tailed simulator stays a moderate
    number.
    """

    centre: np.ndarray
    spread: np.ndarray

    def __call__(self, x: np.ndarray, rows: int = 0) -> np.ndarray:
        """One x or several, as float32. NaN, which stands for missing data, stays NaN.

        Several are scaled block by block, so that they are never all held in float64; with `rows`, there are
        at least so many of them, the rest zeros that take no memory until they are touched. Of x in a scratch
        file the result is in one too.
        """
        if x.ndim == self.centre.ndim:
            return self._scaled(x)
        shape = (max(rows, len(x)), *x.shape[1:])
        scaled = scratch.zeros_beside(x, shape, np.float32) if scratch.is_on_disk(x) else aligned_zeros(shape)
        first = 0
        for block in in_blocks(x):
            scaled[first : first + len(block)] = self._scaled(block)
            first += len(block)
        return scaled

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        u = np.asarray(x - self.centre, np.float64)
        u /= self.spread
        far = np.abs(u) > LINEAR_UP_TO
        if far.any():  # hardly ever in images, of which there are many numbers
            u[far] = np.sign(u[far]) * LINEAR_UP_TO * (1 + np.log(np.abs(u[far]) / LINEAR_UP_TO))
        return u.astype(np.float32)


def in_blocks(x: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of x, so few at once that they may be held in float64; at least one block."""
    step = max(1, ENTRIES // max(1, x[:1].size))
    return (x[first : first + step] for first in range(0, max(len(x), 1), step))


def aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of float32 that begin at a multiple of 64 bytes: JAX then uses them on a CPU without a copy."""
    size = 4 * int(np.prod(shape))
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(np.float32).reshape(shape)


def fit_scaling(x: np.ndarray, done: np.ndarray | None = None) -> Scaling:
    """Centre and spread of rows of x: by entry for vectors, by channel for series and images.

    A series (time, channel) or an image (channel, height, width) keeps its shape over time and space, so
    statistics are pooled there. The spread is the interquartile range in units of a normal's; where that is
    small or zero (counts that are mostly zero) the standard deviation of values clipped at their 0.5 % and
    99.5 % quantiles; one for constants. Entries that are NaN are left out; `done` says which rows count. Of
    large data, rows at equal distances are enough.
    """
    counted = np.arange(len(x)) if done is None else np.flatnonzero(done)
    most = max(FEWEST_ROWS, ENTRIES // max(1, x[:1].size))
    if len(counted) > most:
        counted = counted[np.linspace(0, len(counted) - 1, most).astype(int)]
    x = np.asarray(x[counted], np.float64)
    pooled = {3: (0, 1), 4: (0, 2, 3)}.get(x.ndim, (0,))
    x, quantile, deviation_of = _statistics(x, pooled)
    low, centre, high = quantile(x, [0.25, 0.5, 0.75], axis=pooled, keepdims=True)
    clipped = np.clip(x, *quantile(x, [0.005, 0.995], axis=pooled, keepdims=True))
    deviation = deviation_of(clipped, axis=pooled, keepdims=True)
    spread = (high - low) / 1.349
    spread = np.where(spread > SMALL * deviation, spread, deviation)
    # A column that differs from a constant by rounding alone is a constant.
    constant = spread <= 1e-12 * np.maximum(np.abs(centre), 1e-300)
    return Scaling(centre[0], np.where(constant, 1.0, spread)[0])


def _statistics(x: np.ndarray, pooled: tuple[int, ...]):
    """x and the functions for it: slower ones where entries are missing, which then are left out."""
    missing = np.isnan(x)
    if not missing.any():
        return x, np.quantile, np.std
    # What was never observed, in any row, counts as zero.
    return np.where(missing.all(axis=pooled, keepdims=True), 0.0, x), np.nanquantile, np.nanstd
