"""A simulator on its way to another process: cloudpickle, so that lambdas and functions of a notebook or of a
script can travel (the standard pickle would make workers import the user's script), and the settings of JAX
that decide its bits.
"""

import functools
import os
import pickle
import sys
from typing import Any

from aptinfer.errors import SimulationError
from aptinfer.protocols import Simulator

# What changes the numbers of a JAX program.
JAX_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_threefry_partitionable",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_disable_jit",
    "jax_disable_most_optimizations",
    "jax_platforms",
)


def packed(simulator: Simulator) -> bytes:
    """The simulator as bytes."""
    import cloudpickle

    try:
        return cloudpickle.dumps((jax_settings(), cloudpickle.dumps(simulator)))
    except Exception as error:
        raise TypeError(
            f"the simulator cannot be sent to worker processes: {type(error).__name__}: {error}. Open files, "
            f"locks, connections and the like inside the function; or pass "
            f"executor=concurrent.futures.ThreadPoolExecutor(), whose workers share this process."
        ) from error


def unpacked(luggage: bytes) -> Simulator:
    """The simulator, in the process that is to run it."""
    settings, simulator = pickle.loads(luggage)
    try:
        apply(settings)
        return _loaded(simulator)
    except Exception as error:
        raise SimulationError(
            f"a worker process cannot load the simulator: {type(error).__name__}: {error}. Modules that it "
            f"imports must be installed, or on sys.path, where workers run."
        ) from error


@functools.lru_cache(maxsize=2)  # tasks bring the same one again and again; it may have been compiled
def _loaded(simulator: bytes) -> Simulator:
    return pickle.loads(simulator)


def jax_settings() -> dict[str, Any]:
    """This process's settings of JAX; none if it has not been imported."""
    jax = sys.modules.get("jax")
    if jax is None:
        return {}
    # A name that this version of JAX does not know is left out.
    return {name: getattr(jax.config, name) for name in JAX_SETTINGS if hasattr(jax.config, name)}


def apply(settings: dict[str, Any]) -> None:
    """Make settings of JAX hold here: at once if it is loaded, else for when it will be."""
    jax = sys.modules.get("jax")
    if jax is None:
        chosen = {name.upper(): value for name, value in settings.items() if value is not None}
        os.environ.update({name: _text(value) for name, value in chosen.items()})
        return
    for name, value in settings.items():
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
