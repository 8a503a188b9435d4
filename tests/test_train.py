"""The training loop: fixed validation rows, restored best weights, skipped steps, equal bits, one trace."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aptinfer.epochs import Layout, neighbours
from aptinfer.errors import TrainingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import member
from aptinfer.estimators.mdn import LOG_DIAGONAL, MDN
from aptinfer.keys import Key
from aptinfer.methods.losses import Atomic, Loss, MaximumLikelihood
from aptinfer.protocols import Simulations
from aptinfer.rows import TrainingRows, training_rows
from aptinfer.train import Trainer

pytestmark = pytest.mark.usefixtures("strict")

CAPACITY = 300
NOISE = 0.5
TRAINER = Trainer(batch=40, learning_rate=0.02, patience=5, epochs=60, warmup=10, average=0.5)


class Identity(eqx.Module):
    """An embedding with nothing to learn."""

    def __call__(self, x):
        return x


def start(members: int, *, seed: int = 0) -> Embedded:
    """One-component MDNs on raw x, weights made on the host: z and x have one dimension."""
    shapes = eqx.filter_eval_shape(lambda: MDN(1).build(jax.random.key(0), 1, 1))
    rng = np.random.default_rng(seed)
    arrays = [
        np.float32(0.3 * rng.normal(size=(members, 2, 1))),
        np.float32(0.3 * rng.normal(size=(members, 2))),
    ]
    return Embedded(Identity(), eqx.tree_at(lambda h: (h.linear.weight, h.linear.bias), shapes, arrays))


def simulate(count: int, *, seed: int = 1) -> Simulations:
    """z ~ N(0, 1), x ~ N(z, 1/4): the posterior is N(0.8 x, 0.2)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(CAPACITY, 1))[:count]
    x = z + NOISE * rng.normal(size=(CAPACITY, 1))[:count]
    zeros = np.zeros(count, int)
    return Simulations(z, z, zeros, zeros, x, np.ones(count, bool))


def rows_of(simulations: Simulations, *, contrasts=False, trainer=TRAINER) -> TrainingRows:
    log_prior = -0.5 * simulations.value[:, 0] ** 2 - 0.5 * np.log(2 * np.pi)
    rng = np.random.default_rng(5)
    return training_rows(
        simulations,
        log_prior,
        None,
        capacity=CAPACITY,
        validates=trainer.validates,
        contrasts=contrasts,
        rng=rng,
    )


def test_a_row_keeps_its_weight_in_every_batch():
    simulations, weights = simulate(40), np.linspace(0.5, 2, 40)
    settings = {"capacity": CAPACITY, "validates": TRAINER.validates, "contrasts": False}
    rng = np.random.default_rng(0)
    rows = training_rows(simulations, np.zeros(40), None, weights=weights, rng=rng, **settings)
    index = np.array([7, 0, 39])
    batch = rows.batch(index, index[:, None])  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(batch.weight, weights[index], rtol=1e-6)
    np.testing.assert_array_equal(rows_of(simulations).batch(index, index[:, None]).weight, 1)  # pyright: ignore


def leaves(estimator: Embedded) -> list[np.ndarray]:
    return [np.asarray(a) for a in jax.tree.leaves(eqx.filter(estimator, eqx.is_array))]


def same_bits(first: Embedded, second: Embedded) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(second), strict=True))


def gaussian_at(estimator: Embedded, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a one-dimensional, one-component MDN, from its weights alone."""
    linear = estimator.head.linear  # pyright: ignore[reportAttributeAccessIssue]
    out = np.float64(x).reshape(-1, 1) @ np.float64(linear.weight).T + np.float64(linear.bias)
    return out[:, 0], np.exp(-LOG_DIAGONAL * np.tanh(out[:, 1] / LOG_DIAGONAL))


def log_density(estimator: Embedded, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    mean, sd = gaussian_at(estimator, x)
    return -0.5 * ((z - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


# Which rows, which candidates.


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_validation_rows_are_fixed_by_their_number(share):
    trainer = Trainer(validation=share)
    long = trainer.validates(np.arange(1000))
    assert long.mean() == pytest.approx(share)
    for count in (1, 7, 100, 999):
        np.testing.assert_array_equal(trainer.validates(np.arange(count)), long[:count])
    some = np.array([3, 999, 4, 19, 9])
    np.testing.assert_array_equal(trainer.validates(some), long[some])


def test_rows_never_change_sides_when_more_arrive():
    few, many = rows_of(simulate(100)), rows_of(simulate(280))
    sides = [
        (set(np.asarray(r.train[: int(r.n_train)])), set(np.asarray(r.validation[: int(r.n_validation)])))
        for r in (few, many)
    ]
    assert sides[0][0] < sides[1][0]
    assert sides[0][1] < sides[1][1]
    assert sides[1][0] | sides[1][1] == set(range(280))
    assert not sides[1][0] & sides[1][1]


@pytest.mark.parametrize(("batch", "atoms"), [(7, 1), (7, 3), (10, 10)])
def test_candidates_start_with_the_row_and_never_repeat(batch, atoms):
    near = neighbours(batch, atoms)
    assert near.shape == (batch, atoms)
    np.testing.assert_array_equal(near[:, 0], np.arange(batch))
    assert all(len(set(row)) == atoms for row in near)
    assert set(near.ravel()) == set(range(batch))
    # Every row is a contrast as often as every other.
    assert (np.bincount(near.ravel(), minlength=batch) == atoms).all()


def test_failed_rows_are_contrasts_or_nothing():
    simulations = simulate(200)
    done = np.arange(200) % 3 > 0
    simulations = simulations._replace(done=done)
    alone, contrasted = (rows_of(simulations, contrasts=c) for c in (False, True))
    assert set(np.asarray(alone.train[: int(alone.n_train)])) <= set(np.flatnonzero(done))
    assert int(contrasted.n_train) + int(contrasted.n_validation) == 200
    assert float(alone.share_done) == 1
    assert float(contrasted.share_done) == pytest.approx(done[~TRAINER.validates(np.arange(200))].mean())


def test_weights_survive_their_vector():
    """Scalars, many arrays of one shape, and members along a first axis."""
    rng, members = np.random.default_rng(0), 2
    shapes = [(3, 2), (), (4,), *[(2, 2)] * 11, (3, 2), (4,), ()]
    arrays = {f"{i:02}": np.float32(rng.normal(size=(members, *s))) for i, s in enumerate(shapes)}
    layout = Layout.of(arrays)
    vectors = layout.vectors(arrays)
    assert vectors.shape == (members, 12 + 2 + 8 + 44)
    jax.tree.map(np.testing.assert_array_equal, layout.arrays(vectors), arrays)
    again = jax.vmap(lambda vector: layout.vector(layout.arrays(vector)))(jnp.asarray(vectors))
    np.testing.assert_array_equal(again, vectors)
    # Matrices are decayed, and nothing else.
    marked = layout.arrays(layout.decayed())
    assert all((np.asarray(marked[name]) == (a.ndim == 3)).all() for name, a in arrays.items())


# Training.


@pytest.mark.parametrize("members", [1, 3])
def test_training_finds_the_linear_gaussian_posterior(members):
    trained, history = TRAINER(Key((1,)), start(members), MaximumLikelihood(), rows_of(simulate(280)))
    fits = [gaussian_at(member(trained, m), np.array([-1.0, 0.0, 1.0])) for m in range(members)]
    for mean, sd in fits:
        # About 250 rows: coefficients are known to 0.45 / sqrt(250), widths to 1 / sqrt(500).
        np.testing.assert_allclose(mean, [-0.8, 0.0, 0.8], atol=5 * 0.45 / 250**0.5)
        np.testing.assert_allclose(np.log(sd), np.log(0.2) / 2, atol=6 / 500**0.5)
    assert history.training_loss.shape == history.validation_loss.shape == (history.epochs, members)
    assert history.best_loss.shape == (members,)
    assert history.skipped_steps == 0
    if members > 1:
        assert len({float(mean[0]) for mean, _ in fits}) == members


@pytest.mark.parametrize(("members", "atoms"), [(3, 1), (1, 6), (1, 35)])
def test_the_best_weights_come_back(members, atoms):
    """The validation loss of what is returned, computed from its weights alone, is the best one seen."""
    loss = MaximumLikelihood() if atoms == 1 else Atomic(atoms)
    simulations = simulate(280)
    rows = rows_of(simulations, contrasts=atoms > 1)
    trained, history = TRAINER(Key((2,)), start(members), loss, rows)
    np.testing.assert_array_equal(history.best_loss, np.nanmin(history.validation_loss, axis=0))
    assert (history.best_loss < history.validation_loss[0]).all()
    held_back = np.asarray(rows.validation[: int(rows.n_validation)])
    assert len(held_back) == 28
    z, x = simulations.value[:, 0], simulations.x[:, 0]
    for m in range(members):
        estimator, losses = member(trained, m), []
        for i, row in enumerate(held_back):
            # The row and those that follow it in the fixed order, none twice.
            offered = held_back[(i + np.arange(min(atoms, 28))) % 28]
            log_q = log_density(estimator, np.repeat(x[row], len(offered)), z[offered])
            ratio = np.exp(log_q + 0.5 * z[offered] ** 2)
            losses.append(-log_q[0] if atoms == 1 else -np.log(ratio[0] / ratio.sum()))
        assert history.best_loss[m] == pytest.approx(np.mean(losses), abs=1e-4)


def test_equal_keys_give_equal_bits():
    rows = rows_of(simulate(280))
    first, again, other = (TRAINER(Key((s,)), start(1), MaximumLikelihood(), rows)[0] for s in (3, 3, 4))
    assert same_bits(first, again)
    assert not same_bits(first, other)


@dataclass(frozen=True)
class Poisoned(MaximumLikelihood):
    """NaN for every batch that holds a row with a huge x: in the value, or in the gradient alone."""

    gradient_only: bool = False

    def __call__(self, estimator, batch):
        losses = super().__call__(estimator, batch)
        bad = jnp.any(batch.x > 50)
        if self.gradient_only:
            # The square root of zero: its value is zero, its slope infinite times zero.
            return losses + jnp.sqrt(jnp.where(bad, 0.0, 1.0) * losses**2)
        return losses * jnp.where(bad, jnp.nan, 1.0)


@pytest.mark.parametrize("gradient_only", [False, True])
def test_steps_that_are_not_finite_are_skipped_and_counted(gradient_only):
    simulations = simulate(280)
    simulations.x[0] = 100.0  # a training row
    loss, rows = Poisoned(gradient_only), rows_of(simulations)
    trained, history = TRAINER(Key((5,)), start(1), loss, rows)
    # 252 training rows make six batches of 40: at most one a epoch is bad, most often one is.
    assert 0.5 * history.epochs < history.skipped_steps <= history.epochs
    assert all(np.isfinite(a).all() for a in leaves(trained))
    assert np.isfinite(history.training_loss).all()
    # Learning went on all the same.
    mean, _ = gaussian_at(member(trained, 0), np.array([1.0]))
    assert mean == pytest.approx(0.8, abs=0.2)


def test_nothing_but_nan_is_an_error():
    simulations = simulate(280)
    simulations.x[:] = 100.0
    with pytest.raises(TrainingError, match=r"never reached a finite validation loss.*learning_rate=1e-4"):
        TRAINER(Key((6,)), start(1), Poisoned(), rows_of(simulations))


def test_data_of_failed_rows_are_never_used():
    simulations = simulate(280)
    failed = np.arange(280) % 4 == 1
    simulations = simulations._replace(done=~failed)
    simulations.x[failed] = 0.0
    huge = simulations._replace(x=np.where(failed[:, None], np.nan, simulations.x))
    moved = simulations._replace(value=np.where(failed[:, None], 2.5, simulations.value))
    first, other, contrast = (
        TRAINER(Key((7,)), start(1), Atomic(6), rows_of(s, contrasts=True))
        for s in (simulations, huge, moved)
    )
    assert same_bits(first[0], other[0])
    np.testing.assert_array_equal(first[1].validation_loss, other[1].validation_loss)
    # Their parameters are: as contrasts.
    assert not same_bits(first[0], contrast[0])


@dataclass(frozen=True)
class Counted(Loss):
    """Counts how often Python runs it: once per trace, never per step."""

    inner: MaximumLikelihood
    calls: ClassVar[list[int]] = []

    def __call__(self, estimator, batch):
        self.calls.append(1)
        return self.inner(estimator, batch)


def test_more_rows_of_the_same_capacity_retrace_nothing():
    loss = Counted(MaximumLikelihood())
    seen: list[int] = []
    listen: Callable = lambda progress: seen.append(progress.epoch)  # noqa: E731
    _, first = TRAINER(Key((8,)), start(1), loss, rows_of(simulate(150)), listen)
    traces = len(Counted.calls)
    assert 0 < traces < 10
    assert first.compile_seconds > 0
    assert seen == sorted(seen)
    assert seen[-1] == first.epochs
    for count in (200, 300):
        # Equal settings, not the same objects.
        _, history = TRAINER(
            Key((9,)), start(1, seed=count), Counted(MaximumLikelihood()), rows_of(simulate(count))
        )
        assert history.compile_seconds == 0
    assert len(Counted.calls) == traces


def test_rounds_before_the_last_wait_for_less_and_drop_nothing():
    """Without drops a training ends when its patience has run out once; a drop begins another wait."""
    data = rows_of(simulate(200))

    def training(early_patience: int | None, *, last: bool) -> tuple[int, int]:
        """Its epochs, and how many of them came after the best one."""
        trainer = Trainer(
            batch=40,
            learning_rate=0.02,
            epochs=400,
            average=0.5,
            drops=1,
            drop=1e-3,
            patience=12,
            early_patience=early_patience,
        )
        history = trainer(Key((1,)), start(1), MaximumLikelihood(), data, last=last)[1]
        return history.epochs, history.epochs - 1 - int(np.argmin(history.validation_loss))

    assert training(6, last=False)[1] == 6
    epochs, waited = training(99, last=False)
    assert waited == 12
    assert training(6, last=True) == training(None, last=False)
    assert training(6, last=True)[0] >= epochs + 12


def test_every_round_may_have_an_epoch_limit_of_its_own():
    """All of them by one program."""
    rows = rows_of(simulate(80))
    trainer = Trainer(batch=40, learning_rate=0.02, epochs=(5, 2, 3), average=0.5)
    histories = [
        trainer(Key((1,)), start(1), MaximumLikelihood(), rows, number=number)[1] for number in (0, 1, 2, 7)
    ]
    assert [history.epochs for history in histories] == [5, 2, 3, 3]
    assert {history.stop_reason for history in histories} == {"epoch limit"}
    assert [history.compile_seconds for history in histories[1:]] == [0, 0, 0]
    np.testing.assert_array_equal(histories[1].training_loss, histories[0].training_loss[:2])


def test_an_epoch_limit_for_no_round_is_refused():
    with pytest.raises(ValueError, match="Trainer epochs must be a number, or a tuple with one for each"):
        Trainer(epochs=())
    with pytest.raises(ValueError, match="Trainer epochs must be a whole number of at least 1, got 0"):
        Trainer(epochs=(10, 0))


def test_early_stopping_says_so():
    rows = rows_of(simulate(280))
    _, stopped = TRAINER(Key((1,)), start(1), MaximumLikelihood(), rows)
    assert stopped.stop_reason == "converged"
    assert stopped.epochs < TRAINER.most_epochs
    # Patience ran out once per drop allowed and once more.
    best_epoch = int(np.argmin(stopped.validation_loss[:, 0])) + 1
    assert stopped.epochs - best_epoch >= TRAINER.patience


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 1}, "batch must be a whole number of at least 2, got 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"validation": 0.7}, r"validation must be a share in \(0, 0.5\], got 0.7"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Trainer(**settings)


def test_programs_are_let_go_before_a_process_runs_out_of_memory_maps(monkeypatch):
    from aptinfer import programs

    kept = {"a program": object()}
    monkeypatch.setattr(programs, "_PROGRAMS", kept)
    assert not programs.make_room()
    assert kept
    monkeypatch.setattr(programs, "MOST_MAPS", 0.0)
    assert programs.make_room()
    assert not kept
