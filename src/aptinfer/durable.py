"""Between a run and its file: what is written when a run begins, and the way back from a file to a run."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from aptinfer.errors import RunFileError
from aptinfer.estimators.embeddings import EmbeddingSpec
from aptinfer.posteriors import Posterior
from aptinfer.priors import JointPrior, as_prior
from aptinfer.sequential import Plan, Problem, RoundFinished
from aptinfer.simulators import BaseSimulator, as_simulator
from aptinfer.spaces import Frame
from aptinfer.storage.foreign import name_of
from aptinfer.storage.records import Reader, foreign_parts
from aptinfer.storage.runfile import RunFile, RunFileReader, create_or_compare
from aptinfer.storage.specification import (
    changed_versions,
    described_method,
    described_prior,
    differences,
    read_observation,
    read_prior,
    specification,
)


class Kept(NamedTuple):
    """What a run file says about its run."""

    written: dict[str, Any]  # the specification
    prior: JointPrior
    method: Any
    frame: Frame
    observation: np.ndarray
    plan: Plan

    @property
    def missing(self) -> bool:
        return bool(self.written.get("missing"))

    @property
    def shared(self) -> dict[str, Any]:
        return {"frame": self.frame}


def run_path(file: object) -> Path:
    """`file` as a path that a run file can have."""
    if not isinstance(file, str | os.PathLike):
        raise TypeError(f"file must be the path of a run file, such as 'model.apt'; got {file!r}.")
    path = Path(os.fspath(file))
    if path.is_dir():
        raise ValueError(f"file must be the path of a run file, such as 'model.apt'; {path} is a folder.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"file: the folder {path.absolute().parent} does not exist. Make it first.")
    return Path(os.path.realpath(path))  # by whatever link it is reached, it has one writer


def begin(
    file: object, problem: Problem, method: Any, plan: Plan, given: Mapping[str, Any] | None = None
) -> RunFile:
    """The file of a new run, or of the same one, begun before; `given` describes rows made elsewhere."""
    path = run_path(file)
    _check_can_be_kept(method)
    prior, simulator = problem.frame.prior, problem.simulator
    assert simulator is not None
    written = specification(
        prior, method, problem.observation, simulator, plan.seed, may_stop=plan.may_stop, given=given
    )
    yours = passed_again(method, problem.observation.shape)
    create_or_compare(path, written, written_plan(plan))
    return _opened(path, {"frame": problem.frame}, yours)


def kept_in(file: object, prior: object = None, method: Any = None) -> Kept:
    """What a run file says about its run, with what the user has passed again, compared.

    Raises:
        RunFileError: it is no run file, or of another run than was passed, or something must be passed again.
    """
    path = run_path(file)
    reader = RunFileReader(path)
    written = reader.fact("specification")
    try:
        found, observation = read_prior(written["prior"]), read_observation(written["x_o"])
        dtype = {"float32": np.float32, "float64": np.float64}[written["simulator"]["dtype"]]
        plan = _read_plan(reader.fact("plan"), written, reader.sizes())
    except (KeyError, TypeError, ValueError) as error:
        raise RunFileError(
            f"{path}: its specification cannot be read ({type(error).__name__}: {error})."
        ) from None
    if prior is not None:
        found = as_prior(prior)
        _refuse(path, "prior", written["prior"], described_prior(found))
    if found is None:
        raise RunFileError(
            f"{path}: its prior has functions of yours, which are not kept. Pass it again: prior=..."
        )
    frame, settled = _settled(path, written, found, dtype, method)
    return Kept(written, found, settled, frame, observation, plan)


def reader_of(file: object, kept: Kept) -> RunFileReader:
    return RunFileReader(run_path(file), kept.shared, passed_again(kept.method, kept.observation.shape))


def writer_of(file: object, kept: Kept) -> RunFile:
    return _opened(run_path(file), kept.shared, passed_again(kept.method, kept.observation.shape))


def _opened(path: Path, shared: Mapping[str, Any], yours: Mapping[str, Any]) -> RunFile:
    """A file to be written to, once what it holds has been tried: what is no good is left as it is."""
    reader = RunFileReader(path, shared, yours)
    checked_rounds(path, reader.finished()[0])
    _warn_of_versions(reader)
    return RunFile(path, shared, yours)


def same_simulator(file: object, kept: Kept, simulator: object) -> BaseSimulator:
    """The simulator, if it can go on with this run: of the same kind, in chunks of the same size."""
    found = as_simulator(simulator, missing=kept.missing).named(kept.prior.names)
    now = {"kind": type(found).__name__, "chunk": found.chunk, "dtype": np.dtype(found.dtype).name}
    before = {name: kept.written["simulator"].get(name) for name in now}
    _refuse(run_path(file), "simulator", before, now)
    return found


def checked_rounds(path: Path, finished: list[Any]) -> tuple[RoundFinished, ...]:
    """The rounds of a file, which a stranger may have written: what does not fit together is refused."""
    for number, one in enumerate(finished):
        try:
            fits = (
                isinstance(one, RoundFinished)
                and one.number == number
                and isinstance(one.posterior, Posterior)
            )
            if fits:
                one.posterior.try_out()
        except Exception as error:
            raise RunFileError(
                f"{path}: the posterior of round {number + 1} does not work ({error})."
            ) from None
        if not fits:
            raise RunFileError(f"{path}: round {number + 1} holds something else than a round.")
    return tuple(finished)


def passed_again(method: Any, event: tuple[int, ...]) -> dict[str, Any]:
    """What of a method is the user's own, by name: functions, and networks as they are built."""
    found = foreign_parts(method)
    for part in list(found.values()):
        if isinstance(part, EmbeddingSpec) and not isinstance(part, type):
            network = part.build(jax.random.key(0), event)
            found[name_of(network)] = network
    return found


def _check_can_be_kept(method: Any) -> None:
    """Functions, networks, and what builds the embedding can be passed again; nothing else."""
    for name, part in foreign_parts(method).items():
        if part is getattr(method, "embedding", None) or (callable(part) and not hasattr(part, "build")):
            continue
        raise TypeError(
            f"{type(method).__name__} holds {name}, which cannot be kept in a run file: only numbers, words, "
            f"functions, an embedding of your own and this library's settings can. Run without file=."
        )


def written_plan(plan: Plan) -> dict[str, Any]:
    return {"rounds": plan.rounds, "simulations": plan.simulations, "max_failed": plan.max_failed}


def _read_plan(fact: Mapping[str, Any], written: Mapping[str, Any], begun: tuple[int, ...]) -> Plan:
    numbers = fact["rounds"], fact["simulations"], written["seed"]
    if not all(type(n) is int and 0 <= n < 1 << 40 for n in numbers):
        raise ValueError("its plan is not made of reasonable whole numbers")
    return Plan(*numbers, bool(written["stops_by_rule"]), float(fact["max_failed"]), begun)


def _settled(
    path: Path, written: Mapping[str, Any], prior: JointPrior, dtype: type, method: Any
) -> tuple[Frame, Any]:
    """The coordinates and the method of a run: as passed, if that is the same one, else as written."""
    if method is not None:
        frame = method.space.frame(prior, dtype)
        method = method.settled(frame)
        _refuse(path, "method", written["method"], described_method(method))
        return frame, method
    try:
        found = Reader(_no_arrays)(written["method"])
    except RunFileError as error:
        raise RunFileError(f"{path}: {error}: method=...") from None
    if not hasattr(found, "settled"):
        raise RunFileError(f"{path}: its method is none.")
    return found.space.frame(prior, dtype), found


def _no_arrays(name: str) -> np.ndarray:
    raise RunFileError("its method holds arrays")


def _refuse(path: Path, what: str, before: Any, now: Any) -> None:
    lines = differences({what: before}, {what: now})
    if lines:
        raise RunFileError(
            f"{path} was begun with another {what}:\n  "
            + "\n  ".join(lines)
            + f"\nPass the {what} that the run was "
            f"begun with, or begin another run in another file."
        )


def _warn_of_versions(store: RunFileReader) -> None:
    """Results stay right with other versions, but not to the last bit."""
    lines = changed_versions(store.fact("specification").get("versions", {})) if store.sizes() else []
    if lines:
        warnings.warn(
            f"{store.path} was begun with other versions, so results will not have the same bits: "
            f"{'; '.join(lines)}.",
            stacklevel=6,
        )
