"""C2ST against cases whose best possible accuracy is known, and against scikit-learn's recipe."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

from aptinfer.diagnostics import two_sample
from aptinfer.diagnostics.two_sample import c2st

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


@pytest.mark.parametrize("pair", [gaussians(2, 0.7), ring_and_gaussian()], ids=["shift", "ring"])
def test_agrees_with_scikit_learn(pair):
    neural_network = pytest.importorskip("sklearn.neural_network")
    model_selection = pytest.importorskip("sklearn.model_selection")
    samples, reference = pair
    centre, scale = reference.mean(0), reference.std(0)
    rows = (np.concatenate(pair) - centre) / scale
    labels = np.repeat([0, 1], [len(samples), len(reference)])
    classifier = neural_network.MLPClassifier(hidden_layer_sizes=(20, 20), max_iter=10_000, random_state=1)
    folds = model_selection.KFold(5, shuffle=True, random_state=1)
    scores = model_selection.cross_val_score(classifier, rows, labels, cv=folds)
    assert c2st(samples, reference) == pytest.approx(scores.mean(), abs=0.015)


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
    assert c2st(*pair, seed=2**40) == c2st(*pair, seed=2**40)
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
    original = two_sample._logits
    monkeypatch.setattr(two_sample, "_logits", lambda *a: traces.append(1) or original(*a))
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
