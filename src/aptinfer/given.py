"""Simulations that were made elsewhere, before a run: they become rows of its first round.

Whether that is right depends on where their parameters came from. Draws of the prior are what every method's
first round consists of. Parameters that were chosen in any other way, a grid or somebody's guesses, are fine
where the loss never asks for the density that they came from: the atomic loss, SNRE and SNL. In either case
rows must not have been filtered by x: failed simulations belong to them, with x = NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from aptinfer.checks import finite_array, numeric_array, suggests_keywords
from aptinfer.errors import RunFileError
from aptinfer.posteriors.base import check_observation
from aptinfer.protocols import UNKNOWN_SOURCE, Draws, Simulations, Store
from aptinfer.sequential import Plan, Problem, first_draws
from aptinfer.simulators import judged

AT_ONCE = 1 << 14  # rows that are recorded together


@suggests_keywords
@dataclass(frozen=True, eq=False)
class Done:
    """Simulations made elsewhere, for `apt.infer(..., simulations_done=...)`.

    Give all that were made, however they ended: leaving out failed ones, or those far from x_o, biases the
    posterior.

    Args:
        theta: parameters, (n, dim), inside the prior's support.
        x: data, (n, ...); a row with NaN or infinity is a failed simulation.
        from_prior: whether theta are independent draws of the prior; otherwise they may come from anywhere.
    """

    theta: Any
    x: Any
    from_prior: bool = False


def as_done(value: object, problem: Problem, method: Any) -> Done:
    """`value`, a `Done` or a pair (theta, x), checked against the prior, the method and x_o."""
    if isinstance(value, tuple) and len(value) == 2:
        value = Done(*value)
    if not isinstance(value, Done):
        raise TypeError(
            f"simulations_done must be a pair (theta, x), or apt.Done(theta, x, from_prior=True) for draws "
            f"of the prior; got {type(value).__name__}."
        )
    if not getattr(method, "takes_given_rows", True):
        raise ValueError(
            f"simulations_done: {type(method).__name__} simulates so many replicates at each of its own "
            f"parameters, and has no use for others. Use apt.APT(), apt.SNL() or apt.NPE()."
        )
    theta, x = finite_array("theta of simulations_done", value.theta), numeric_array("x", value.x)
    prior = problem.frame.prior
    dim = prior.dim
    if theta.ndim != 2 or theta.shape[1] != dim or not len(theta):
        raise ValueError(
            f"theta of simulations_done must have shape (n, {dim}) for parameters {prior.names}; got "
            f"{theta.shape}."
        )
    x = x[:, None] if x.ndim == 1 else x
    if len(x) != len(theta):
        raise ValueError(
            f"simulations_done has {len(theta)} rows of theta and {len(x)} of x: give one x for each theta, "
            f"NaN for simulations that failed."
        )
    gaps = {"missing": problem.missing, "any_length": problem.any_length}
    check_observation("x_o", problem.observation, x.shape[1:], **gaps)
    outside = ~prior.contains(theta)
    if outside.any():
        raise ValueError(
            f"{outside.sum()} of {len(theta)} theta of simulations_done lie outside the prior's support, the "
            f"first {theta[outside][0]}. Leave these rows out: the posterior is zero there."
        )
    if not value.from_prior and not getattr(method, "takes_any_theta", False):
        raise ValueError(
            f"simulations_done: {type(method).__name__} needs to know where parameters came from. If they "
            f"are draws of the prior, say so: apt.Done(theta, x, from_prior=True). Otherwise use apt.APT() "
            f"with its atomic loss, apt.SNRE() or apt.SNL(), which take parameters chosen in any way."
        )
    return Done(theta, x, value.from_prior)


def described(done: Done) -> dict[str, Any]:
    """What a run's specification says about them."""
    return {"rows": len(done.theta), "from_prior": bool(done.from_prior)}


def begin_with(store: Store, done: Done, problem: Problem, plan: Plan) -> None:
    """Begin the first round with rows that have their outcomes already, or go on where that was interrupted.

    Raises:
        RunFileError: the run was begun before, with other rows.
    """
    frame = problem.frame

    def planned() -> Draws:
        source = np.full(len(done.theta), 0 if done.from_prior else UNKNOWN_SOURCE, np.int32)
        given = Draws(frame.from_theta(done.theta).astype(np.float32), done.theta, source)
        fresh = first_draws(frame, plan)
        return Draws(*(np.concatenate(columns) for columns in zip(given, fresh, strict=True)))

    begun_before = bool(store.sizes())
    index = store.plan(0, planned).index
    waiting = index[index < len(done.theta)]  # all of them, or those that an interruption has left
    if begun_before:
        _compare(store.simulations(), done, set(waiting.tolist()), missing=problem.missing)
    for start in range(0, len(waiting), AT_ONCE):
        block = waiting[start : start + AT_ONCE].tolist()
        store.record([judged(i, done.x[i], 0.0, missing=problem.missing) for i in block])


def check_all_there(store: Store, given: object) -> None:
    """See that a run to be carried on holds the rows made elsewhere that its specification speaks of."""
    if given is None:
        return
    n = given.get("rows") if isinstance(given, dict) else None
    if not isinstance(n, int) or n < 1:
        raise RunFileError("what the run file says about simulations made elsewhere cannot be read.")
    there = sum(store.sizes()[:1])
    if there < n or (store.plan(0, _none_planned).index < n).any():
        raise RunFileError(
            f"this run was interrupted before the {n} simulations made elsewhere were in its file. Call "
            f"apt.infer as before, with the same file= and simulations_done=, and it carries on."
        )


def _none_planned() -> Draws:
    raise AssertionError("the first round is there")


def _compare(kept: Simulations, done: Done, waiting: set[int], *, missing: bool) -> None:
    """Refuse rows that are not those in the file, and show the first that differs."""
    theta = done.theta
    others = np.flatnonzero((kept.theta[: len(theta)] != theta).any(axis=1))
    if len(others):
        raise _other_rows("theta", others[0], kept.theta[others[0]], theta[others[0]])
    for row in (row for row in range(len(theta)) if row not in waiting):
        x = judged(row, done.x[row], 0.0, missing=missing).x
        before = kept.x[row] if kept.done[row] else None
        same = before is x if before is None or x is None else np.array_equal(before, x, equal_nan=True)
        if not same:  # both None: a failure then and now
            raise _other_rows("x", row, before, x)


def _other_rows(what: str, row: int, before: np.ndarray | None, now: np.ndarray | None) -> RunFileError:
    return RunFileError(
        f"simulations_done are not those that this run was begun with: {what} of row {row} is "
        f"{_short(before)} in the file, {_short(now)} now. Pass the same rows in the same order, carry on "
        f"with apt.resume, which needs none of them, or begin another run in another file."
    )


def _short(value: np.ndarray | None) -> str:
    return "that of a failure" if value is None else np.array2string(value, threshold=8, edgeitems=2)
