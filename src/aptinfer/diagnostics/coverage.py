r"""Are posteriors as sure as they should be? A region that claims a share alpha of the posterior should hold
the true parameters in a share alpha of many simulated cases.

For each truth theta_i and draws theta_ij of its posterior, the regions are balls around a point r_i,

    a_i = share of j with |theta_ij - r_i| < |theta_i - r_i|,

or, where densities are given, those of the highest density: a_i = share of j with q(theta_ij) > q(theta_i).
If the posteriors are right, a_i is uniform on [0, 1], and the expected coverage of level alpha, the share of
i with a_i <= alpha, is alpha. Balls around a draw of the prior see posteriors that are biased, too wide or
too narrow, and need no density; regions of the highest density see those that are too wide or too narrow.

The band around the diagonal holds the whole curve of uniform a_i with the chosen probability: pointwise
binomial intervals whose width is fitted so by simulation.

References: Hermans et al., "A trust crisis in simulation-based inference?", TMLR 2022; Lemos et al.,
"Sampling-based accuracy testing of posterior estimators", ICML 2023; Säilynoja et al., "Graphical test for
discrete uniformity and its applications in goodness-of-fit evaluation", Statistics and Computing 2022.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from aptinfer import checks
from aptinfer.diagnostics import arrays

__all__ = ["Coverage", "expected_coverage"]

LEVELS = np.arange(1, 100) / 100
SIMULATIONS = 4000  # of the curve of exact posteriors, for the band
FEWEST = 20


@dataclass(frozen=True)
class Coverage:
    """What `expected_coverage` found.

    Attributes:
        levels: alpha, from 0.01 to 0.99.
        observed: the share of truths in regions of that level.
        low, high: the band in which the whole curve of right posteriors lies with the chosen probability.
    """

    levels: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def within_band(self) -> bool:
        """Whether the whole curve lies inside the band."""
        return bool(((self.low <= self.observed) & (self.observed <= self.high)).all())

    @property
    def largest_deviation(self) -> float:
        """The largest difference of coverage and level: below zero, posteriors are too sure of themselves."""
        deviation = self.observed - self.levels
        return float(deviation[np.abs(deviation).argmax()])


@checks.suggests_keywords
def expected_coverage(
    draws: object,
    truth: object,
    *,
    log_density: tuple[object, object] | None = None,
    probability: float = 0.95,
    seed: int = 0,
) -> Coverage:
    """Expected coverage of posteriors of many observations, and the band that right ones stay in.

    Args:
        draws: `(cases, draws, dim)` array: draws of each posterior.
        truth: `(cases, dim)` array: the parameters, drawn from the prior, that each observation was simulated
            with.
        log_density: log densities of the draws, `(cases, draws)`, and of the truths, `(cases,)`, under each
            posterior: regions are then those of the highest density. None: balls around a draw of the prior.
        probability: of the band.
        seed: of the balls' centres.

    Returns:
        A `Coverage`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=(500, 2))
        >>> x = truth + rng.normal(size=(500, 2))
        >>> right = x[:, None] / 2 + np.sqrt(0.5) * rng.normal(size=(500, 200, 2))
        >>> expected_coverage(right, truth).within_band
        True
        >>> expected_coverage(x[:, None] / 2 + 0.4 * rng.normal(size=(500, 200, 2)), truth).within_band
        False
    """
    truth = arrays.rows("truth", truth, minimum=FEWEST, reason="for a curve to mean something")
    draws = checks.finite_array("draws", draws)
    if draws.ndim != 3 or (len(draws), draws.shape[2]) != truth.shape or draws.shape[1] < FEWEST:
        raise ValueError(
            f"draws must have shape (cases, draws, dim) with at least {FEWEST} draws, and the cases and dim "
            f"of truth, {truth.shape}; got shape {draws.shape}."
        )
    if not 0 < checks.positive_float("probability", probability) < 1:
        raise ValueError(f"probability must lie between 0 and 1, got {probability}.")
    if log_density is None:
        shares = _in_balls(draws, truth, np.random.default_rng(seed))
    else:
        shares = _of_highest_density(*log_density, draws.shape[:2])
    observed = np.mean(shares[:, None] <= LEVELS, axis=0)
    return Coverage(LEVELS, observed, *band(len(truth), probability))


def _in_balls(draws: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """a_i with the truth of another case, a draw of the prior, as the centre of the ball."""
    spread = truth.std(axis=0)
    if not (spread > 0).all():
        raise ValueError("truth must vary in every parameter: draw it from the prior.")
    cases = len(truth)
    centre = truth[(np.arange(cases) + rng.integers(1, cases)) % cases] / spread
    inside = np.linalg.norm(draws / spread - centre[:, None], axis=2)
    return np.mean(inside < np.linalg.norm(truth / spread - centre, axis=1)[:, None], axis=1)


def _of_highest_density(of_draws: object, of_truth: object, shape: tuple[int, ...]) -> np.ndarray:
    of_draws, of_truth = np.asarray(of_draws, np.float64), np.asarray(of_truth, np.float64)
    if of_draws.shape != shape or of_truth.shape != shape[:1]:
        raise ValueError(
            f"log_density must be two arrays of shapes {shape} and {shape[:1]}, of the draws and of the "
            f"truths; got shapes {of_draws.shape} and {of_truth.shape}."
        )
    if np.isnan(of_draws).any() or np.isnan(of_truth).any():
        raise ValueError(
            "log_density must not hold NaN: minus infinity is the density of what is impossible."
        )
    return np.mean(of_draws > of_truth[:, None], axis=1)


def band(cases: int, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest coverage at each level that `cases` right posteriors have, with this probability."""
    uniform = np.random.default_rng(0).random((SIMULATIONS, cases))
    counts = np.stack([(uniform <= level).sum(axis=1) for level in LEVELS], axis=1)
    # How unlikely, pointwise and on both sides, the worst level of each simulated curve is.
    tails = np.minimum(binom.cdf(counts, cases, LEVELS), binom.sf(counts - 1, cases, LEVELS))
    tail = np.quantile(tails.min(axis=1), 1 - probability)
    low, high = binom.ppf(tail, cases, LEVELS), binom.isf(tail, cases, LEVELS)
    return low / cases, high / cases
