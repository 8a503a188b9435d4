"""The classifier two-sample test with scikit-learn, as published tables compute it.

The recipe (Lueckmann et al. 2021): standardise by the reference's mean and standard deviation, in
single precision; stack the reference (label 0) on the samples (label 1); train an `MLPClassifier`
with two hidden layers of 10·dim ReLU units, Adam and at most 10000 epochs; average the accuracy
over five shuffled folds. One seed fixes the folds and every fold's classifier.
"""

import numpy as np

from aptinfer import checks
from aptinfer.diagnostics import arrays

__all__ = ["c2st_published"]

FOLDS = 5
MAXIMUM_EPOCHS = 10_000
MINIMUM_ROWS = 100
REASON = "for a classifier to learn from (published values use 10000)"

# Beyond this many standard deviations a row is separable anyway; squares stay finite in float32.
FARTHEST = 1e6


@checks.suggests_keywords
def c2st_published(samples: object, reference: object, seed: int = 1) -> float:
    """Accuracy of scikit-learn's classifier between `samples` and `reference`, as in published tables.

    With 10000 rows each it takes seconds in two dimensions and up to twenty minutes in ten; `c2st` trains
    the same classifier many times faster. Sets of unequal size are used whole, as the recipe does: chance is
    then the share of the larger set.

    Args:
        samples: `(n, dim)` array, at least 100 rows; published values use 10000.
        reference: `(m, dim)` array, at least 100 rows; sets the scale.
        seed: scikit-learn's `random_state` for folds and classifiers; published values use 1.

    Returns:
        Mean test accuracy over five folds: 0.5 is indistinguishable, 1.0 fully separable.

    Raises:
        ImportError: if scikit-learn is not installed.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> c2st_published(rng.normal(size=(200, 1)), rng.normal(9, 1, size=(200, 1)))
        1.0

    Reference: Lueckmann et al., "Benchmarking simulation-based inference", AISTATS 2021.
    """
    first, second = arrays.pair(samples, reference, minimum=MINIMUM_ROWS, reason=REASON)
    seed = checks.whole_seed(seed)
    data, labels = standardised(first, second), np.repeat([0, 1], [len(second), len(first)])
    return float(np.mean([fold_accuracy(data, labels, seed, fold) for fold in range(FOLDS)]))


def standardised(samples: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The reference's rows, then the samples', in units of the reference's standard deviations."""
    centre, scale = reference.mean(0), reference.std(0, ddof=1)
    # A constant column has no scale; where the samples differ from it, they still differ.
    scale = np.where(scale > 0, scale, 1.0)
    rows = (np.concatenate([reference, samples]) - centre) / scale
    return np.clip(rows, -FARTHEST, FARTHEST).astype(np.float32)


def fold_accuracy(data: np.ndarray, labels: np.ndarray, seed: int, fold: int) -> float:
    """Test accuracy of one fold: folds are independent, so a benchmark can share them out over cores."""
    try:
        from sklearn.model_selection import KFold
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        raise ImportError(
            "c2st_published needs scikit-learn: pip install 'aptinfer[bench]'. Without it, use c2st, which "
            "trains the same classifier."
        ) from None
    train, test = list(KFold(FOLDS, shuffle=True, random_state=seed).split(data))[fold]
    width = 10 * data.shape[1]
    classifier = MLPClassifier((width, width), max_iter=MAXIMUM_EPOCHS, random_state=seed)
    classifier.fit(data[train], labels[train])
    return float(classifier.score(data[test], labels[test]))
