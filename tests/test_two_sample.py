"""C2ST against cases whose best possible accuracy is known, and against scikit-learn's recipe."""

import sys
import warnings

import jax
import numpy as np
import pytest
from scipy.stats import norm

from aptinfer.diagnostics.two_sample import c2st, c2st_published, classifier
from aptinfer.diagnostics.two_sample.published import standardised

N = 2000
NOISE = 4 * 0.5 / np.sqrt(2 * N)  # four standard deviations of an accuracy measured on 2N rows


def gaussians(dim: int, shift: float, *, n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two unit Gaussians whose means are `shift` apart."""
    first, second = np.random.default_rng(seed).normal(size=(2, n, dim))
    return first + shift / np.sqrt(dim), second


def ring_and_gaussian() -> tuple[np.ndarray, np.ndarray]:
    """Equal moments, different shapes: only a nonlinear classifier tells them apart."""
    rng = np.random.default_rng(3)
    angle, radius = rng.uniform(0, 2 * np.pi, N), rng.normal(1.0, 0.3, N)
    ring = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return ring, ring.std(0) * rng.normal(size=(N, 2))


def test_equal_distributions_are_indistinguishable():
    assert abs(c2st(*gaussians(2, 0.0)) - 0.5) < NOISE


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_a_mean_shift_reaches_the_optimal_accuracy(shift):
    # The best classifier cuts halfway between the means and is right with probability Φ(shift/2).
    # A learned boundary loses a little of that, never gains.
    best = norm.cdf(shift / 2)
    score = c2st(*gaussians(2, shift))
    assert best - NOISE - 0.01 < score < best + NOISE


def test_disjoint_sets_are_fully_separable():
    first, second = gaussians(2, 1e9)
    assert c2st(first, second) == 1.0


def agreement(n: int, share: float) -> float:
    """Four standard deviations of a difference when a `share` of the 2n rows changes sides by rounding."""
    return 4 * np.sqrt(share * 2 * n) / (2 * n)


@pytest.mark.parametrize(
    ("dim", "n", "shift"), [(2, 1000, 0.0), (2, 1000, 0.7), (2, 1000, 3.0), (5, 300, 7.0)]
)
def test_agrees_with_the_published_recipe(dim, n, shift):
    # The same random numbers, so only rounding differs. Independent ones would let half of the rows at chance
    # change sides, a standard deviation of 0.016 with 1000 rows.
    pair = gaussians(dim, shift, n=n)
    assert c2st(*pair) == pytest.approx(c2st_published(*pair), abs=agreement(n, 0.01))


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "n", "shift"), [(5, 1000, 0.0), (5, 1000, 0.7)])
def test_agrees_with_the_published_recipe_where_training_is_long(dim, n, shift):
    # Networks that learn their training rows by heart take thousands of steps, which amplify rounding.
    pair = gaussians(dim, shift, n=n)
    assert c2st(*pair) == pytest.approx(c2st_published(*pair), abs=agreement(n, 0.05))


def test_curved_shapes_agree_with_the_published_recipe():
    ring, gaussian = ring_and_gaussian()
    assert c2st(ring[:1000], gaussian[:1000]) == pytest.approx(
        c2st_published(ring[:1000], gaussian[:1000]), abs=agreement(1000, 0.01)
    )


@pytest.mark.parametrize(("n", "folds"), [(203, 5), (267, 4)], ids=["uneven", "empty batch"])
def test_training_follows_scikit_learn_step_by_step(n, folds):
    model_selection = pytest.importorskip("sklearn.model_selection")
    neural_network = pytest.importorskip("sklearn.neural_network")
    rows = standardised(*gaussians(2, 0.7, n=n))
    labels = np.repeat(np.array([0, 1], np.float32), n)
    _, trains = classifier._folds(1, 2 * n, folds)
    train, used = classifier._padded(trains)
    states = classifier._start(classifier._glorot(np.random.RandomState(1), 2), folds)
    orders = next(classifier._orders(1, 2, [len(t) for t in trains]))
    states = classifier._train(states, rows, labels, train, used, orders)

    splits = model_selection.KFold(folds, shuffle=True, random_state=1).split(rows)
    for fold, (theirs, _) in enumerate(splits):
        np.testing.assert_array_equal(trains[fold], theirs)
        network = neural_network.MLPClassifier((20, 20), max_iter=len(orders), random_state=1)
        with warnings.catch_warnings(action="ignore"):  # that it has not converged
            network.fit(rows[theirs], labels[theirs].astype(int))
        # A step moves a weight by about 1e-3 in either direction; here are at least forty.
        for (matrix, bias), coefs, intercepts in zip(
            states.weights, network.coefs_, network.intercepts_, strict=True
        ):
            np.testing.assert_allclose(matrix[fold], coefs, atol=2e-5)
            np.testing.assert_allclose(bias[fold], intercepts, atol=2e-5)
        assert float(states.best[fold]) == pytest.approx(network.best_loss_, abs=1e-6)


def test_the_published_value_is_scikit_learns_cross_validation():
    model_selection = pytest.importorskip("sklearn.model_selection")
    neural_network = pytest.importorskip("sklearn.neural_network")
    samples, reference = gaussians(2, 1.0, n=150)
    reference = 3 * reference[:120] + 2
    centre, scale = reference.mean(0), reference.std(0, ddof=1)
    rows = ((np.concatenate([reference, samples]) - centre) / scale).astype(np.float32)
    labels = np.concatenate([np.zeros(120), np.ones(150)])
    network = neural_network.MLPClassifier((20, 20), max_iter=10_000, random_state=3)
    folds = model_selection.KFold(5, shuffle=True, random_state=3)
    scores = model_selection.cross_val_score(network, rows, labels, cv=folds)
    assert c2st_published(samples, reference, seed=3) == pytest.approx(scores.mean(), abs=1e-12)


def test_the_published_value_needs_scikit_learn_and_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    with pytest.raises(ImportError, match=r"scikit-learn: pip install 'aptinfer\[bench\]'"):
        c2st_published(*gaussians(1, 0.0, n=100))


def test_the_reference_sets_the_scale_so_units_do_not_matter():
    first, second = gaussians(2, 0.7)
    units = np.array([1e-3, 1e4])
    assert c2st(first * units + 5, second * units + 5) == pytest.approx(c2st(first, second), abs=0.02)


def test_chance_is_one_half_for_sets_of_unequal_size():
    first, _ = gaussians(2, 0.0)
    _, second = gaussians(2, 0.0, seed=1)
    noise = 4 * 0.5 / np.sqrt(2 * 200)
    assert abs(c2st(first[:200], second) - 0.5) < noise
    assert abs(c2st(second, first[:200]) - 0.5) < noise


def test_a_constant_column_is_harmless():
    first, second = gaussians(2, 0.0, n=200)
    first[:, 1] = second[:, 1] = 7.0
    assert abs(c2st(first, second) - 0.5) < 4 * 0.5 / np.sqrt(400)


def test_the_seed_fixes_the_result():
    pair = gaussians(2, 0.3, n=200)
    assert c2st(*pair, seed=2**32 - 1) == c2st(*pair, seed=2**32 - 1)
    scores = {c2st(*pair, seed=seed) for seed in range(2)}
    assert len(scores) > 1


def test_precision_and_promotion_settings_do_not_matter():
    pair = gaussians(2, 0.5, n=203)  # 406 rows: the five folds differ in size
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        single = c2st(*pair)
        with jax.enable_x64(True):
            assert c2st(*pair) == pytest.approx(single, abs=0.01)


def test_equal_shapes_compile_once(monkeypatch):
    traces = []
    original = classifier._logits
    monkeypatch.setattr(classifier, "_logits", lambda *a: traces.append(1) or original(*a))
    for seed in range(3):
        c2st(*gaussians(1, 0.5, n=111, seed=seed), seed=seed)
        if seed == 0:
            first = len(traces)
    assert len(traces) == first > 0


@pytest.mark.parametrize(
    ("samples", "reference", "message"),
    [
        (np.zeros((200, 2)), np.zeros((200, 3)), "equally many columns"),
        (np.zeros(200), np.zeros((200, 1)), r"samples must have shape \(n, dim\)"),
        (np.zeros((200, 2)), np.zeros((99, 2)), "reference must have at least 100 rows"),
        (np.zeros((200, 2)), np.full((200, 2), np.nan), "reference must be finite"),
        (np.full((200, 2), np.inf), np.zeros((200, 2)), "samples must be finite"),
    ],
)
def test_unusable_arrays_are_refused_by_name(samples, reference, message):
    with pytest.raises(ValueError, match=message):
        c2st(samples, reference)


def test_unusable_settings_are_refused_by_name():
    pair = gaussians(1, 0.0, n=100)
    with pytest.raises(ValueError, match="folds must be a whole number of at least 2"):
        c2st(*pair, folds=1)
    with pytest.raises(ValueError, match="folds must be at most"):
        c2st(*pair, folds=101)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        c2st(*pair, seed=-1)
    with pytest.raises(TypeError, match="Did you mean 'seed'"):
        c2st(*pair, sed=1)  # pyright: ignore[reportCallIssue]
