"""The rows of a run as training sees them: arrays of fixed capacity, so that a new round changes no shape."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from aptinfer.estimators.mog import Ratio
from aptinfer.methods.losses import Batch
from aptinfer.protocols import Simulations


class TrainingRows(eqx.Module):
    """A run's rows on the device: fixed capacity, traced counts.

    `train` and `validation` are lists of row numbers; entries beyond their counts are padding. Failed
    rows appear in them only for losses with contrasts, where their parameters stay as candidates and
    are never the true answer (`done` is false): dropping them would over-weight parameters that often fail.
    `x` is None where it is too large for the device; the x of a batch are then handed in.
    """

    value: Float[Array, "capacity dim"]
    x: Float[Array, "capacity *event"] | None
    log_prior: Float[Array, " capacity"]
    source: Int[Array, " capacity"]
    done: Bool[Array, " capacity"]
    weight: Float[Array, " capacity"]
    train: Int[Array, " capacity"]
    n_train: Int[Array, ""]
    validation: Int[Array, " capacity"]
    n_validation: Int[Array, ""]
    share_done: Float[Array, ""]
    ratios: Ratio | None

    def batch(
        self, index: Int[Array, " batch"], candidates: Int[Array, "batch atoms"], x: Array | None = None
    ) -> Batch:
        source = self.source[index]
        ratio = None if self.ratios is None else jax.tree.map(lambda a: a[source], self.ratios)
        log_prior, weight = self.log_prior[candidates], self.weight[index]
        value = self.value[candidates]
        if x is None:
            assert self.x is not None
            x = self.x[index]
        if candidates.shape[1] > 1:  # among contrasts are failed rows, whose x must not reach a gradient
            done = self.done[index].reshape(-1, *[1] * (x.ndim - 1))
            x = jnp.where(done, x, jnp.zeros((), x.dtype))
        return Batch(x, value, log_prior, source == 0, weight, ratio, self.n_train)

    def without_x(self) -> "TrainingRows":
        return eqx.tree_at(lambda rows: rows.x, self, None)


def training_rows(
    simulations: Simulations,
    log_prior: np.ndarray,
    ratios: Ratio | None,
    *,
    weights: np.ndarray | None = None,
    capacity: int,
    validates: Callable[[np.ndarray], np.ndarray],
    contrasts: bool,
    ended: np.ndarray | None = None,
    rng: np.random.Generator,
) -> TrainingRows:
    """A run's rows, padded to `capacity`, as NumPy arrays that a device can take.

    The x of a row that is not `done` is never used; x may already be padded. `weights` belong to weighted
    losses, one per row; `validates` says by their numbers which rows are held back; `ended` which of them
    have an outcome, if not all have; `rng` orders the validation candidates.
    """
    index = np.arange(len(simulations.done))
    usable = index[simulations.done]
    if contrasts:
        usable = index if ended is None else index[ended]
    held_back = validates(usable)
    train, validation = usable[~held_back], rng.permutation(usable[held_back])

    def padded(array, dtype) -> Any:
        if len(array) == capacity and array.dtype == dtype:
            return array  # large data are not copied
        out = np.zeros((capacity, *np.shape(array)[1:]), dtype)
        out[: len(array)] = array
        return out

    def scalar(value, dtype: Any = np.int32) -> Any:
        return np.asarray(value, dtype)

    return TrainingRows(
        value=padded(simulations.value, np.float32),
        x=padded(simulations.x, np.float32),
        log_prior=padded(log_prior, np.float32),
        source=padded(simulations.source, np.int32),
        done=padded(simulations.done, bool),
        weight=padded(np.ones(len(index)) if weights is None else weights, np.float32),
        train=padded(train, np.int32),
        n_train=scalar(len(train)),
        validation=padded(validation, np.int32),
        n_validation=scalar(len(validation)),
        share_done=scalar(simulations.done[train].mean(), np.float32),
        ratios=ratios,
    )
