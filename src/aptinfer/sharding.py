"""Training on several devices: each has all weights, and computes the losses of its part of every batch.

    minibatch of B rows ──► B / n rows ──► losses, gradient ──┐
                        ──► B / n rows ──► losses, gradient ──┼─ sum ─► one step, the same on all
                        ──► B / n rows ──► losses, gradient ──┘

The program is the one of a single device. Only the batch that a loss sees is marked as divided by rows, and
the compiler finds out what each device has to do and what they must tell each other. Contrasts of the atomic
loss are values of other rows of the whole batch, wherever those are computed.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from aptinfer.epochs import Limits, State
from aptinfer.methods.losses import Batch, Loss

_ROWS = "rows"


def check_devices(devices: int | None) -> None:
    """Refuse more devices than there are, before anything is simulated."""
    if devices is not None:
        _mesh(devices)


@cache
def _mesh(devices: int) -> Mesh:
    found = jax.local_devices()
    if devices > len(found):
        raise ValueError(
            f"Trainer devices={devices}, but this process has {len(found)} of them ({found[0].platform}): "
            f"ask for at most {len(found)}. (For a trial, XLA_FLAGS=--xla_force_host_platform_device_count="
            f"{devices} in the environment makes that many of a CPU.)"
        )
    return Mesh(np.array(found[:devices]), (_ROWS,))


def _divided(devices: int, axis: int) -> NamedSharding:
    return NamedSharding(_mesh(devices), PartitionSpec(*[None] * axis, _ROWS))


def on_all(devices: int | None, tree: Any) -> Any:
    """A copy of the arrays of a tree on every device; None: on the usual one."""
    where = None if devices is None else NamedSharding(_mesh(devices), PartitionSpec())
    return jax.tree.map(lambda a: jax.device_put(a, where) if hasattr(a, "dtype") else a, tree)


def in_parts(devices: int | None, array: Any, axis: int) -> jax.Array:
    """An array divided along an axis, a part on each device; None: all of it on the usual one."""
    return jax.device_put(array, None if devices is None else _divided(devices, axis))


@dataclass(frozen=True)
class Divided(Loss):
    """Another loss, whose rows are computed by several devices."""

    loss: Loss
    devices: int

    @property
    def atoms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.loss.atoms

    def __call__(self, estimator: Any, batch: Batch):
        where = _divided(self.devices, axis=0)

        def by_rows(tree):
            return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, where), tree)

        rows = {
            name: by_rows(getattr(batch, name))
            for name in ("x", "candidates", "log_prior", "from_prior", "weight", "ratio", "position")
        }
        return by_rows(self.loss(estimator, batch._replace(**rows)))


class OnDevices:
    """Epochs on several devices; `epochs` are those of `InMemory` or `Streamed`, with a `Divided` loss."""

    def __init__(self, devices: int, epochs: Any):
        self._devices, self._epochs = devices, epochs
        self.compile_seconds = epochs.compile_seconds

    def __call__(self, state: State, epochs: int, limits: Limits):
        """The state after at most so many epochs, their losses, and whether training has ended."""
        state, losses, ended = self._epochs(state, epochs, limits)
        return on_all(self._devices, state), losses, ended
