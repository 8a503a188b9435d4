"""Robust standardisation of x, fixed after the first round and applied on the host in float64: data such as
1e8 +- 1 keep their digits before they become the float32 numbers that networks see."""

from dataclasses import dataclass

import numpy as np

LINEAR_UP_TO = 5.0  # scaled data keep their spacing this far out, and only then are compressed


@dataclass(frozen=True)
class Scaling:
    """u = (x - centre) / spread, then u for |u| <= 5 and sign(u) 5 (1 + log(|u| / 5)) beyond.

    One-to-one and smooth, so nothing is lost, while an outlier of a heavy-tailed simulator stays a moderate
    number.
    """

    centre: np.ndarray
    spread: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        u = (np.asarray(x, np.float64) - self.centre) / self.spread
        size = np.maximum(np.abs(u), LINEAR_UP_TO)
        far = np.sign(u) * LINEAR_UP_TO * (1 + np.log(size / LINEAR_UP_TO))
        return np.where(np.abs(u) <= LINEAR_UP_TO, u, far).astype(np.float32)


def fit_scaling(x: np.ndarray) -> Scaling:
    """Centre and spread of rows of x: by entry for vectors, by channel for series and images.

    A series (time, channel) or an image (channel, height, width) keeps its shape over time and space, so
    statistics are pooled there. The spread is the interquartile range in units of a normal's; where that is
    small or zero (counts that are mostly zero) the standard deviation of values clipped at their 0.5 % and
    99.5 % quantiles; one for constants.
    """
    x = np.asarray(x, np.float64)
    pooled = {3: (0, 1), 4: (0, 2, 3)}.get(x.ndim, (0,))
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=pooled, keepdims=True)
    clipped = np.clip(x, *np.quantile(x, [0.005, 0.995], axis=pooled, keepdims=True))
    deviation = clipped.std(axis=pooled, keepdims=True)
    spread = (high - low) / 1.349
    spread = np.where(spread > 0.05 * deviation, spread, deviation)
    # A column that differs from a constant by rounding alone is a constant.
    constant = spread <= 1e-12 * np.maximum(np.abs(centre), 1e-300)
    return Scaling(centre[0], np.where(constant, 1.0, spread)[0])
