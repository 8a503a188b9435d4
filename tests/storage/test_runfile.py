"""The run file: what is in it, who may write to it, and what is refused."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from runs import (
    METHOD,
    SIMULATIONS,
    TRAINER,
    Interrupted,
    assert_same_bits,
    assert_sound,
    infer,
    interrupt,
    interrupted_everywhere,
    simulate,
)

import aptinfer as apt
from aptinfer.protocols import Outcome, Status, batched
from aptinfer.storage import schema
from aptinfer.storage.runfile import RunFile, RunFileReader


def test_a_run_with_a_file_has_the_bits_of_one_without(plain, finished):
    run = apt.open(finished)
    assert_same_bits(plain, run)
    assert not run.interrupted
    assert run.summary().partition("Rounds")[0] == plain.summary().partition("Rounds")[0]
    assert sorted(path.name for path in finished.parent.iterdir()) == ["run.apt"]
    assert_sound(finished)


def test_interrupted_at_every_stage_the_bits_are_the_same(plain, tmp_path):
    path = tmp_path / "run.apt"
    interrupted_everywhere(path)
    assert len(apt.open(path).rounds) == 2
    run = apt.resume(path, simulate, progress=False)
    assert_same_bits(plain, run)
    assert_sound(path)


def test_simulations_in_the_file_are_never_run_again(plain, tmp_path):
    path, calls = tmp_path / "run.apt", []

    def counted(rng, theta):
        calls.append(theta.tobytes())
        if len(calls) == 2 * SIMULATIONS + 10:
            raise KeyboardInterrupt
        return simulate(rng, theta)

    with pytest.warns(UserWarning, match=r"interrupted in round 3.*apt\.resume\('.*run\.apt', simulator\)"):
        run = infer(path, simulator=counted)
    assert len(run.rounds) == 2
    assert RunFileReader(path).tally(2).done == 9  # what had arrived when the user pressed Ctrl-C
    assert_same_bits(plain, apt.resume(path, counted, progress=False))
    assert len(calls) == 3 * SIMULATIONS + 1
    assert len(set(calls)) == 3 * SIMULATIONS


def test_failures_are_kept_with_their_reasons(tmp_path):
    def fragile(rng, theta):
        if theta[0] > 0.6:
            raise ValueError("diverged")
        return None if theta[1] > 0.8 else simulate(rng, theta)

    path = tmp_path / "run.apt"
    plain = infer(simulator=fragile, rounds=1, simulations=60)
    with pytest.raises(Interrupted):
        infer(path, simulator=fragile, rounds=1, simulations=60, listen=interrupt("Trained", 0))
    run = apt.resume(path, fragile, progress=False)
    assert_same_bits(plain, run)
    assert [f[:3] for f in apt.open(path).failures] == [f[:3] for f in plain.failures]
    kinds = {Status.RAISED: "ValueError: diverged", Status.INVALID: "returned None"}
    assert {f.status for f in run.failures} == set(kinds)
    assert all(kinds[f.status] in f.reason for f in run.failures)
    assert run.rounds[0].failed == len(run.failures) > 5


def test_read_while_another_process_writes(tmp_path, plain):
    """The events arrive in the middle of the run; the reader is a process of its own."""
    path, seen = tmp_path / "run.apt", []
    code = (
        "import sys, aptinfer as apt\n"
        "run = apt.open(sys.argv[1])\n"
        "print(len(run.rounds), int(run.simulations.done.sum()), run.interrupted)\n"
    )

    def listen(event):
        if isinstance(event, apt.Simulated) and event.number == 1 and not seen:
            read = subprocess.run(
                [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
            )
            seen.append(read.stdout.split())

    assert_same_bits(plain, infer(path, listen=listen))
    assert seen == [["1", str(2 * SIMULATIONS), "True"]]


def test_without_a_write_ahead_log(tmp_path, plain, monkeypatch):
    monkeypatch.setattr(schema, "_file_system", lambda path: "nfs4")
    path = tmp_path / "run.apt"
    with pytest.raises(Interrupted):
        infer(path, listen=lambda event: (apt.open(path), interrupt("Trained", 1)(event)))
    assert not path.with_name("run.apt-wal").exists()
    assert_same_bits(plain, apt.resume(path, simulate, progress=False))


HOLD = """
import sys, time
from pathlib import Path
from aptinfer.storage.runfile import RunFile
file = RunFile(Path(sys.argv[1]))
print("holding", flush=True)
time.sleep(60)
"""


def test_a_second_writer_is_refused_and_a_dead_one_does_not_block(finished, tmp_path):
    path = tmp_path / "run.apt"
    shutil.copy(finished, path)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(apt.RunFileError, match=f"being written by process {holder.pid} on "):
            apt.resume(path, simulate, progress=False)
        assert len(apt.open(path).rounds) == 3
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert holder.stdout
        holder.stdout.close()
    assert path.with_name("run.apt-writer").exists()
    assert len(apt.resume(path, simulate, progress=False).rounds) == 3
    assert not path.with_name("run.apt-writer").exists()


def test_this_process_is_a_second_writer_too(tmp_path):
    path = tmp_path / "run.apt"

    def again(event):
        apt.resume(path, simulate, progress=False)

    with pytest.raises(apt.RunFileError, match=f"being written by process {os.getpid()} on "):
        infer(path, listen=again)


def test_by_another_name_it_is_still_one_file(finished, tmp_path):
    path, link = tmp_path / "run.apt", tmp_path / "latest.apt"
    link.symlink_to(path)
    shutil.copy(finished, path)
    with (
        RunFile(path),
        pytest.raises(apt.RunFileError, match=f"being written by process {os.getpid()} on "),
    ):
        apt.resume(link, simulate, progress=False)
    assert len(apt.resume(link, simulate, progress=False).rounds) == 3
    assert sorted(file.name for file in tmp_path.iterdir()) == ["latest.apt", "run.apt"]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_taken_away_from_its_run_is_noticed(how, tmp_path, plain):
    path, aside = tmp_path / "run.apt", tmp_path / "aside.apt"

    def listen(event):
        if isinstance(event, apt.Trained) and event.number == 1 and not aside.exists():
            path.rename(aside)
            if how == "replaced":
                path.write_bytes(aside.read_bytes())

    with pytest.raises(apt.RunFileError, match="was removed, renamed or replaced while") as caught:
        infer(path, listen=listen)
    assert caught.value.run is not None
    assert len(caught.value.run.rounds) == 1
    os.replace(aside, path)
    assert_same_bits(plain, apt.resume(path, simulate, progress=False))


def test_a_run_that_ends_while_somebody_reads_leaves_a_complete_file(tmp_path, plain):
    path, whole = tmp_path / "run.apt", tmp_path / "whole.apt"
    with contextlib.ExitStack() as reading:

        def listen(event):
            if isinstance(event, apt.Trained) and event.number == 2 and not reader:
                reader.append(reading.enter_context(closing(schema.connect(path, write=False))))

        reader = []
        infer(path, listen=listen)
        shutil.copy(path, whole)  # without the log beside it
    assert_same_bits(plain, apt.open(whole))


OTHERS = {
    "x_o": ({"x_o": [0.2, 0.4]}, r"x_o.values: \[0.2, 0.3\] in the file, \[0.2, 0.4\] now"),
    "seed": ({"seed": 1}, r"seed: 0 in the file, 1 now"),
    "rounds": ({"rounds": 4}, r"rounds: 3 in the file, 4 now\n.*apt\.resume"),
    "prior": (
        {"prior": apt.box([-1, -1], [1, 2])},
        r"prior.marginals.theta_2.high: 1.0 in the file, 2.0 now",
    ),
    "method": (
        {"method": apt.APT(estimator=apt.MDN(3), embedding=apt.MLP((8,)), trainer=TRAINER)},
        r"method.estimator.components: 2 in the file, 3 now",
    ),
    "simulator": (
        {"simulator": apt.BatchSimulator(lambda rng, theta: theta)},
        r"simulator.kind: 'FunctionSimulator' in the file, 'BatchSimulator' now",
    ),
    "stop": ({"stop": apt.WhenSettled()}, r"stops_by_rule: False in the file, True now"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_is_refused_with_the_difference(other, finished):
    settings, says = OTHERS[other]
    before = finished.read_bytes()
    with pytest.raises(apt.RunFileError, match=rf"(?s)holds another run:\n.*{says}"):
        infer(finished, **settings)
    assert finished.read_bytes() == before


def test_resume_refuses_another_prior_method_or_simulator(finished):
    for what in ("prior", "method"):
        with pytest.raises(apt.RunFileError, match=rf"(?s)begun with another {what}:\n.*{OTHERS[what][1]}"):
            apt.resume(finished, simulate, **OTHERS[what][0])
    with pytest.raises(apt.RunFileError, match=r"begun with another simulator:\n  simulator\.kind"):
        apt.resume(finished, apt.BatchSimulator(simulate))


def test_the_same_call_on_a_finished_file_just_reads_it(finished, plain):
    assert_same_bits(plain, infer(finished, simulator=lambda rng, theta: pytest.fail("nothing to simulate")))


def _not_a_run(tmp_path, finished):
    """Files that are no run, and what is said about them."""
    whole = finished.read_bytes()
    text, empty, cut, other, newer = (
        tmp_path / f"{n}.apt" for n in ("text", "empty", "cut", "other", "newer")
    )
    text.write_text("theta,x\n1,2\n" * 100)
    empty.touch()
    cut.write_bytes(whole[: len(whole) // 2])
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE mine (a)")
        db.commit()
    newer.write_bytes(whole)
    with closing(sqlite3.connect(newer)) as db:
        db.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    return {
        text: "no run file at all",
        empty: "not a run file",
        cut: "damaged",
        other: "not a run file of aptinfer",
        newer: rf"format {schema.FORMAT + 1}, .* up to {schema.FORMAT}.*newer version",
    }


def test_what_is_no_run_file_is_refused_and_left_as_it_is(tmp_path, finished):
    for path, says in _not_a_run(tmp_path, finished).items():
        before = path.read_bytes()
        for call in (apt.open, lambda p: apt.resume(p, simulate), infer):
            with pytest.raises(apt.RunFileError, match=says):
                call(path)
        assert path.read_bytes() == before
    with pytest.raises(apt.RunFileError, match="there is no such run file"):
        apt.open(tmp_path / "absent.apt")
    with pytest.raises(ValueError, match=r"folder .* does not exist"):
        infer(tmp_path / "absent" / "run.apt")
    with pytest.raises(ValueError, match="is a folder"):
        infer(tmp_path)
    with pytest.raises(apt.RunFileError, match="is not a file"):
        apt.open(os.devnull)
    with pytest.raises(TypeError, match="file must be the path"):
        infer(7)  # pyright: ignore[reportArgumentType]


def test_the_file_appears_with_its_specification_or_not_at_all(tmp_path, monkeypatch):
    def fails(draft, path):
        assert RunFileReader(draft).fact("specification")["seed"] == 0
        raise OSError("no power")

    monkeypatch.setattr(schema, "_published", fails)
    with pytest.raises(apt.RunFileError, match="cannot be made: no power"):
        infer(tmp_path / "run.apt")
    assert list(tmp_path.iterdir()) == []


class Mine(eqx.Module):
    """A user's own embedding."""

    linear: eqx.nn.Linear
    power: float

    def __call__(self, x):
        return jnp.tanh(self.linear(x)) ** self.power


def mine(seed: int) -> Mine:
    return Mine(eqx.nn.Linear(2, 4, key=jax.random.key(seed), dtype=jnp.float32), 1.0)


def test_what_is_the_users_own_is_passed_again_and_compared(tmp_path):
    path = tmp_path / "run.apt"
    prior = apt.Prior(a=st.uniform(-1, 2), b=lambda a: st.uniform(a - 1, 2))
    other = apt.Prior(a=st.uniform(-1, 2), b=lambda a: st.uniform(a - 1, 3))
    method = apt.NPE(estimator=apt.MDN(2), embedding=mine(0), trainer=TRAINER)
    settings = {"prior": prior, "method": method, "rounds": 1}
    plain = infer(**settings)
    with pytest.raises(Interrupted):
        infer(path, listen=interrupt("Trained", 0), **settings)
    with pytest.raises(apt.RunFileError, match=r"prior has functions of yours.*prior=\.\.\."):
        apt.resume(path, simulate)
    with pytest.raises(apt.RunFileError, match=r"Mine is your own.*pass it again: method=\.\.\."):
        apt.resume(path, simulate, prior=prior)
    with pytest.raises(apt.RunFileError, match=r"another prior:\n.*prior\.yours\.draws"):
        apt.resume(path, simulate, prior=other, method=method)
    with pytest.raises(apt.RunFileError, match=r"another method:\n.*method\.embedding\.fingerprint"):
        apt.resume(path, simulate, prior=prior, method=replace(method, embedding=mine(1)))
    again = apt.Prior(a=st.uniform(-1, 2), b=lambda a: st.uniform(a - 1, 2))
    assert_same_bits(plain, apt.resume(path, simulate, prior=again, method=method, progress=False))
    assert_same_bits(plain, apt.open(path, prior=again, method=method))


def test_rounds_and_simulations_can_be_added(finished, tmp_path, plain):
    path = tmp_path / "run.apt"
    shutil.copy(finished, path)
    with pytest.raises(ValueError, match="begun its round 3 already"):
        apt.resume(path, simulate, rounds=2)
    run = apt.resume(path, simulate, rounds=4, simulations=30, progress=False)
    assert np.bincount(run.simulations.round).tolist() == [SIMULATIONS] * 3 + [30]
    assert_same_bits(plain, apt.Run(run.problem, run.method, plain.plan, run.rounds[:3], plain.store))
    assert f"{3 * SIMULATIONS + 30} simulations in 4 rounds" in run.summary()
    assert len(apt.open(path).rounds) == 4


def test_simulations_are_added_to_the_only_round_of_npe(tmp_path):
    path = tmp_path / "run.apt"
    method = apt.NPE(estimator=apt.MDN(2), embedding=apt.MLP((8,)), trainer=TRAINER)
    first = infer(path, method=method, rounds=1)
    x = first.simulations.x
    with pytest.raises(ValueError, match="Give at least as many"):
        apt.resume(path, simulate, simulations=20)
    with pytest.raises(ValueError, match="one-round method"):
        apt.resume(path, simulate, rounds=2)
    more = apt.resume(path, simulate, simulations=60, progress=False)
    assert len(more.rounds) == 1
    np.testing.assert_array_equal(more.simulations.x[:SIMULATIONS], x)
    assert len(np.unique(more.simulations.theta, axis=0)) == 60
    assert not np.array_equal(more.posterior.sample(10), first.posterior.sample(10))


def test_a_rule_to_stop_is_asked_again_about_the_rounds_before(tmp_path):
    path, asked = tmp_path / "run.apt", []

    def rule(finished):
        asked.append(finished.number)
        return finished.number == 1

    with pytest.raises(Interrupted):
        infer(path, stop=rule, listen=interrupt("Trained", 1))
    with pytest.raises(ValueError, match="Pass the rule again"):
        apt.resume(path, simulate)
    asked.clear()
    assert len(apt.resume(path, simulate, stop=rule, progress=False).rounds) == 2
    assert asked == [0, 1]
    assert len(apt.resume(path, simulate, stop=rule, progress=False).rounds) == 2


def test_other_versions_are_warned_of(finished, tmp_path, monkeypatch):
    path = tmp_path / "run.apt"
    shutil.copy(finished, path)
    monkeypatch.setattr("aptinfer.storage.specification.platform.python_version", lambda: "4.0.0")
    with pytest.warns(UserWarning, match=r"other versions.*python: .* then, 4\.0\.0 now"):
        apt.resume(path, simulate, progress=False)


def test_before_the_first_round_there_is_no_posterior(tmp_path):
    path = tmp_path / "run.apt"
    with pytest.raises(Interrupted):
        infer(path, listen=interrupt("Trained", 0))
    run = apt.open(path)
    assert repr(run) == "Run(0 of 3 rounds, interrupted)"
    assert run.simulations.done.sum() == SIMULATIONS
    with pytest.raises(apt.RunFileError, match="has not finished its first round"):
        _ = run.posterior


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_loses_nothing(tmp_path, plain):
    path = tmp_path / "run.apt"
    code = textwrap.dedent(
        """
        import resource, sys
        sys.path.insert(0, sys.argv[2])
        import aptinfer as apt
        from runs import infer, simulate
        limit = 90_000
        def listen(event):
            if type(event).__name__ == "Simulated":
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            infer(sys.argv[1], listen=listen)
        except apt.RunFileError as error:
            print(error)
        """
    )
    found = subprocess.run(
        [sys.executable, "-c", code, path, os.path.dirname(__file__)], capture_output=True, text=True
    )
    assert "no room to write" in found.stdout, found.stderr
    assert "make room, then continue with apt.resume" in found.stdout
    assert RunFileReader(path).tally(0).done >= 1
    assert_same_bits(plain, apt.resume(path, simulate, progress=False))
    assert_sound(path)


def test_outcomes_are_grouped_and_none_is_kept_waiting():
    def outcomes(seconds, n=50):
        return [Outcome(i, None, Status.INVALID, "", seconds) for i in range(n)]

    assert [len(group) for group in batched(outcomes(0.0))] == [50]
    assert [len(group) for group in batched(outcomes(10.0, 3))] == [1, 1, 1]

    def cut_short():
        yield from outcomes(0.0, 3)
        raise KeyboardInterrupt

    groups = batched(cut_short())
    assert len(next(groups)) == 3
    with pytest.raises(KeyboardInterrupt):
        next(groups)


def test_methods_that_cannot_be_kept_are_refused_before_anything_is_simulated(tmp_path):
    with pytest.raises(TypeError, match="without file="):
        infer(tmp_path / "run.apt", method=apt.APT(estimator=_Custom(), embedding=METHOD.embedding))


class _Custom:
    """A user's own estimator, of which nothing is known."""

    build = None
