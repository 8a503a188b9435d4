"""Missing entries and unequal lengths: declared, masked in training and in x_o, refused when undeclared."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.protocols import Status
from aptinfer.scaling import fit_scaling
from aptinfer.simulators import as_simulator, judged

LONGEST = 8
PRIOR = apt.box([-1, -1], [1, 1])
TRAINER = apt.Trainer(epochs=3, batch=30, warmup=5)
MDN = apt.MDN(1)
GRU = apt.GRU(6)


def gappy(rng, thetas):
    """Vectors of four numbers, of which one in four is missing; never all."""
    x = np.repeat(thetas, 2, axis=1) + 0.1 * rng.standard_normal((len(thetas), 4))
    gaps = rng.random(x.shape) < 0.25
    gaps[:, 0] = False
    return np.where(gaps, np.nan, x)


def unequal(longest):
    """Series of 1 to 8 steps, padded to `longest`."""

    def simulate(rng, thetas):
        x = thetas[:, None] + 0.1 * rng.standard_normal((len(thetas), LONGEST, 2))
        steps = rng.integers(1, LONGEST + 1, len(thetas))
        x[np.arange(LONGEST) >= steps[:, None]] = np.nan
        return np.pad(x, ((0, 0), (0, longest - LONGEST), (0, 0)), constant_values=np.nan)

    return simulate


def infer(simulator, x_o, method, **settings):
    settings = {"rounds": 1, "simulations": 100, "progress": False, "missing": True} | settings
    return apt.infer(apt.BatchSimulator(simulator, chunk=50), PRIOR, x_o, method=method, **settings)


@pytest.mark.parametrize(
    "method",
    [
        apt.APT(estimator=MDN, loss=apt.Atomic(5), trainer=TRAINER, embedding=apt.MLP((5,))),
        apt.APT(estimator=MDN, loss=apt.GaussianProposal(), trainer=TRAINER, embedding=apt.MLP((5,))),
        apt.SNPEA(estimator=MDN, trainer=TRAINER, embedding=apt.MLP((5,))),
        apt.SNPEB(estimator=MDN, trainer=TRAINER, embedding=apt.MLP((5,))),
        apt.NPE(estimator=MDN, trainer=TRAINER, embedding=apt.MLP((5,))),
    ],
    ids=["atomic", "gaussian proposal", "snpe-a", "snpe-b", "npe"],
)
def test_every_loss_trains_embedding_and_imputed_values(method):
    x_o = np.array([0.2, np.nan, -0.3, np.nan])
    run = infer(gappy, x_o, method, rounds=1 if method.one_round else 2)
    assert np.isnan(run.simulations.x).any()
    assert run.simulations.done.all()
    embedding = run.posterior.estimator.embedding  # pyright: ignore[reportAttributeAccessIssue]
    # What stands in for missing entries is learned; the first entry never is missing.
    np.testing.assert_array_equal(np.asarray(embedding.value)[0] != 0, [False, True, True, True])
    finite = [bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(eqx.filter(embedding, eqx.is_array))]
    assert all(finite)
    assert np.isfinite(run.posterior.log_prob(run.posterior.sample(50))).all()


def test_padding_to_another_length_trains_the_same_posterior():
    """Series padded to 8 steps and to 11: the same posterior, to rounding, at observations of any length."""
    method = apt.NPE(estimator=MDN, embedding=GRU, trainer=TRAINER)
    x_o = np.linspace(-0.5, 0.5, 10).reshape(5, 2)
    short, long = (infer(unequal(length), x_o, method).posterior for length in (LONGEST, LONGEST + 3))
    theta = PRIOR.sample(np.random.default_rng(0), 20)
    expected = short.log_prob(theta)
    np.testing.assert_allclose(long.log_prob(theta), expected, atol=1e-3)
    # Padded by hand, and longer than any simulation.
    padded = np.pad(x_o, ((0, 4), (0, 0)), constant_values=np.nan)
    np.testing.assert_allclose(short.given(padded).log_prob(theta), expected, atol=1e-5)
    changed = short.given(np.concatenate([x_o, np.ones((4, 2))])).log_prob(theta)
    assert np.abs(changed - expected).max() > 1e-3
    several = short.given(np.stack([padded, padded + 0.1]))
    np.testing.assert_allclose(several.log_prob(theta)[0], expected, atol=1e-5)


@pytest.mark.slow
def test_a_run_with_gaps_survives_in_its_file(tmp_path):
    embedding = apt.SetTransformer(width=4, blocks=1, heads=2, features=3)
    method = apt.NPE(estimator=MDN, embedding=embedding, trainer=TRAINER)
    x_o = np.array([[0.1, np.nan], [0.3, 0.2], [0.0, 0.4]])
    file = tmp_path / "gaps.apt"
    run = infer(unequal(LONGEST), x_o, method, file=file)
    again = apt.open(file)
    np.testing.assert_array_equal(again.simulations.x, run.simulations.x)
    assert np.isnan(again.simulations.x).any()
    theta = PRIOR.sample(np.random.default_rng(0), 5)
    np.testing.assert_array_equal(again.posterior.log_prob(theta), run.posterior.log_prob(theta))
    simulator = apt.BatchSimulator(unequal(LONGEST), chunk=50)
    longer = apt.resume(file, simulator, simulations=130, progress=False)
    assert longer.simulations.done.all()
    assert len(longer.simulations.x) == 130
    assert longer.posterior.given(np.ones((LONGEST + 2, 2))).missing


def test_scaling_counts_what_is_present():
    rng = np.random.default_rng(0)
    x = rng.normal([3.0, -20.0], [0.1, 7.0], (4000, 2))
    there = np.where(rng.random(x.shape) < 0.3, np.nan, x)
    scaling = fit_scaling(there)
    np.testing.assert_allclose(scaling.centre, np.nanmedian(there, axis=0))
    np.testing.assert_allclose(scaling.spread, fit_scaling(x).spread, rtol=5 * 1.17 / 2800**0.5)
    np.testing.assert_array_equal(np.isnan(scaling(there)), np.isnan(there))
    # Series of which the last steps were never observed, and a channel that never was.
    series = np.full((50, 6, 2), np.nan)
    series[:, :3, 0] = rng.normal(5, 2, (50, 3))
    scaling = fit_scaling(series)
    assert scaling.centre[0, 0] == pytest.approx(np.median(series[:, :3, 0]))
    assert (scaling.centre[0, 1], scaling.spread[0, 1]) == (0, 1)


def test_scaling_leaves_failed_rows_out_and_fills_up_with_zeros():
    x = np.arange(12.0).reshape(6, 2)
    done = np.array([True, True, True, False, True, False])
    np.testing.assert_array_equal(fit_scaling(x, done).centre, np.median(x[done], axis=0))
    scaled = fit_scaling(x)(x, 9)
    assert scaled.shape == (9, 2)
    np.testing.assert_array_equal(scaled[6:], 0)
    assert scaled.ctypes.data % 64 == 0


def test_what_a_simulation_with_gaps_is():
    assert judged(0, [1.0, np.nan], 0.0, missing=True).status is Status.DONE
    for x, missing, says in (
        ([1.0, np.nan], False, "NaN or infinity"),
        ([np.inf, np.nan], True, "infinity"),
        ([np.nan, np.nan], True, "nothing but NaN"),
        (np.zeros((0, 2)), False, "without entries"),
    ):
        outcome = judged(0, x, 0.0, missing=missing)
        assert outcome.status is Status.INVALID
        assert says in outcome.reason
    simulator = apt.JaxSimulator(lambda key, theta: theta)
    assert as_simulator(simulator, missing=True).missing
    assert not simulator.missing  # the user's own object is left alone


class Wrong(eqx.Module):
    """Its output is no vector."""

    def __call__(self, x):
        return jnp.sum(x)


SERIES = np.zeros((4, 2))


def constant(shape):
    return lambda rng, thetas: np.zeros((len(thetas), *shape))


def ragged(rng, theta):
    return np.zeros((1 + rng.integers(5), 2))


REFUSED = {
    "rank": (
        constant((2, 2, 2, 2)),
        np.zeros((2, 2, 2, 2)),
        {},
        ValueError,
        "no default embedding for 4 axes",
    ),
    "output": (
        constant((2,)),
        [0, 0],
        {"method": apt.NPE(embedding=Wrong())},
        ValueError,
        r"Wrong must return a vector for one x of shape \(2,\); it returned shape \(\)",
    ),
    "output with mask": (
        constant((2,)),
        [0, 0],
        {"method": apt.NPE(embedding=Wrong()), "missing": True},
        ValueError,
        r"x of shape \(4,\) \(x and, beside it",
    ),
    "empty set": (
        constant((3, 1)),
        np.zeros((0, 1)),
        {"method": apt.NPE(embedding=apt.DeepSet())},
        ValueError,
        r"x_o has no entries, its shape is \(0, 1\)",
    ),
    "nothing observed": (constant((3,)), [np.nan] * 3, {"missing": True}, ValueError, "nothing but NaN"),
    "infinity": (
        constant((3,)),
        [1, np.inf, 1],
        {"missing": True},
        ValueError,
        "must not hold infinity",
    ),
    "gaps undeclared": (constant((3,)), [1, np.nan, 1], {}, ValueError, "missing data, say missing=True"),
    "another length undeclared": (
        constant((3, 1)),
        np.zeros((2, 1)),
        {"method": apt.NPE(embedding=apt.DeepSet())},
        ValueError,
        r"x_o has shape \(2, 1\), but the simulator returns x of shape \(3, 1\)",
    ),
    "too long": (
        constant((3, 1)),
        np.zeros((5, 1)),
        {"method": apt.NPE(), "missing": True},
        ValueError,
        r"x_o has length 5, but the simulator returns at most 3.* take any length",
    ),
    "no flag": (constant((3,)), [1, 1, 1], {"missing": "yes"}, TypeError, "missing must be True or False"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_advice(case):
    simulator, x_o, settings, error, says = REFUSED[case]
    settings = {"missing": False, "method": apt.NPE()} | settings
    with pytest.raises(error, match=f"(?s){says}"):
        infer(simulator, x_o, **settings)


def test_unequal_series_without_padding_are_refused():
    with pytest.raises(apt.SimulationError, match=r"changed the shape .* padded with NaN .* missing=True"):
        apt.infer(ragged, PRIOR, SERIES, method=apt.NPE(), simulations=30, progress=False, missing=True)
