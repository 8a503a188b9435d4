"""Runs that were interrupted or are to be longer: read from their file, and carried on."""

import concurrent.futures
import os
from collections.abc import Callable
from typing import Any

from aptinfer.caching import enable_compilation_cache
from aptinfer.checks import optional_function, positive_int, share, suggests_keywords
from aptinfer.durable import (
    checked_rounds,
    kept_in,
    reader_of,
    run_path,
    same_simulator,
    writer_of,
    written_plan,
)
from aptinfer.executors import as_executor
from aptinfer.given import check_all_there
from aptinfer.overlap import check_overlap
from aptinfer.protocols import Executor
from aptinfer.run import Run, carry_on
from aptinfer.sequential import FEWEST_ROWS, Event, Plan, RoundFinished, as_seen_by, more_prior_draws
from aptinfer.storage.runfile import RunFile


@suggests_keywords
def resume(
    file: str | os.PathLike,
    simulator: object,
    *,
    prior: object = None,
    method: Any = None,
    executor: Executor | concurrent.futures.Executor | None = None,
    rounds: int | None = None,
    simulations: int | None = None,
    max_failed: float | None = None,
    overlap: bool = False,
    stop: Callable[[RoundFinished], bool] | None = None,
    listen: Callable[[Event], None] | None = None,
    progress: bool = True,
) -> Run:
    """Carry on with a run from its file: after an interruption, or to add to a finished one.

    Simulations that are in the file are never run again. An interrupted run ends with the samples, bit for
    bit, that it would have had without the interruption (on one kind of machine, with the same versions).

    Args:
        file: a file that `apt.infer(..., file=...)` began.
        simulator: as for `apt.infer`; code is not kept in files.
        prior, method: needed only if they hold functions or networks of your own, which are not kept; they
            are compared with what the file knows of them.
        executor, stop, listen, progress: as for `apt.infer`. A run that was begun with `stop` needs it again.
        rounds: more rounds than the run was begun with.
        simulations: of every round that has not begun. For a method with a single round: of that round, to
            which the missing ones are added before it is learned from again.
        max_failed: another share than the run was begun with.
        overlap: as for `apt.infer`; the bits are then others than without an interruption.

    Raises:
        RunFileError: the file cannot be used, or is of another run; the message shows the difference.

    Example:
        >>> run = apt.resume("two_moons.apt", simulator)  # doctest: +SKIP
    """
    executor = as_executor(executor)
    optional_function("stop", stop, "apt.WhenSettled()")
    optional_function("listen", listen, "print")
    kept = kept_in(file, prior, method)
    found = same_simulator(file, kept, simulator)
    plan = _longer(kept.plan, kept.method, rounds, simulations)
    if max_failed is not None:
        plan = plan._replace(max_failed=share("max_failed", max_failed))
    if plan.may_stop and stop is None:
        raise ValueError(
            "this run was begun with a rule to stop it. Pass the rule again: stop=apt.WhenSettled()."
        )
    if hasattr(kept.method, "check_run"):
        kept.method.check_run(plan.rounds, plan.simulations, kept.observation)
    overlap = check_overlap(overlap, executor, kept.method)
    enable_compilation_cache()
    problem = as_seen_by(kept.method, kept.frame, found, kept.observation, missing=kept.missing)
    with writer_of(file, kept) as store:
        check_all_there(store, kept.written.get("simulations_done"))
        if plan != kept.plan:
            store.set_plan(written_plan(plan))
        _add_rows(store, kept, plan)
        plan = plan._replace(overlap=overlap)
        return carry_on(problem, kept.method, plan, store, executor, progress, stop, listen)


def open(file: str | os.PathLike, *, prior: object = None, method: Any = None) -> Run:
    """Read a run file, also while another process writes to it: posterior, rounds, simulations so far.

    Args:
        file: a file that `apt.infer(..., file=...)` began. It is not changed.
        prior, method: needed only if they hold functions or networks of your own, which are not kept.

    Raises:
        RunFileError: it is not a run file, damaged, or from a newer version.

    Example:
        >>> run = apt.open("two_moons.apt")  # doctest: +SKIP
    """
    kept = kept_in(file, prior, method)
    reader = reader_of(file, kept)
    rounds = checked_rounds(run_path(file), reader.finished()[0])
    ended = len(rounds) >= kept.plan.rounds or (rounds and rounds[-1].complete)
    problem = as_seen_by(kept.method, kept.frame, None, kept.observation, missing=kept.missing)
    return Run(problem, kept.method, kept.plan, rounds, reader, interrupted=not ended)


def _longer(plan: Plan, method: Any, rounds: int | None, simulations: int | None) -> Plan:
    """The plan with what is to be added."""
    if rounds is not None:
        begun = max(len(plan.begun), 1)
        if positive_int("rounds", rounds) < begun:
            raise ValueError(
                f"rounds={rounds}: this run has begun its round {begun} already. Give at least {begun}."
            )
        if method.one_round and rounds > 1:
            raise ValueError(
                f"rounds={rounds}: {type(method).__name__} is a one-round method. Add simulations instead."
            )
        plan = plan._replace(rounds=rounds)
    if simulations is not None:
        positive_int("simulations", simulations, minimum=FEWEST_ROWS)
        if method.one_round and plan.begun and simulations < plan.begun[0]:
            raise ValueError(
                f"simulations={simulations}: this run has {plan.begun[0]} already. Give at least as many."
            )
        plan = plan._replace(simulations=simulations)
    return plan


def _add_rows(store: RunFile, kept: Any, plan: Plan) -> None:
    """The rows that the only round of a one-round method lacks."""
    there = sum(plan.begun)
    if kept.method.one_round and there and plan.simulations > there:
        store.extend(more_prior_draws(kept.frame, plan, there, plan.simulations - there))
