"""From a simulator, a prior and an observation to a posterior in one call: the front of the library."""

import concurrent.futures
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from aptinfer.caching import enable_compilation_cache
from aptinfer.checks import (
    optional_function,
    positive_int,
    share,
    suggests_keywords,
    true_or_false,
    whole_seed,
)
from aptinfer.convoy import lane
from aptinfer.durable import begin
from aptinfer.errors import AptinferError, RunFileError
from aptinfer.executors import as_executor, held
from aptinfer.given import as_done, begin_with, described
from aptinfer.methods.apt import APT
from aptinfer.methods.choices import with_embedding
from aptinfer.methods.recipe import Recipe, rounds_of
from aptinfer.overlap import check_overlap
from aptinfer.posteriors import Posterior
from aptinfer.posteriors.base import check_observation
from aptinfer.priors import as_prior
from aptinfer.programs import make_room
from aptinfer.protocols import Executor, Outcome, Simulations, Store, StoreReader
from aptinfer.report.progress import display
from aptinfer.sequential import (
    FEWEST_ROWS,
    Event,
    Plan,
    Problem,
    RoundFinished,
    State,
    as_seen_by,
    state_of,
    step,
)
from aptinfer.sharding import check_devices
from aptinfer.simulators import as_simulator
from aptinfer.storage.runfile import RunFile
from aptinfer.store import MemoryStore

USUAL_ROUNDS, USUAL_SIMULATIONS = 10, 1000


@dataclass(frozen=True, eq=False)
class Run:
    """A finished (or interrupted) run.

    Attributes:
        rounds: every finished round: its posterior, training history and notes.
        problem, method, plan: what was run.
        interrupted: whether it was stopped by Ctrl-C before its last round.
    """

    problem: Problem
    method: Any
    plan: Plan
    rounds: tuple[RoundFinished, ...]
    store: StoreReader = field(repr=False)
    interrupted: bool = False

    @property
    def posterior(self) -> Posterior:
        """The posterior of the last finished round."""
        if not self.rounds:
            raise RunFileError("this run has not finished its first round, so there is no posterior yet.")
        return self.rounds[-1].posterior

    @property
    def simulations(self) -> Simulations:
        """Every row of the run: theta, x, the round it belongs to, and whether it succeeded."""
        return self.store.simulations()

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Simulations that failed, in the order of their row: `index`, `status`, `reason`, `seconds`."""
        return self.store.failures()

    def __repr__(self) -> str:
        early = ", interrupted" if self.interrupted else ""
        found = f"; {self.posterior!r}" if self.rounds else ""
        return f"Run({len(self.rounds)} of {self.plan.rounds} rounds{early}{found})"

    def summary(self) -> str:
        """The run in words: a table of the posterior's marginals and of the rounds."""
        from aptinfer.report.summary import summarise

        return summarise(self)

    def plot(self, path: str | os.PathLike | None = None, *, truth: object = None):
        """A picture of the posterior's margins and pairs (a matplotlib figure, saved if `path` is given)."""
        from aptinfer.report.plots import pairs

        return pairs(self.posterior, path=path, truth=truth)


@suggests_keywords
def infer(
    simulator: object,
    prior: object,
    x_o: object,
    *,
    method: Any = None,
    rounds: int | None = None,
    simulations: int | None = None,
    budget: int | None = None,
    seed: int = 0,
    missing: bool = False,
    progress: bool = True,
    simulations_done: object = None,
    file: str | os.PathLike | None = None,
    executor: Executor | concurrent.futures.Executor | None = None,
    max_failed: float = 1.0,
    overlap: bool = False,
    stop: Callable[[RoundFinished], bool] | None = None,
    listen: Callable[[Event], None] | None = None,
) -> Run:
    """Infer the parameters of a simulator from an observation.

    Args:
        simulator: f(rng, theta) or f(theta) for one draw with NumPy, or `apt.BatchSimulator`,
            `apt.JaxSimulator`, `apt.CommandSimulator`.
        prior: `apt.Prior`, `apt.box`, `apt.gaussian`, or an object with `sample` and `log_prob`.
        x_o: the observation, of the shape the simulator returns.
        method: `apt.APT()` (default; with `budget=`, `apt.Recipe()`) or another method.
        rounds: how often to propose, simulate and learn; 10 by default, 1 for one-round methods, 500 for
            `apt.SyntheticLikelihood`.
        simulations: simulations per round, 1000 by default.
        budget: simulations in all, in place of `rounds` and `simulations`: how to spend them, and on what
            method if none is given, is chosen by what did best in measurements. The plan is shown at the
            start, and kept in `run.plan` and `run.method`.
        seed: equal seeds give equal results.
        missing: NaN in x and x_o stands for an entry that is missing, or for the padding of a series or set
            that is shorter than others. Otherwise NaN is a failed simulation.
        progress: show a live display when the output is a terminal.
        simulations_done: simulations made elsewhere, a pair (theta, x), all of them: theta may have been
            chosen in any way, but rows must not have been filtered by x; x of failed ones is NaN. For draws
            of the prior, `apt.Done(theta, x, from_prior=True)`, also without any new ones, `simulations=0`.
        file: where to keep the run, such as "model.apt", so that it survives anything: `apt.resume` carries
            on, and so does this same call. `apt.open` reads it, also meanwhile.
        executor: where simulations run: `apt.Inline()`, in this process (default), `apt.Processes()`,
            `apt.Dask()`, or a pool of `concurrent.futures`. Results do not depend on it.
        max_failed: the share of a round's simulations that may fail; more end the run with an error.
        overlap: begin to train while simulations still arrive, for simulators that are slower than training.
            A round's training then starts from a warm-up on the rows that came before the last. It needs an
            `executor` that simulates elsewhere. How far the warm-up comes depends on the clock: results are
            as good, but equal seeds no longer give equal bits, nor do resumed runs.
        stop: asked after every round; true ends the run early.
        listen: told of every event of the run.

    Returns:
        The run, with `run.posterior`. Ctrl-C ends it after the last finished round, whose posterior it keeps;
        an `AptinferError` in a later round holds the rounds before it in its attribute `run`.

    Example:
        >>> import numpy as np, aptinfer as apt
        >>> simulator = lambda rng, theta: theta + 0.1 * rng.standard_normal(2)
        >>> run = apt.infer(simulator, apt.box([-1, -1], [1, 1]), [0.2, 0.3], rounds=1, simulations=200)
        >>> run.posterior.sample(100).shape
        (100, 2)
    """
    if method is None:
        method = APT() if budget is None else Recipe()
    if isinstance(method, type) or not hasattr(method, "settled"):
        raise TypeError(f"method must be a method such as apt.APT() or apt.NPE(); got {method!r}.")
    executor = as_executor(executor)
    optional_function("stop", stop, "apt.WhenSettled()")
    optional_function("listen", listen, "print")
    true_or_false("progress", progress)
    prior = as_prior(prior)
    simulator = as_simulator(simulator, missing=_missing(missing, method)).named(prior.names)
    rounds, simulations = _sizes(method, rounds, simulations, budget)
    if method.one_round and rounds > 1:
        raise ValueError(
            f"rounds={rounds}: {type(method).__name__} is a one-round method. Use method=apt.APT(), "
            f"or raise simulations=."
        )
    if getattr(stop, "needs_density", False) and not getattr(method, "has_density", True):
        raise ValueError(
            f"stop={stop!r} compares densities, and posteriors of {type(method).__name__} have none. Stop by "
            f"a round's notes, such as stop=lambda finished: finished.notes['accepted'] < 0.01."
        )
    only_given = simulations_done is not None and simulations == 0
    simulations = positive_int("simulations", simulations, minimum=0 if only_given else FEWEST_ROWS)
    if only_given and rounds > 1:
        raise ValueError(f"simulations=0 leaves nothing to simulate in {rounds} rounds: give rounds=1.")
    plan = Plan(rounds, simulations, whole_seed(seed), stop is not None, share("max_failed", max_failed))
    plan = plan._replace(overlap=check_overlap(overlap, executor, method))
    observation = check_observation("x_o", x_o, None, missing=missing)
    frame = method.space.frame(prior, simulator.dtype)
    method = method.settled(frame)
    if hasattr(method, "check_run"):
        method.check_run(rounds, simulations, observation)
    if getattr(method, "embeds_x", False):
        method = with_embedding(method, observation.shape, missing=missing)
    problem = as_seen_by(method, frame, simulator, observation, missing=missing)
    done = None if simulations_done is None else as_done(simulations_done, problem, method)

    enable_compilation_cache()
    rows = plan.capacity + (len(done.theta) if done else 0)
    given = None if done is None else described(done)
    with (
        nullcontext(MemoryStore(rows)) if file is None else begin(file, problem, method, plan, given)
    ) as store:
        if done is not None:
            begin_with(store, done, problem, plan)
        return carry_on(problem, method, plan, store, executor, progress, stop, listen)


def carry_on(
    problem: Problem,
    method: Any,
    plan: Plan,
    store: Store,
    executor: Executor,
    progress: bool,
    stop: Callable[[RoundFinished], bool] | None,
    listen: Callable[[Event], None] | None,
) -> Run:
    """A run from where its store stands to its end. `method` is settled."""
    check_devices(getattr(getattr(method, "trainer", None), "devices", None))
    make_room()
    state, finished = state_of(store)
    plan = plan._replace(begun=store.sizes())
    # A rule that was asked before is asked again, so that it knows what it knew.
    ended = [last.complete or bool(stop and stop(last)) for last in finished]
    with held(executor), display(plan, method, enabled=progress and lane() is None) as show:

        def tell(event: Event) -> None:
            show(event)
            if listen is not None:
                listen(event)

        try:
            while state.number < plan.rounds and not any(ended[-1:]):
                state, last = step(problem, method, plan, executor, store, tell, state)
                finished.append(last)
                ended.append(last.complete or bool(stop and stop(last)))
        except KeyboardInterrupt as interrupt:
            if not finished:
                if isinstance(store, RunFile):
                    interrupt.add_note(
                        f"What was simulated is kept: apt.resume({str(store.path)!r}, simulator)."
                    )
                raise
            return _interrupted(problem, method, plan, finished, store, state)
        except AptinferError as error:
            if finished:
                error.run = Run(problem, method, plan, tuple(finished), store, interrupted=True)
                error.add_note(f"The {len(finished)} rounds finished before are kept in this error's `run`.")
            raise
    return Run(problem, method, plan, tuple(finished), store)


def _sizes(method: Any, rounds: int | None, simulations: int | None, budget: int | None) -> tuple[int, int]:
    """Rounds and simulations per round."""
    if budget is not None:
        if rounds is not None or simulations is not None:
            raise ValueError(
                f"budget={budget!r} stands in place of rounds= and simulations=, which it is divided into: "
                f"leave those out, or give them without a budget."
            )
        return rounds_of(budget, one_round=method.one_round, least=FEWEST_ROWS)
    usual = 1 if method.one_round else getattr(method, "usual_rounds", USUAL_ROUNDS)
    rounds = positive_int("rounds", usual if rounds is None else rounds)
    return rounds, USUAL_SIMULATIONS if simulations is None else simulations


def _missing(missing: object, method: Any) -> bool:
    """Whether NaN stands for missing data, which the method must be able to learn from."""
    missing = true_or_false("missing", missing)
    if missing and not getattr(method, "embeds_x", False):
        raise ValueError(
            f"missing=True: {type(method).__name__} cannot learn from data with missing entries. Use a "
            f"method that embeds x, such as apt.APT() or apt.NPE()."
        )
    return missing


def _interrupted(problem, method, plan, finished, store, state: State) -> Run:
    warnings.warn(
        f"interrupted in round {state.number + 1} of {plan.rounds}; the result is that of round "
        f"{state.number}."
        + (f" apt.resume({str(store.path)!r}, simulator) carries on." if isinstance(store, RunFile) else ""),
        stacklevel=5,  # past this function, `carry_on`, `infer` and its check of keywords: the user's line
    )
    return Run(problem, method, plan, tuple(finished), store, interrupted=True)
