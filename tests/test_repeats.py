"""Measurements that were repeated: found in simulations, scaled alike, learned as draws of one density."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.columns import fit_columns
from aptinfer.estimators.stack import Stack
from aptinfer.methods.snl import default_families
from aptinfer.repeats import FEWEST_ROWS, measurements

ROWS = 300


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


THETA = rng().standard_normal((ROWS, 3))


def pairs(times: int) -> np.ndarray:
    """(rows, times, 2): places with their own means, and noise they share, more or less of it."""
    noise = np.random.default_rng(1).standard_normal((ROWS, times, 2))
    noise[..., 1] += np.tanh(THETA[:, 2, None]) * noise[..., 0]
    return THETA[:, None, :2] + noise


class TestFinding:
    def found(self, x):
        return measurements(THETA, x, rng())

    def test_one_after_another(self):
        blocks = self.found(pairs(4).reshape(ROWS, 8))
        np.testing.assert_array_equal(blocks, np.arange(8).reshape(4, 2))

    def test_place_by_place(self):
        blocks = self.found(pairs(4).transpose(0, 2, 1).reshape(ROWS, 8))
        np.testing.assert_array_equal(blocks, np.arange(8).reshape(2, 4).T)

    def test_in_any_order_if_places_differ_and_depend_on_each_other(self):
        x = np.stack([THETA[:, 0], -THETA[:, 0]], axis=-1)[:, None] + np.repeat(
            rng().standard_normal((ROWS, 4, 1)), 2, axis=-1
        )
        x += 0.3 * np.random.default_rng(2).standard_normal(x.shape)
        order = np.array([3, 6, 0, 5, 4, 1, 7, 2])
        blocks = self.found(x.reshape(ROWS, 8)[:, order])
        assert blocks is not None
        assert blocks[0, 0] < blocks[0, 1]  # an order that more rows will not change
        assert (np.diff(blocks.min(axis=1)) > 0).all()
        assert {frozenset(order[block]) for block in blocks} == {
            frozenset(pair) for pair in ((0, 1), (2, 3), (4, 5), (6, 7))
        }
        assert len(set(order[blocks[:, 0]] % 2)) == 1  # the same place stands first in each

    def test_single_numbers(self):
        x = THETA[:, :1] + rng().standard_normal((ROWS, 5))
        np.testing.assert_array_equal(self.found(x), np.arange(5)[:, None])

    def test_numbers_with_a_partner_are_measured_in_pairs(self):
        noise = np.repeat(rng().standard_normal((ROWS, 4, 1)), 2, axis=-1)
        x = THETA[:, :1, None] + noise + 0.5 * np.random.default_rng(1).standard_normal(noise.shape)
        np.testing.assert_array_equal(self.found(x.reshape(ROWS, 8)), np.arange(8).reshape(4, 2))

    def test_neighbours_in_a_series_are_no_repetition(self):
        series = rng().standard_normal((ROWS, 12))
        for i in range(1, 12):
            series[:, i] = 0.8 * series[:, i - 1] + 0.6 * series[:, i]
        blocks = self.found(THETA[:, :1] + series)
        assert blocks is None or len(blocks) == 2  # its halves nearly are

    def test_what_says_other_things_of_theta_is_one_measurement(self):
        assert self.found(THETA + rng().standard_normal((ROWS, 3))) is None
        trend = THETA[:, :1] * np.linspace(0.5, 1.5, 6) + 0.5 * rng().standard_normal((ROWS, 6))
        assert self.found(trend) is None
        spreading = THETA[:, :1] + np.exp(np.linspace(0, 1.5, 6)) * rng().standard_normal((ROWS, 6))
        assert self.found(spreading) is None

    def test_neither_few_rows_nor_a_single_number_are_searched(self):
        few = FEWEST_ROWS - 1
        assert measurements(THETA[:few], pairs(4).reshape(ROWS, 8)[:few], rng()) is None
        assert self.found(THETA[:, :1]) is None


class TestColumns:
    def test_measurements_are_put_in_order_and_scaled_alike(self):
        x = pairs(3).transpose(0, 2, 1).reshape(ROWS, 6) * np.repeat([1.0, 50.0], 3)
        x = np.column_stack([np.full(ROWS, 7.0), x])
        columns = fit_columns(x, "SNL", repeats=lambda flat: measurements(THETA, flat, rng()))
        assert columns.times == 3
        np.testing.assert_array_equal(columns.kept, [1, 4, 2, 5, 3, 6])
        seen = columns(np.concatenate([[7.0], [0.5] * 3, [20.0] * 3])).reshape(3, 2)
        np.testing.assert_array_equal(seen, np.tile(seen[0], (3, 1)))
        pooled = columns.rows(x, rng()).reshape(-1, 2)
        np.testing.assert_allclose(np.median(pooled, axis=0), 0, atol=0.05)

    def test_counts_of_one_measurement_are_counts_of_all(self):
        counts = rng().poisson(np.exp(THETA[:, :1] / 2 + 1), (ROWS, 4)).astype(float)
        columns = fit_columns(counts, "SNL", repeats=lambda flat: measurements(THETA, flat, rng()))
        assert columns.times == 4
        assert columns.whole.all()
        x = columns(np.array([3.0, 3, 3, 3]))
        np.testing.assert_array_equal(x, x[0])

    def test_an_impossible_entry_is_named_by_its_place_in_x(self):
        x = np.exp(2 * pairs(3)).transpose(0, 2, 1).reshape(ROWS, 6)
        columns = fit_columns(x, "SNL", repeats=lambda flat: np.array([[0, 3], [1, 4], [2, 5]]))
        assert columns.logarithmic.all()
        with pytest.raises(ValueError, match=r"x_o is impossible .* x\[3\] is -1"):
            columns(np.array([1.0, 1, 1, -1, 1, 1]))


def floats(numbers: Any) -> Any:
    return jnp.asarray(numbers, jnp.float32)


class TestDensity:
    @pytest.fixture(scope="class")
    def head(self):
        return apt.Repeated(apt.MDN(2), times=3).build(jax.random.key(0), dim=6, features=2)

    def test_it_is_the_product_over_measurements(self, head):
        conditions, values = floats(rng().standard_normal((4, 2))), floats(rng().standard_normal((4, 6)))
        one = lambda c, v: sum(head.one(c).log_prob(v[i : i + 2]) for i in (0, 2, 4))  # noqa: E731
        exact = jax.vmap(one)(conditions, values)
        np.testing.assert_allclose(head.log_prob_rows(conditions, values), exact, rtol=1e-5)
        singles = jax.vmap(lambda c, v: head(c).log_prob(v))(conditions, values)
        np.testing.assert_allclose(singles, exact, rtol=1e-5)

    def test_draws_are_independent_draws_of_one(self, head):
        keys = jax.random.split(jax.random.key(1), 20_000)
        density = head(floats([0.3, -1.0]))
        draws = np.asarray(jax.vmap(density.sample)(keys), float)
        one = np.asarray(jax.vmap(density.one.sample)(keys), float)
        error = 5 * one.std(axis=0) * np.sqrt(2 / 20_000)
        assert (np.abs(draws.reshape(-1, 3, 2).mean(axis=0) - one.mean(axis=0)) < error).all()
        between = np.corrcoef(draws.T) - np.kron(np.eye(3), np.corrcoef(one.T))
        assert np.abs(between).max() < 5 * np.sqrt(2 / 20_000)

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(ValueError, match="times must divide the 5 numbers of x that vary, got 2"):
            apt.Repeated(apt.MDN(1), times=2).build(jax.random.key(0), dim=5, features=2)
        with pytest.raises(TypeError, match=r"must be settings such as apt.MDN\(1\); got 3"):
            apt.Repeated(3)
        with pytest.raises(ValueError, match="times"):
            apt.Repeated(times=0)


def test_the_range_of_families_is_there_for_one_measurement_too():
    x = pairs(4).reshape(ROWS, 8)
    together = fit_columns(x, "SNL")
    repeated = fit_columns(x, "SNL", repeats=lambda flat: measurements(THETA, flat, rng()))
    families = default_families(together, several=True)
    more = default_families(repeated, several=True)
    assert more[: len(families)] == families
    assert [family.estimator.times for family in more[len(families) :]] == [4] * len(families)
    assert default_families(repeated, several=False) == default_families(together, several=False)


@apt.BatchSimulator
def four_times(rng, theta):
    return theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((len(theta), 4))


def test_a_likelihood_of_repeated_measurements_meets_the_exact_posterior():
    prior = apt.gaussian(np.zeros(2), 0.5**2 * np.eye(2))
    x_o = np.array([0.8, -0.5, 1.0, 0.1])
    trainer = apt.Trainer(batch=50, epochs=60, learning_rate=0.01)
    method = apt.SNL(estimator=apt.Repeated(apt.MDN(1), times=4), embedding=apt.MLP((16,)), trainer=trainer)
    run = apt.infer(four_times, prior, x_o, method=method, rounds=2, simulations=400, progress=False)

    mean, log_scale = np.stack(np.meshgrid(*2 * [np.linspace(-2.5, 2.5, 400)], indexing="ij"))
    log_posterior = -2 * (mean**2 + log_scale**2) - 4 * log_scale
    log_posterior -= np.sum((x_o[:, None, None] - mean) ** 2, axis=0) / (2 * np.exp(2 * log_scale))
    weights = np.exp(log_posterior - log_posterior.max()).ravel()
    grid = np.column_stack([mean.ravel(), log_scale.ravel()])
    exact = np.average(grid, axis=0, weights=weights)
    spread = np.sqrt(np.average((grid - exact) ** 2, axis=0, weights=weights))
    draws = run.posterior.sample(4000, seed=1)
    assert (np.abs(draws.mean(axis=0) - exact) < 0.2 * spread).all()
    assert (np.abs(np.log(draws.std(axis=0) / spread)) < 0.2).all()


@pytest.mark.parametrize(
    ("carry", "kind"), [(0.0, "SampledPosterior"), (0.95, "DirectPosterior")], ids=["set", "series"]
)
def test_a_budget_tells_a_set_from_a_series(carry, kind, monkeypatch):
    @apt.BatchSimulator
    def rows_of_ten(rng, theta):
        x = rng.standard_normal((len(theta), 10))
        for i in range(1, 10):
            x[:, i] = carry * x[:, i - 1] + np.sqrt(1 - carry**2) * x[:, i]
        return (theta[:, :1] + np.exp(theta[:, 1:]) * x)[..., None]

    small = lambda columns, several: (apt.Family(apt.Repeated(apt.MDN(1), columns.times)),)  # noqa: E731
    monkeypatch.setattr("aptinfer.methods.snl.default_families", small)
    quick = apt.Trainer(batch=50, epochs=2)
    method = apt.Recipe(
        apt.SNL(estimator=Stack(), repeats=True, screen=True, embedding=apt.Flatten(), trainer=quick),
        apt.APT(estimator=apt.MDN(1), trainer=quick),
    )
    prior, x_o = apt.gaussian(np.zeros(2), np.eye(2)), np.full((10, 1), 0.5)
    run = apt.infer(rows_of_ten, prior, x_o, method=method, budget=300, progress=False)
    assert type(run.posterior).__name__ == kind


@pytest.mark.slow
def test_the_default_stack_finds_them_and_goes_on_where_it_was_stopped(tmp_path):
    prior = apt.gaussian(np.zeros(2), 0.5**2 * np.eye(2))
    settings = {"method": apt.SNL(estimator=Stack(), repeats=True), "simulations": 100, "progress": False}
    x_o = np.array([0.8, -0.5, 1.0, 0.1])
    whole = apt.infer(four_times, prior, x_o, rounds=2, **settings)
    posterior: Any = whole.posterior
    assert posterior.scaling.times == 4
    file = tmp_path / "model.apt"
    apt.infer(four_times, prior, x_o, rounds=1, file=file, **settings)
    longer = apt.resume(file, four_times, rounds=2, progress=False)
    np.testing.assert_array_equal(longer.posterior.sample(100, seed=1), whole.posterior.sample(100, seed=1))
