"""Laws of conditional densities: they integrate to one, their draws follow them, pairs equal singles."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.estimators import ensemble
from aptinfer.estimators.autoregressive import AutoregressiveMixture
from aptinfer.estimators.density import log_prob_pairs
from aptinfer.estimators.embeddings import MLP, Flatten, build_embedding
from aptinfer.estimators.ensemble import Ensemble, as_members, build_members, count_members, member
from aptinfer.estimators.flows import MAF, NSF, FlowDensity, Spline
from aptinfer.estimators.made import MADE
from aptinfer.estimators.mdn import MDN, MixtureHead
from aptinfer.estimators.velocity import VelocityNetwork
from aptinfer.keys import Key

pytestmark = pytest.mark.usefixtures("strict")

FEATURES = 3
DRAWS = 20_000
# Settings, and how far random weights may stray before mass leaves [-8, 8].
ESTIMATORS = {
    "MDN(1)": (MDN(1), 0.35),
    "MDN(3)": (MDN(3), 0.35),
    "MAF": (MAF(layers=2, hidden=(8, 8)), 0.25),
    "NSF": (NSF(layers=2, hidden=(8, 8), bins=4), 0.2),
    "mixture": (AutoregressiveMixture(3, hidden=(8, 8)), 0.3),
    "velocity": (VelocityNetwork(hidden=8, blocks=1, steps=8), 0.2),
}


def randomised(build, seed: int, scale: float):
    """The module that `build` makes, every trained array replaced by noise: output layers start at zero,
    where most laws hold trivially. Nothing is compiled for it."""
    shapes = eqx.filter_eval_shape(build)
    rng = np.random.default_rng(seed)
    is_array = lambda a: isinstance(a, jax.ShapeDtypeStruct)  # noqa: E731
    noise = lambda a: np.float32(scale * rng.normal(size=a.shape))  # noqa: E731
    return jax.tree.map(lambda a: noise(a) if is_array(a) else a, shapes, is_leaf=is_array)


class Case(NamedTuple):
    """What one compiled program says about a randomly weighted estimator at one condition."""

    dim: int
    points: np.ndarray
    volumes: np.ndarray  # with the densities at the points, weights of a quadrature rule
    density: np.ndarray
    sample: np.ndarray
    pairs: np.ndarray
    singles: np.ndarray
    rows: np.ndarray
    noise: np.ndarray | None  # flows: what the draws start from, and what evaluating them ends at
    back: np.ndarray | None


def rule(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and volumes: an even grid as far as mass reaches, or importance sampling in three dimensions."""
    if dim == 3:
        points = 2 * np.random.default_rng(0).normal(size=(30_000, 3))
        log_proposal = -np.sum(points**2, axis=1) / 8 - 1.5 * np.log(8 * np.pi)
        return points, np.exp(-log_proposal) / len(points)
    axis = np.linspace(-40, 40, 10_001) if dim == 1 else np.linspace(-8, 8, 201)
    points = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    return points, np.full(len(points), (axis[1] - axis[0]) ** dim)


CONDITIONS = np.random.default_rng(1).normal(size=(3, FEATURES)).astype(np.float32)


CASES = [pytest.param((name, dim), id=f"{name}-{dim}d") for name in ESTIMATORS for dim in (1, 2, 3)]


@pytest.fixture(scope="module", params=CASES)
def case(request, strict) -> Case:
    name, dim = request.param
    spec, scale = ESTIMATORS[name]
    points, volumes = rule(dim)
    values = np.random.default_rng(2).normal(size=(3, 4, dim)).astype(np.float32)

    estimator = randomised(lambda: spec.build(jax.random.key(0), dim, FEATURES), 4, scale)

    @jax.jit
    def everything(estimator, points, conditions, values):
        q, keys = estimator(conditions[0]), jax.random.split(jax.random.key(1), DRAWS)
        sample = jax.vmap(q.sample)(keys)
        # One by one: twelve single pairs, then every point with the first condition.
        which = jnp.concatenate([jnp.repeat(jnp.arange(3), 4), jnp.zeros(len(points), jnp.int32)])
        each = jnp.concatenate([values.reshape(12, dim), points])
        singles = jax.vmap(lambda c, v: estimator(c).log_prob(v))(conditions[which], each)
        noise = back = None
        if isinstance(q, FlowDensity) and dim == 3:
            noise = jax.vmap(lambda key: jax.random.normal(key, (dim,)))(keys)

            back = jax.vmap(lambda value: q.evaluate(value)[0])(sample)
        pairs = log_prob_pairs(estimator, conditions, values)
        rows = estimator.log_prob_rows(jnp.repeat(conditions, 4, axis=0), values.reshape(12, dim))
        singles, density = singles[:12].reshape(3, 4), jnp.exp(singles[12:])
        return density, sample, pairs, singles, rows.reshape(3, 4), noise, back

    out = everything(estimator, np.float32(points), CONDITIONS, values)
    return Case(dim, points, volumes, *jax.tree.map(lambda a: np.asarray(a, np.float64), out))


def test_densities_integrate_to_one(case):
    parts = case.density * case.volumes
    noise = 5 * len(parts) ** 0.5 * parts.std() if case.dim == 3 else 0
    assert noise < 0.1
    assert parts.sum() == pytest.approx(1, abs=1e-3 + noise)
    # The law would hold trivially for what every estimator starts from, N(0, I).
    normal = np.exp(-0.5 * np.sum(case.points**2, axis=1) - 0.5 * case.dim * np.log(2 * np.pi))
    assert np.sum(np.abs(case.density - normal) * case.volumes) > 0.02


def test_draws_follow_the_density(case):
    """Means, products of all pairs and shares below quartiles: five standard errors of both sides."""
    statistics = [
        *(lambda v, i=i: v[:, i] for i in range(case.dim)),
        *(lambda v, i=i, j=j: v[:, i] * v[:, j] for i in range(case.dim) for j in range(i + 1)),
        *(
            lambda v, i=i, cut=cut: (v[:, i] < cut).astype(float)
            for i in range(case.dim)
            for cut in np.quantile(case.sample[:, i], [0.25, 0.5, 0.75])
        ),
    ]
    mass = case.density * case.volumes
    for k, statistic in enumerate(statistics):
        drawn, at_points = statistic(case.sample), statistic(case.points)
        error = drawn.std() / DRAWS**0.5
        if case.dim == 3:
            error += len(mass) ** 0.5 * (mass * at_points).std()
        else:  # a cell that a quartile cuts is counted whole
            error += 0.01 if k >= case.dim + case.dim * (case.dim + 1) // 2 else 2e-4
        assert drawn.mean() == pytest.approx(mass @ at_points, abs=5 * error)


def test_pairs_equal_singles(case):
    np.testing.assert_allclose(case.pairs, case.singles, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(case.rows, case.singles, rtol=2e-5, atol=2e-5)
    assert np.ptp(case.pairs) > 0.1


@pytest.mark.parametrize("name", ["MAF", "NSF", "mixture"])
def test_gradients_of_rows_are_those_of_singles(name):
    spec, scale = ESTIMATORS[name]
    estimator = randomised(lambda: spec.build(jax.random.key(0), 2, FEATURES), 4, scale)
    values = np.random.default_rng(2).normal(size=(3, 2)).astype(np.float32)

    def one_by_one(estimator):
        return jnp.sum(jax.vmap(lambda c, v: estimator(c).log_prob(v))(CONDITIONS, values))

    by_rows, singly = jax.jit(
        lambda e: (
            jax.grad(lambda e: jnp.sum(e.log_prob_rows(CONDITIONS, values)))(e),
            jax.grad(one_by_one)(e),
        )
    )(estimator)
    for ours, theirs in zip(jax.tree.leaves(by_rows), jax.tree.leaves(singly), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if c.id in ("MAF-3d", "NSF-3d")], indirect=True)
def test_drawing_inverts_evaluating(case):
    np.testing.assert_allclose(case.back, case.noise, atol=5e-4)
    assert np.abs(case.sample - case.noise).max() > 0.3


@pytest.mark.parametrize("name", ["MAF", "NSF", "velocity"])
def test_flows_start_at_the_prior(name):
    build = lambda: ESTIMATORS[name][0].build(jax.random.key(0), 2, FEATURES)  # noqa: E731
    values = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32) * 2
    ours = jax.jit(lambda c, v: jax.vmap(build()(c).log_prob)(v))(CONDITIONS[0], values)
    normal = -0.5 * np.sum(np.float64(values) ** 2, axis=1) - np.log(2 * np.pi)
    np.testing.assert_allclose(ours, normal, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [12, 40])
@pytest.mark.parametrize("dim", [1, 4])
def test_made_looks_back_only_and_always_at_the_condition(dim, width):
    settings = {"activation": jnp.tanh, "key": jax.random.key(0)}
    made = randomised(lambda: MADE(dim, FEATURES, (width, width), 2, 3, **settings), dim, 0.5)
    jacobians = jax.jit(jax.jacobian(lambda v, c: made(c)(v), argnums=(0, 1)))
    by_value, by_condition = jacobians(np.linspace(-1, 1, dim, dtype=np.float32), CONDITIONS[0])
    assert by_condition.shape == (2, dim, 3, FEATURES)
    assert (np.abs(by_condition).max(axis=-1) > 1e-6).all()
    # Nothing on or above the diagonal, something everywhere below, in each of the 2 x 3 outputs.
    for by_value_of_output in np.moveaxis(np.abs(by_value), 1, 2).reshape(6, dim, dim):
        assert (by_value_of_output[np.triu_indices(dim)] == 0).all()
        assert (by_value_of_output[np.tril_indices(dim, -1)] > 1e-6).all()


@pytest.mark.parametrize("width", [1, 3, 5])
def test_a_made_narrower_than_its_value_misses_the_last_few_dimensions_only(width):
    dim, units = 6, (width, width)
    settings = {"activation": jnp.tanh, "key": jax.random.key(0)}
    made = randomised(lambda: MADE(dim, FEATURES, units, 1, 1, **settings), dim, 0.5)
    value = np.linspace(-1, 1, dim, dtype=np.float32)
    found, by_value = jax.jit(lambda v, c: (made(c)(v), jax.jacobian(made(c))(v)))(value, CONDITIONS[0])
    both = made.rows(CONDITIONS[:1].T, value[:, None])[..., 0]
    np.testing.assert_allclose(found, both, atol=1e-6)
    seen = np.abs(by_value[0, :, 0]) > 1e-6
    assert not seen[np.triu_indices(dim)].any()
    # With three units, of degrees 0, 2 and 4, dimension 5 sees the first four, dimension 4 the same.
    degrees = np.round(np.arange(width) * (dim - 1) / width)
    reach = [max(d for d in degrees if d <= j) for j in range(dim)]
    np.testing.assert_array_equal(seen.sum(axis=1), reach)
    assert reach[-1] >= dim - 1 - -(-dim // width)


@pytest.fixture(scope="module")
def spline(strict):
    """Twenty random splines, each on a fine grid that reaches beyond its bound."""
    transform = Spline(bins=6, bound=3.0)
    parameters = (
        jax.random.normal(
            jax.random.key(0), (*transform.parameters[:1], 20, transform.parameters[1]), jnp.float32
        )
        * 2
    )
    grid = np.linspace(-5, 5, 2001, dtype=np.float32)

    @jax.jit
    def everything(values):
        u, log_slope = jax.vmap(transform.forward, (None, 0))(parameters, values)
        back = jax.vmap(transform.inverse, (None, 0))(parameters, u)
        total = lambda v: jnp.sum(transform.forward(parameters, v)[0])  # noqa: E731
        return u, log_slope, back, jax.vmap(jax.grad(total))(values)

    out = everything(np.repeat(grid[:, None], 20, axis=1))
    return grid, *(np.asarray(a, np.float64) for a in out)


def test_splines_are_the_identity_beyond_their_bound(spline):
    grid, u, log_slope, back, _ = spline
    beyond = np.abs(grid) >= 3
    np.testing.assert_array_equal(u[beyond], np.repeat(grid[beyond, None], 20, axis=1))
    np.testing.assert_array_equal(back[beyond], u[beyond])
    assert (log_slope[beyond] == 0).all()
    assert (np.abs(u[~beyond]) <= 3).all()
    assert np.abs(u - grid[:, None]).max() > 1  # and not the identity within


def test_splines_increase(spline):
    _, u, *_ = spline
    assert (np.diff(u, axis=0) > 0).all()


def test_splines_invert(spline):
    grid, u, log_slope, back, _ = spline
    # Float32 in u leaves an error of eps / slope in the value: allow that and a little more.
    allowed = 2e-5 * np.maximum(1, np.exp(-log_slope))
    assert (np.abs(back - grid[:, None]) < allowed).all()
    assert np.abs(u).max() > 4


def test_spline_slopes_are_derivatives(spline):
    *_, log_slope, _, derivative = spline
    np.testing.assert_allclose(log_slope, np.log(derivative), atol=1e-3)


def test_zero_parameters_are_the_identity():
    transform = Spline(bins=5, bound=4.0)
    values = np.linspace(-6, 6, 101, dtype=np.float32)
    zeros = np.zeros((1, 101, transform.parameters[1]), np.float32)
    u, log_slope = jax.jit(transform.forward)(zeros, values)
    np.testing.assert_allclose(u, values, atol=1e-5)
    np.testing.assert_allclose(log_slope, 0, atol=1e-5)


def test_members_are_stacked_and_differ():
    members = build_members(Key((3,)), Ensemble(MDN(2), members=3), MLP((5,)), 2, (4,))
    assert count_members(members) == 3
    first, third = member(members, 0), member(members, 2)
    for get, shape in (
        (lambda e: e.embedding.layers[0].weight, (5, 4)),
        (lambda e: e.head.linear.bias, (14,)),
    ):
        assert get(first).shape == shape
        assert np.abs(np.asarray(get(first)) - np.asarray(get(third))).max() > 0.1


class Pooled(eqx.Module):
    """What a user might write: a table of columns to keep, a learned scale, a mean over time."""

    columns: jax.Array
    scale: jax.Array

    def __call__(self, x):
        return self.scale * jnp.mean(x[:, self.columns], axis=0)


def test_a_user_s_module_embeds():
    network = Pooled(jnp.array([2, 0]), jnp.array([2.0, 3.0]))
    _, features = build_embedding(network, jax.random.key(0), (5, 3))
    assert features == 2
    members = build_members(Key((0,)), Ensemble(MDN(1), members=2), network, 1, (5, 3))
    # The learned array has a member axis, the table is shared.
    assert members.embedding.scale.shape == (2, 2)  # pyright: ignore[reportAttributeAccessIssue]
    assert members.embedding.columns.shape == (2,)  # pyright: ignore[reportAttributeAccessIssue]
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_allclose(member(members, 1).embedding(x), [2 * 8, 3 * 6])  # pyright: ignore


def test_flatten_passes_x_on():
    network, features = build_embedding(Flatten(), jax.random.key(0), (2, 3))
    assert features == 6
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(network(x), x.ravel())  # pyright: ignore[reportCallIssue]


class Square(eqx.Module):
    def __call__(self, x):
        return x[:, None] * x[None, :]


@pytest.mark.parametrize(
    ("embedding", "error", "message"),
    [
        (Square(), ValueError, r"Square must return a vector.*\(4, 4\).*jnp\.ravel"),
        (Pooled(jnp.array([0]), jnp.ones(1)), ValueError, r"Pooled cannot take x of shape \(4,\)"),
        (lambda x: x, TypeError, r"embedding must be an eqx\.Module.*apt\.MLP\(\).*function"),
    ],
    ids=["rank", "shape", "type"],
)
def test_wrong_embeddings_are_refused_with_advice(embedding, error, message):
    with pytest.raises(error, match=message):
        build_embedding(embedding, jax.random.key(0), (4,))


@pytest.mark.parametrize("hidden", [(), (50, 40)])
@pytest.mark.parametrize("spec", [MAF, NSF, AutoregressiveMixture])
def test_masked_layers_of_unequal_width_are_refused(spec, hidden):
    with pytest.raises(ValueError, match=rf"{spec.__name__} hidden must name at least one layer"):
        spec(hidden=hidden)


@pytest.mark.parametrize("spec", [MAF(layers=1, hidden=(8,)), AutoregressiveMixture(hidden=(8, 8))])
def test_a_single_network_too_narrow_for_its_parameters_is_refused(spec):
    with pytest.raises(ValueError, match=r"8 units is too narrow for 9 dimensions.*at least 9"):
        spec.build(jax.random.key(0), 9, 2)


def test_equal_settings_are_built_by_one_program_and_other_weights():
    """But never a user's settings that are their own hash: they may have changed since."""
    first, second = (build_members(Key((seed,)), MDN(2), MLP((8,)), 2, (3,)) for seed in (0, 1))
    hits = ensemble._remembered.cache_info().hits
    again = build_members(Key((0,)), MDN(2), MLP((8,)), 2, (3,))
    assert ensemble._remembered.cache_info().hits == hits + 1
    weights = [jax.tree.leaves(as_members(network)[0])[0] for network in (first, second, again)]
    np.testing.assert_array_equal(weights[0], weights[2])
    assert np.any(weights[0] != weights[1])

    class Changing:
        components = 1

        def build(self, key, dim, features):
            return MDN(self.components).build(key, dim, features)

    def components(settings) -> int:
        head = build_members(Key((0,)), settings, MLP((8,)), 2, (3,)).head
        assert isinstance(head, MixtureHead)
        return head.components

    changing = Changing()
    assert components(changing) == 1
    changing.components = 3
    assert components(changing) == 3
