"""Families of likelihoods: signal plus noise, stacks and their weights, data as likelihoods see them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import aptinfer as apt
from aptinfer.columns import NoDensityError, fit_columns
from aptinfer.estimators.embeddings import Flatten
from aptinfer.estimators.natural import Natural
from aptinfer.estimators.shifted import Shifted
from aptinfer.estimators.stack import stacking_weights
from aptinfer.screening import informative

RNG = np.random.default_rng(0)
QUICK = apt.Trainer(batch=50, epochs=60, learning_rate=0.01)


def floats(numbers: Any) -> Any:
    return jnp.asarray(numbers, jnp.float32)


def test_signal_plus_noise_is_the_noise_moved():
    head = Shifted(apt.MDN(1)).build(jax.random.key(1), dim=3, features=2)
    conditions, values = floats(RNG.standard_normal((5, 2))), floats(RNG.standard_normal((5, 3)))
    weights, bias = np.asarray(head.linear.weight, float), np.asarray(head.linear.bias, float)
    noise: Any = head.noise(floats([0.0]))
    factor = np.asarray(noise.factors[0], float)
    law: Any = multivariate_normal
    law = law(np.asarray(noise.means[0], float), np.linalg.inv(factor.T @ factor))
    exact = [law.logpdf(v - weights @ c - bias) for v, c in zip(values, conditions, strict=True)]
    np.testing.assert_allclose(head.log_prob_rows(conditions, values), exact, atol=1e-4)
    one_by_one = jax.vmap(lambda condition, value: head(condition).log_prob(value))
    np.testing.assert_allclose(one_by_one(conditions, values), exact, atol=1e-4)
    key = jax.random.key(3)
    moved = head(conditions[0]).sample(key) - noise.sample(key)
    np.testing.assert_allclose(moved, weights @ conditions[0] + bias, atol=1e-5)


def test_noise_must_be_settings():
    with pytest.raises(TypeError, match=r"Shifted noise must be settings such as apt.MDN\(1\); got 3"):
        Shifted(noise=3)


def test_weights_go_to_the_family_that_held_back_rows_prefer():
    rows = RNG.standard_normal((2, 200))
    clear = np.stack([rows[0], rows[0] - 0.5 + 0.1 * rows[1]])
    np.testing.assert_allclose(stacking_weights(clear), [1, 0], atol=1e-6)
    np.testing.assert_allclose(stacking_weights(np.stack([rows[0]] * 4)), np.full(4, 0.25))


def test_weights_are_shared_where_rows_cannot_tell():
    # Two families differ by d_i per row, of mean zero: the sum's spread is sqrt(200), and each wins half of
    # the bootstraps, as the probability that a normal with the sum as its mean is positive.
    difference = RNG.standard_normal(200)
    weights = stacking_weights(np.stack([difference, np.zeros(200)]))
    spread = np.sqrt(200) * difference.std()
    np.testing.assert_allclose(weights[0], ndtr(difference.sum() / spread), atol=0.06)
    np.testing.assert_allclose(weights.sum(), 1)


def test_a_stack_of_what_is_no_estimator_is_refused():
    with pytest.raises(TypeError, match="Stack families must be estimators"):
        apt.Stack((3,))
    with pytest.raises(ValueError, match="must not be empty"):
        apt.Stack(())


def test_natural_coordinates_are_uniform_where_the_prior_is():
    network = Natural(Flatten(), (True, False)).build(jax.random.key(0), (2,))
    z = floats([[-6.0, 2.0], [0.0, -1.0], [1.3, 0.5]])
    expected = np.column_stack([np.sqrt(12) * (ndtr(z[:, 0]) - 0.5), z[:, 1]])
    np.testing.assert_allclose(jax.vmap(network)(z), expected, atol=1e-6)


class TestScreening:
    theta = RNG.standard_normal((400, 2))

    def entries(self, *informative_ones, noise=20):
        """Entries that depend on theta, beside noise whose entries depend on each other."""
        shared = RNG.standard_normal((400, 1))
        return np.column_stack([*informative_ones, shared + RNG.standard_normal((400, noise))])

    def kept(self, x):
        return informative(self.theta, x, np.random.default_rng(0))

    def test_noise_is_left_out_whatever_depends_how_on_theta(self):
        a, b = self.theta.T
        wide = b[:, None] ** 2 * RNG.standard_normal((400, 2)) + 0.1 * RNG.standard_normal((400, 2))
        kept = self.kept(self.entries(a + RNG.standard_normal(400), wide))
        assert kept[:3].all()
        assert not kept[3:].any()

    def test_a_channel_that_carries_the_noise_of_another_stays(self):
        a, _ = self.theta.T
        noise = 2 * RNG.standard_normal(400)
        x = self.entries(3 * a + noise, noise)
        assert abs(np.corrcoef(x[:, 1], a)[0, 1]) < 0.2  # it says nothing of theta by itself
        assert self.kept(x)[:2].all()
        assert not self.kept(x)[2:].any()

    def test_many_entries_that_say_a_little_stay(self):
        a, _ = self.theta.T
        little = 0.12 * a[:, None] + RNG.standard_normal((400, 60))
        strong = a + 0.1 * RNG.standard_normal(400)
        # Noise of its own in each: nothing but theta ties them together.
        alone = np.column_stack([strong, little])
        assert self.kept(alone).all()

    def test_nothing_is_left_out_by_few_rows(self):
        few = np.random.default_rng(1).standard_normal((30, 20))
        assert informative(self.theta[:30], few, RNG).all()
        assert informative(self.theta[:0], few[:0], RNG).all()

    def test_nothing_is_left_out_of_few_entries(self):
        assert self.kept(RNG.standard_normal((400, 10))).all()


class TestColumns:
    def test_numbers_of_very_different_sizes_become_logarithms(self):
        sizes = np.exp(2 * RNG.standard_normal((500, 1)))
        plain = 5 + RNG.standard_normal((500, 1))
        counts = RNG.poisson(20, (500, 1)).astype(float)
        columns = fit_columns(np.hstack([sizes, plain, counts]), "SNL")
        assert columns.logarithmic.tolist() == [True, False, False]
        assert columns.whole.tolist() == [False, False, True]
        # Affine in the logarithm, in the plain number: equal ratios and equal differences keep their size.
        seen = np.stack([columns(np.array([x, 5 + x, 20])) for x in (1.0, 2.0, 4.0)])
        steps = np.diff(seen, axis=0)
        np.testing.assert_allclose(steps[0, 0], steps[1, 0], rtol=1e-5)
        np.testing.assert_allclose(2 * steps[0, 1], steps[1, 1], rtol=1e-5)

    def test_an_impossible_sign_is_refused(self):
        columns = fit_columns(np.exp(2 * RNG.standard_normal((500, 2))), "SNL")
        with pytest.raises(ValueError, match=r"x_o is impossible .* x\[1\] is -1"):
            columns(np.array([1.0, -1.0]))

    def test_zeros_and_ones_stay_what_they_are_if_asked(self):
        x = (RNG.uniform(size=(100, 3)) < 0.5).astype(float)
        assert fit_columns(x, "SNL", bits=True).binary
        np.testing.assert_array_equal(fit_columns(x, "SNL", bits=True).rows(x, RNG), x)
        spread = fit_columns(x, "SNL").rows(x, RNG)
        assert len(np.unique(spread)) == spread.size

    def test_a_count_that_was_never_seen_is_rare_and_not_impossible(self):
        x = np.column_stack([RNG.standard_normal(200), np.zeros(200)])
        assert fit_columns(x, "SNL", observation=np.array([0.0, 0.0])).size == 1
        assert fit_columns(x, "SNL", observation=np.array([0.0, 2.0])).size == 2

    def test_screened_entries_are_not_looked_at(self):
        x = RNG.standard_normal((200, 3))
        columns = fit_columns(x, "SNL", np.array([True, False, True]))
        one, other = (columns(np.array([1.0, ignored, 3.0])) for ignored in (2.0, 99.0))
        np.testing.assert_array_equal(one, other)

    def test_what_repeats_has_no_density(self):
        x = np.column_stack([RNG.standard_normal(200), RNG.integers(0, 5, 200) / 7])
        with pytest.raises(NoDensityError, match="SNL learns the density of x, and entry x"):
            fit_columns(x, "SNL")


@apt.BatchSimulator
def linear(rng, theta):
    return theta @ [[1.0, 0.5], [0.0, 1.0]] + 0.3 * rng.standard_normal(theta.shape)


FAMILIES = apt.Stack((apt.Family(Shifted(apt.MDN(1)), Flatten()), apt.AutoregressiveMixture(2, hidden=(16,))))
SETTINGS = {"rounds": 2, "simulations": 300, "progress": False}


@pytest.fixture(scope="module")
def stacked():
    method = apt.SNL(estimator=FAMILIES, embedding=apt.MLP((16,)), trainer=QUICK)
    prior = apt.gaussian(np.zeros(2), np.eye(2))
    return apt.infer(linear, prior, [0.5, -0.4], method=method, **SETTINGS)


def test_families_are_weighted_by_held_back_rows_of_the_proposal(stacked):
    rows, posterior = stacked.simulations, stacked.posterior
    held_back = (np.arange(600) % 10 == 9) & (rows.source > 0)
    x, z = np.stack([posterior.scaling(x) for x in rows.x[held_back]]), rows.value[held_back]
    log_q = [
        np.asarray(posterior.model.log_densities(*pair)) for pair in zip(floats(x), floats(z), strict=True)
    ]
    notes = stacked.rounds[-1].notes
    weights = [notes["weight_1"], notes["weight_2"]]
    np.testing.assert_allclose(weights, stacking_weights(np.array(log_q, float).T), atol=1e-3)
    np.testing.assert_allclose(np.exp(posterior.model.log_weights), weights, atol=1e-3)


def test_a_stack_meets_the_exact_posterior(stacked):
    slope = np.array([[1.0, 0.5], [0.0, 1.0]]).T
    precision = np.eye(2) + slope.T @ slope / 0.09
    mean = np.linalg.solve(precision, slope.T @ np.array([0.5, -0.4]) / 0.09)
    spread = np.sqrt(np.diag(np.linalg.inv(precision)))
    draws = stacked.posterior.sample(4000, seed=1)
    # A regression of three coefficients on 540 rows, a fit that may be as far off again, and draws.
    error = spread * np.sqrt(2 * 3 / 540 + 1 / stacked.posterior.effective_size)
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * error).all()
    assert (np.abs(np.log(draws.std(axis=0) / spread)) < 4 * np.sqrt(1 / (2 * 540) + 1 / 4000)).all()


def test_a_stack_is_the_weighted_sum_of_its_families(stacked):
    model, x = stacked.posterior.model, floats(stacked.posterior.scaling(np.array([0.5, -0.4])))
    weighted = eqx.tree_at(lambda m: m.log_weights, model, jnp.log(floats([0.3, 0.7])))
    alone = eqx.tree_at(lambda m: m.log_weights, model, jnp.log(floats([1, 1e-5])))
    for z in floats(RNG.standard_normal((5, 2))):
        each = np.asarray(model.log_densities(x, z), float)
        mixed = np.logaddexp(*(each + np.log([0.3, 0.7])))
        np.testing.assert_allclose(weighted.log_likelihood(x, z), mixed, rtol=1e-5)
        np.testing.assert_allclose(alone.log_likelihood(x, z), each[0], rtol=1e-5)


class TestRecipe:
    method = apt.Recipe(
        likelihood=apt.SNL(estimator=FAMILIES, trainer=QUICK, screen=True),
        posterior=apt.APT(estimator=apt.MDN(1), trainer=QUICK),
    )

    def run(self, simulator, x_o, **settings):
        prior = apt.box([-1, -1], [1, 1])
        return apt.infer(simulator, prior, x_o, method=self.method, progress=False, **settings)

    def test_vectors_with_a_density_get_a_likelihood(self):
        run = self.run(linear, [0.5, -0.4], budget=120)
        assert type(run.posterior).__name__ == "SampledPosterior"
        assert (run.plan.rounds, run.plan.simulations) == (1, 120)

    def test_numbers_that_repeat_get_a_posterior(self):
        coarse = apt.BatchSimulator(
            lambda rng, theta: np.round(7 * (theta + rng.standard_normal(theta.shape))) / 7
        )
        run = self.run(coarse, [1 / 7, 2 / 7], rounds=2, simulations=60)
        assert type(run.posterior).__name__ == "DirectPosterior"
        assert len(run.rounds) == 2

    @pytest.mark.slow
    def test_images_get_a_posterior(self):
        image = apt.BatchSimulator(
            lambda rng, theta: theta[:, :1, None, None] + rng.standard_normal((len(theta), 1, 4, 4))
        )
        run = self.run(image, np.zeros((1, 4, 4)), budget=100)
        assert type(run.posterior).__name__ == "DirectPosterior"

    def test_rows_of_unknown_origin_are_refused_where_the_posterior_could_not_learn_from_them(self):
        known = np.zeros((30, 2)), np.zeros((30, 2))
        with pytest.raises(ValueError, match="Recipe needs to know where parameters came from"):
            self.run(linear, [0.5, -0.4], budget=120, simulations_done=known)

    def test_one_space_for_both(self):
        with pytest.raises(ValueError, match="must have the same space"):
            apt.Recipe(likelihood=apt.SNL(space=apt.Theta()))

    def test_other_methods_are_refused(self):
        with pytest.raises(TypeError, match=r"Recipe likelihood must be an apt.SNL"):
            apt.Recipe(likelihood=apt.NPE())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("budget", "rounds", "simulations"), [(1000, 10, 100), (10_000, 10, 1000), (350, 3, 116), (60, 1, 60)]
)
def test_a_budget_is_spent_in_rounds(budget, rounds, simulations):
    from aptinfer.methods.recipe import rounds_of

    assert rounds_of(budget, one_round=False, least=20) == (rounds, simulations)
    assert rounds_of(budget, one_round=True, least=20) == (1, budget)


def test_a_budget_stands_in_place_of_rounds_and_simulations():
    prior = apt.box([-1, -1], [1, 1])
    with pytest.raises(ValueError, match="budget=500 stands in place of rounds= and simulations="):
        apt.infer(linear, prior, [0.5, -0.4], budget=500, rounds=3)
    with pytest.raises(ValueError, match="budget must be a whole number of at least 20, got 5"):
        apt.infer(linear, prior, [0.5, -0.4], budget=5)
