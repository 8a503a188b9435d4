"""What a run is, as JSON: prior, observation, method, simulator, seed and the versions that ran it.

A run is continued only as what it is. Two specifications are compared entry by entry, and differences are
shown line by line. Versions and the simulator's name are kept for the reader and do not count: repairing a
simulator is no other run, and other versions are warned of. Nor do the devices to train on, which another
machine may not have.
"""

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from aptinfer.errors import RunFileError
from aptinfer.priors import JointPrior
from aptinfer.priors.reading import prior_from_dict
from aptinfer.simulators import BaseSimulator
from aptinfer.storage.foreign import name_of
from aptinfer.storage.records import Writer

PACKAGES = ("aptinfer", "jax", "jaxlib", "equinox", "numpy", "scipy")
_PROBES = 8  # draws by which a prior with functions of the user is known again
_TOLERANCE = 1e-6
_NOT_COMPARED = ("versions", "simulator.name", "method.trainer.devices", "method.trainer.device_memory")


def specification(
    prior: JointPrior,
    method: Any,
    observation: np.ndarray,
    simulator: BaseSimulator,
    seed: int,
    *,
    may_stop: bool,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All that decides a run's results but its size. `method` is settled.

    `given` describes the rows that were made elsewhere; their values are compared where they are kept.
    """
    return {
        "prior": described_prior(prior),
        "x_o": {"shape": list(observation.shape), "values": _values(observation)},
        "missing": simulator.missing,
        "method": described_method(method),
        "simulator": {
            "kind": type(simulator).__name__,
            "name": name_of(simulator.function),
            "chunk": simulator.chunk,
            "dtype": np.dtype(simulator.dtype).name,
        },
        "simulations_done": None if given is None else dict(given),
        "seed": seed,
        "stops_by_rule": may_stop,
        "versions": versions(),
    }


def _values(array: np.ndarray) -> list[float | None]:
    """Numbers, and None for those that are missing: NaN would not equal itself."""
    return [None if np.isnan(value) else value for value in array.ravel().tolist()]


def described_method(method: Any) -> Any:
    """A method's settings; those that are the user's own by name and fingerprint."""
    writer = Writer()
    written = writer(method)
    if writer.arrays:
        raise TypeError(
            f"{type(method).__name__} holds arrays among its settings, which cannot be kept in a run file."
        )
    return written


def described_prior(prior: JointPrior) -> dict[str, Any]:
    """A prior's description; one with functions of the user is known again by draws and their density."""
    description = prior.to_dict()
    try:
        again = prior_from_dict(description)
    except (KeyError, TypeError, ValueError):
        again = None
    probes = _probes(prior)
    if again is None or _probes(again) != probes:
        description["yours"] = probes
    return description


def _probes(prior: JointPrior) -> dict[str, Any]:
    draws = prior.sample(np.random.default_rng(0), _PROBES)
    return {"draws": draws.tolist(), "log_prob": prior.log_prob(draws).tolist()}


def read_prior(description: Mapping[str, Any]) -> JointPrior | None:
    """The prior of a specification; None if it is the user's own and must be passed."""
    try:
        return None if "yours" in description else prior_from_dict(description)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunFileError(f"its prior cannot be read ({type(error).__name__}: {error})") from None


def read_observation(written: Any) -> np.ndarray:
    try:
        shape = tuple(int(n) for n in written["shape"])
        array = np.array(written["values"], np.float64).reshape(shape)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunFileError(f"its observation cannot be read ({type(error).__name__}: {error})") from None
    if np.isinf(array).any() or np.isnan(array).all() or array.ndim == 0:
        raise RunFileError("its observation is not an array of finite numbers")
    return array


def differences(kept: Any, now: Any) -> list[str]:
    """One line for every entry in which two specifications differ."""
    before, after = dict(_entries(kept)), dict(_entries(now))
    lines = []
    for path in {**before, **after}:
        if path.startswith(_NOT_COMPARED) or _equal(path, before.get(path), after.get(path)):
            continue
        lines.append(f"{path}: {_short(before, path)} in the file, {_short(after, path)} now")
    return lines


def changed_versions(kept: Mapping[str, Any]) -> list[str]:
    """One line for every package, or setting of JAX, that is another one now."""
    return [
        f"{name}: {old} then, {versions().get(name)} now"
        for name, old in kept.items()
        if versions().get(name) != old
    ]


def versions() -> dict[str, Any]:
    """What a run's bits depend on besides its specification."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    import jax

    found["jax_enable_x64"] = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    found["machine"] = platform.machine()
    return found


def _entries(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and plain values; a list without records in it counts as one value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entries(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for place, item in enumerate(value):
            yield from _entries(item, f"{path}[{place}]")
    else:
        yield path, value


def _equal(path: str, one: Any, two: Any) -> bool:
    if not path.startswith("prior.yours"):
        return one == two
    try:  # a user's function may round otherwise elsewhere
        return bool(np.allclose(one, two, rtol=_TOLERANCE, atol=0))
    except (TypeError, ValueError):
        return False


def _short(entries: Mapping[str, Any], path: str) -> str:
    if path not in entries:
        return "nothing"
    text = repr(entries[path])
    return text if len(text) <= 60 else f"{text[:40]} ... {text[-15:]}"
