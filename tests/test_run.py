"""A whole run: same seed, same bits; events, interrupts and stopping; a quiet guest in the user's process."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import aptinfer as apt
from aptinfer.caching import cache_folder
from aptinfer.posteriors import DirectPosterior
from aptinfer.protocols import Rows, Status
from aptinfer.sequential import RoundFinished, RoundStarted, Simulated, Trained

TRAINER = apt.Trainer(epochs=60, patience=10, learning_rate=5e-3, warmup=10)
METHOD = apt.APT(estimator=apt.MDN(components=2), embedding=apt.MLP((16,)), trainer=TRAINER)
SIMULATIONS = 200


def simulate(rng, theta):
    return theta + 0.2 * rng.standard_normal(2)


def infer(simulator: Any = simulate, **settings: Any) -> apt.Run:
    settings = {"method": METHOD, "rounds": 2, "simulations": SIMULATIONS, "progress": False} | settings
    return apt.infer(simulator, apt.box([-1, -1], [1, 1]), [0.2, 0.3], **settings)


@pytest.fixture(scope="module")
def listened():
    events: list[Any] = []
    run = infer(listen=events.append)
    return run, events


@pytest.fixture(scope="module")
def run(listened):
    return listened[0]


def assert_same_bits(one: apt.Run, two: apt.Run):
    for a, b in zip(one.simulations, two.simulations, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    for a, b in zip(one.rounds, two.rounds, strict=True):
        assert a.history
        assert b.history
        np.testing.assert_array_equal(a.history.validation_loss, b.history.validation_loss)
        np.testing.assert_array_equal(a.posterior.sample(100), b.posterior.sample(100))
        assert isinstance(a.posterior, DirectPosterior)
        assert isinstance(b.posterior, DirectPosterior)
        leaves = zip(
            jax.tree.leaves(a.posterior.estimator), jax.tree.leaves(b.posterior.estimator), strict=True
        )
        assert all(np.array_equal(p, q) for p, q in leaves if hasattr(p, "shape"))


@dataclass(frozen=True)
class Counted(apt.Atomic):
    """Counts how often Python runs it: once per trace, never per step."""

    calls: ClassVar[list[int]] = []

    def __call__(self, estimator, batch):
        self.calls.append(1)
        return super().__call__(estimator, batch)


def test_ten_rounds_are_traced_no_more_often_than_two():
    method = apt.APT(
        loss=Counted(4),
        estimator=apt.MDN(components=1),
        embedding=apt.Flatten(),
        trainer=apt.Trainer(batch=10, epochs=1),
    )
    traces = []
    for rounds in (2, 10):
        Counted.calls.clear()
        infer(method=method, rounds=rounds, simulations=20)
        traces.append(len(Counted.calls))
    assert 0 < traces[1] <= traces[0]


def test_same_seed_same_bits(run):
    assert_same_bits(run, infer())


def test_other_seed_other_bits(run):
    other = infer(seed=1, stop=lambda finished: True)
    first = run.simulations.round == 0
    assert np.abs(other.simulations.theta - run.simulations.theta[first]).min() > 0
    noise = run.simulations.x[first] - run.simulations.theta[first]
    assert np.abs((other.simulations.x - other.simulations.theta) - noise).min() > 0
    assert not np.array_equal(other.posterior.sample(100), run.rounds[0].posterior.sample(100))


def test_neither_the_order_nor_the_grouping_of_simulations_changes_a_bit(run):
    def shuffling(simulator, seed, rows):
        order = np.random.default_rng(0).permutation(len(rows.index))
        for part in np.array_split(order, 7):
            yield from simulator(seed, Rows(rows.index[part], rows.theta[part]))

    assert_same_bits(run, infer(executor=shuffling))


def test_where_simulations_run_does_not_change_a_bit(run):
    pool = apt.Processes(2)
    other = infer(lambda rng, theta: theta + 0.2 * rng.standard_normal(2), executor=pool)
    assert_same_bits(run, other)
    assert not pool._pool.workers, "the run ends the workers that it started"
    assert run.failures == ()


def test_what_a_run_holds(run):
    simulations = run.simulations
    assert len(run.rounds) == 2
    assert run.posterior is run.rounds[-1].posterior
    assert not run.interrupted
    assert simulations.theta.shape == simulations.x.shape == (2 * SIMULATIONS, 2)
    assert np.array_equal(simulations.round, np.repeat([0, 1], SIMULATIONS))
    assert simulations.done.all()
    assert (np.abs(simulations.theta) < 1).all()
    assert repr(run) == "Run(2 of 2 rounds; Posterior(theta_1, theta_2; at one observation))"
    assert "theta_1" in run.summary()
    assert run == run


def test_the_second_round_is_closer(run):
    theta, number = run.simulations.theta, run.simulations.round
    distance = np.linalg.norm(theta - [0.2, 0.3], axis=1)
    assert distance[number == 1].mean() < distance[number == 0].mean()


def test_events_come_in_order(listened):
    run, events = listened
    kinds = [type(event) for event in events]
    shortened = [k for i, k in enumerate(kinds) if i == 0 or k is not kinds[i - 1]]
    assert shortened == 2 * [RoundStarted, Simulated, Trained, RoundFinished]
    assert [e.number for e in events] == sorted(e.number for e in events)
    assert tuple(e for e in events if isinstance(e, RoundFinished)) == run.rounds
    for number in (0, 1):
        done = [e.done + e.failed for e in events if isinstance(e, Simulated) and e.number == number]
        assert done == sorted(done)
        assert done[-1] == SIMULATIONS
        epochs = [e.progress.epoch for e in events if isinstance(e, Trained) and e.number == number]
        assert epochs == sorted(set(epochs))
        assert epochs[-1] == run.rounds[number].history.epochs


class Interrupted:
    """A user who presses Ctrl-C during call number `at`."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, rng, theta):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return simulate(rng, theta)


def test_an_interrupt_keeps_the_finished_round(run):
    with pytest.warns(
        UserWarning, match="interrupted in round 2 of 2; the result is that of round 1"
    ) as caught:
        stopped = infer(Interrupted(at=SIMULATIONS + 50))
    assert stopped.interrupted
    assert len(stopped.rounds) == 1
    assert "interrupted" in repr(stopped)
    np.testing.assert_array_equal(stopped.posterior.sample(50), run.rounds[0].posterior.sample(50))
    assert stopped.simulations.done[:SIMULATIONS].all()
    assert Path(caught[0].filename).name == "test_run.py", "the warning must point to the user's line"


def test_an_interrupt_of_the_first_round_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        infer(Interrupted(at=50))


def test_an_interrupt_from_a_listener_keeps_the_finished_round():
    def listen(event):
        if isinstance(event, Trained) and event.number == 1:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted in round 2"):
        assert len(infer(listen=listen).rounds) == 1


def test_stop_ends_the_run():
    asked = []

    def stop(finished):
        asked.append(finished.number)
        return True

    early = infer(stop=stop)
    assert asked == [0]
    assert len(early.rounds) == 1
    assert not early.interrupted


def test_when_settled(run):
    first, second = run.rounds
    easy, strict = apt.WhenSettled(tolerance=1e6, rounds=1), apt.WhenSettled(tolerance=1e-9, rounds=1)
    assert [easy(first), easy(second)] == [False, True]
    assert [strict(first), strict(second)] == [False, False]
    patient = apt.WhenSettled(tolerance=1e6, rounds=2)
    assert [patient(first), patient(second), patient(second)] == [False, False, True]
    assert not easy(first), "a new run starts anew"
    assert repr(patient) == "WhenSettled(tolerance=1000000.0, rounds=2, draws=2000)"


@pytest.mark.parametrize("progress", [False, True])
def test_nothing_is_printed_off_a_terminal(capfd, monkeypatch, progress):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    infer(progress=progress, stop=lambda finished: True)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def fragile(rng, theta):
    if theta[0] > 0.8:
        raise FloatingPointError("diverged")
    return np.full(2, np.nan) if theta[1] > 0.8 else simulate(rng, theta)


@pytest.mark.parametrize("loss", [None, apt.Atomic(atoms=10)])
def test_a_run_goes_on_when_some_simulations_fail(loss):
    method = apt.APT(loss=loss, estimator=METHOD.estimator, embedding=METHOD.embedding, trainer=TRAINER)
    run = infer(fragile, method=method)
    theta, done = run.simulations.theta, run.simulations.done
    assert np.array_equal(done, (theta <= 0.8).all(axis=1))
    assert 10 < (~done[:SIMULATIONS]).sum() < 80
    for number, finished in enumerate(run.rounds):
        failed = (~done[run.simulations.round == number]).sum()
        assert finished.failed == failed
        assert finished.notes["share_failed"] == failed / SIMULATIONS
    outcomes = {failure.index: failure for failure in run.failures}
    for index in np.flatnonzero(~done).tolist():
        raised = theta[index, 0] > 0.8
        assert outcomes[index].status is (Status.RAISED if raised else Status.INVALID)
        assert ("diverged" if raised else "NaN") in outcomes[index].reason
    assert np.isfinite(run.posterior.log_prob(run.posterior.sample(100))).all()


SHAPES = {
    "series (time, channel)": (lambda rng, theta: theta + rng.standard_normal((5, 2)), np.zeros((5, 2))),
    "image (channel, height, width)": (
        lambda rng, theta: (theta[0] + rng.standard_normal((1, 3, 3))).astype(np.float32),
        np.zeros((1, 3, 3)),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_data_of_any_shape(shape):
    simulator, x_o = SHAPES[shape]
    method = apt.NPE(estimator=METHOD.estimator, embedding=apt.Flatten(), trainer=TRAINER)
    run = apt.infer(
        simulator, apt.box([-1, -1], [1, 1]), x_o, method=method, simulations=SIMULATIONS, progress=False
    )
    event = np.shape(x_o) or (1,)
    assert run.simulations.x.shape == (SIMULATIONS, *event)
    assert run.posterior.given(x_o).sample(10).shape == (10, 2)
    assert run.posterior.given(np.zeros((3, *event))).sample(10).shape == (3, 10, 2)


@pytest.mark.parametrize(
    "simulator",
    [
        apt.JaxSimulator(lambda key, theta: theta, chunk=64),
        apt.BatchSimulator(lambda rng, theta: theta, chunk=64),
    ],
    ids=["JaxSimulator", "BatchSimulator"],
)
def test_simulators_get_exactly_the_theta_that_is_kept(simulator):
    run = infer(simulator)
    np.testing.assert_array_equal(run.simulations.x, run.simulations.theta)


def test_settings_of_jax_are_left_alone():
    def values():
        found = jax.config.values  # pyright: ignore[reportAttributeAccessIssue]
        return {name: value for name, value in found.items() if name != "jax_compilation_cache_dir"}

    before = values()
    infer(stop=lambda finished: True)
    assert values() == before


# The user's process: other settings of JAX, other homes.

GUEST = """
    import numpy as np, jax
    {setup}
    import aptinfer as apt
    values = lambda: {{k: v for k, v in jax.config.values.items() if k != "jax_compilation_cache_dir"}}
    before = values()
    run = apt.infer(
        lambda rng, theta: theta + 0.2 * rng.standard_normal(2), apt.box([-1, -1], [1, 1]), [0.2, 0.3],
        method=apt.APT(estimator=apt.MDN(components=2), embedding=apt.Flatten(),
                       trainer=apt.Trainer(epochs=20, patience=5, batch=50)),
        rounds={rounds}, simulations=100,
    )
    assert np.isfinite(run.posterior.log_prob(run.posterior.sample(100))).all()
    assert values() == before, "the user's settings were changed"
    print(jax.config.jax_compilation_cache_dir)
"""
CACHE_ONLY = """
    import jax
    {setup}
    from aptinfer.caching import enable_compilation_cache
    enable_compilation_cache()
    print(jax.config.jax_compilation_cache_dir)
"""


def cache_of(program: str, environment: dict[str, str], **settings: Any) -> str:
    """Run the program in a process of its own; the folder that JAX caches in afterwards."""
    code = textwrap.dedent(program).format(**settings)
    inherited = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    found = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-W", "error::RuntimeWarning", "-c", code],
        capture_output=True,
        text=True,
        env=inherited | environment,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stderr == ""
    return found.stdout.strip()


def test_double_precision_and_a_home_that_cannot_be_written():
    setup = 'jax.config.update("jax_enable_x64", True)'
    assert cache_of(GUEST, {"XDG_CACHE_HOME": "/proc/nope"}, setup=setup, rounds=2) == "None"


def test_another_default_generator_and_a_cache_of_the_users_own(tmp_path):
    setup = 'jax.config.update("jax_default_prng_impl", "rbg")'
    own = str(tmp_path / "own")
    assert cache_of(GUEST, {"JAX_COMPILATION_CACHE_DIR": own}, setup=setup, rounds=1) == own


def test_our_cache_is_in_the_users_cache_folder_unless_switched_off(tmp_path):
    home = {"XDG_CACHE_HOME": str(tmp_path)}
    assert cache_of(CACHE_ONLY, home, setup="").startswith(
        str(tmp_path / "aptinfer" / "compiled" / "jaxlib-")
    )
    off = 'jax.config.update("jax_enable_compilation_cache", False)'
    assert cache_of(CACHE_ONLY, home, setup=off) == "None"


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "aptinfer"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "aptinfer"
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_folder() is None, "a user without a home must not get a folder named ~"
