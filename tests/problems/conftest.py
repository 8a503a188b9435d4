"""The published observations, and how two samples are compared."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp

PUBLISHED = Path(__file__).parents[3] / "shared" / "reference" / "paper_observations.npz"


@pytest.fixture
def paper_observations():
    """Observations and scalings of the paper, where this checkout has them beside it."""
    if not PUBLISHED.exists():
        pytest.skip(f"{PUBLISHED.name} is not beside this checkout")
    return np.load(PUBLISHED)


@pytest.fixture
def same_mean() -> Callable[[np.ndarray, np.ndarray], None]:
    """Asserts that means along the first axis agree within five standard errors of their difference."""

    def check(ours, theirs):
        error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
        np.testing.assert_array_less(np.abs(ours.mean(0) - theirs.mean(0)), 5 * error + 1e-6)

    return check


@pytest.fixture
def same_law() -> Callable[[np.ndarray, np.ndarray], None]:
    """Asserts that a Kolmogorov-Smirnov test sees no difference in any column."""

    def check(ours, theirs):
        for first, second in zip(ours.T, theirs.T, strict=True):
            _, p_value = ks_2samp(first, second)
            assert p_value > 1e-5  # pyright: ignore[reportOperatorIssue]

    return check
