"""The only training loop. An epoch is in `epochs.py`; in `streaming.py` for data too large for the device.

Stopping is without noise: which rows validate is decided by their index for ever, validation candidates
are drawn once per round from validation rows, and the best weights are restored.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from aptinfer import scratch
from aptinfer.checks import of_round, one_or_one_each, positive_float, positive_int, suggests_keywords
from aptinfer.convoy import InLane, lane
from aptinfer.epochs import BLOCK, Epoch, InMemory, Layout, limits_of, start
from aptinfer.errors import TrainingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import as_members
from aptinfer.keys import Key
from aptinfer.methods.losses import Loss
from aptinfer.rows import TrainingRows
from aptinfer.sharding import Divided, OnDevices, on_all
from aptinfer.streaming import Streamed


@dataclass(frozen=True)
class History:
    """How a training went. Losses have one column per member of an ensemble."""

    training_loss: np.ndarray
    validation_loss: np.ndarray
    best_loss: np.ndarray
    epochs: int
    stop_reason: str
    compile_seconds: float
    run_seconds: float
    skipped_steps: int


class Progress(NamedTuple):
    """What a listener is told now and then during training."""

    epoch: int
    training_loss: float
    validation_loss: float
    best_loss: float


@suggests_keywords
@dataclass(frozen=True)
class Trainer:
    """AdamW with warm-up, gradient clipping, learning-rate drops on plateaus and early stopping.

    When the validation loss has not improved for `patience` epochs, the best weights are restored and the
    learning rate is multiplied by `drop`; after `drops` such drops, training stops.

    Args:
        batch: rows per step (fewer when a first round has fewer).
        learning_rate: of AdamW.
        weight_decay: of AdamW, on matrices only.
        clip: largest global norm of a gradient.
        warmup: steps over which the learning rate rises at the start of each round.
        patience: epochs without improvement that are waited for.
        early_patience: the same in rounds before the last, which are for proposals only: these wait for no
            longer than `patience`, and drop nothing. None: every round is trained like the last.
        average: decay of a moving average of the weights, which is then validated and kept; 0: none.
        drops: learning-rate drops before training stops.
        drop: factor of each.
        restart: start every round from new weights, not from the last round's: slower, but mass that leaks
            out of the prior's support, or into its far tails, does not add up over rounds.
        epochs: largest number of epochs per round. Or one number for each round, of which the last one stays.
        validation: share of rows held back to decide when to stop.
        device_memory: bytes that x may take on the device; larger data stay on the host and are streamed to
            it, with the same result. None: half of the device's memory, or no limit on a CPU.
        devices: how many to train on. Each has all weights and an equal part of every batch; the result is
            that of one device, up to rounding. None: one.
    """

    batch: int = 100
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip: float = 5.0
    warmup: int = 50
    patience: int = 20
    early_patience: int | None = 20
    average: float = 0.99
    drops: int = 2
    drop: float = 0.2
    restart: bool = False
    epochs: int | tuple[int, ...] = 2000
    validation: float = 0.1
    device_memory: float | None = None
    devices: int | None = None

    def __post_init__(self):
        positive_int("Trainer batch", self.batch, minimum=2)
        positive_float("Trainer learning_rate", self.learning_rate)
        positive_float("Trainer weight_decay", self.weight_decay, zero=True)
        positive_float("Trainer clip", self.clip)
        positive_int("Trainer warmup", self.warmup, minimum=0)
        positive_int("Trainer patience", self.patience)
        if self.early_patience is not None:
            positive_int("Trainer early_patience", self.early_patience)
        positive_int("Trainer drops", self.drops, minimum=0)
        positive_float("Trainer drop", self.drop)
        object.__setattr__(self, "epochs", one_or_one_each("Trainer epochs", self.epochs, positive_int))
        if not 0 <= positive_float("Trainer average", self.average, zero=True) < 1:
            raise ValueError(f"Trainer average must be a decay in [0, 1), got {self.average}.")
        if not 0 < positive_float("Trainer validation", self.validation) <= 0.5:
            raise ValueError(f"Trainer validation must be a share in (0, 0.5], got {self.validation}.")
        if self.device_memory is not None:
            positive_float("Trainer device_memory", self.device_memory)
        if self.devices is not None and self.batch % positive_int("Trainer devices", self.devices):
            nearest = -(-self.batch // self.devices) * self.devices
            raise ValueError(
                f"Trainer batch ({self.batch}) must be a multiple of devices ({self.devices}), so that each "
                f"has as many rows as the others: try batch={nearest}, or several times that."
            )

    @property
    def most_epochs(self) -> int:
        """How many any round has at most."""
        return max(self.epochs) if isinstance(self.epochs, tuple) else self.epochs

    def validates(self, index: np.ndarray) -> np.ndarray:
        """Which rows are held back: decided by the row's number, once, for ever."""
        period = round(1 / self.validation)
        return index % period == period - 1

    def __call__(
        self,
        key: Key,
        estimator: Embedded,
        loss: Loss,
        rows: TrainingRows,
        listen: Callable[[Progress], bool | None] = lambda progress: None,
        *,
        number: int = 0,
        last: bool = True,
    ) -> tuple[Embedded, History]:
        """Train every member of `estimator` (arrays with a leading member axis) in round `number`, the last
        or not.

        Training ends early, with the best weights so far, when `listen` answers True.
        """
        started = time.perf_counter()
        weights, rest = as_members(estimator)
        layout = Layout.of(weights)
        state = on_all(self.devices, start(layout.vectors(weights)))
        early = None if last else self.early_patience
        most = of_round(self.epochs, number)
        limits = limits_of(self.patience, self.drops, most)
        if early is not None:
            limits = limits_of(min(early, self.patience), 0, most)
        if self.devices is None:
            epochs = self._epochs(Epoch(self, loss, layout), key.words(), state, rest, rows)
        else:
            epoch = Epoch(self, Divided(loss, self.devices), layout)
            epochs = self._epochs(epoch, key.words(), state, on_all(self.devices, rest), rows)
            epochs = OnDevices(self.devices, epochs)
        training, validation, reported = [], [], time.perf_counter()
        epochs_per_call, stopped, done = 1, False, False
        while not stopped:
            state, losses, done = epochs(state, epochs_per_call, limits)
            count = int(state.epoch) - len(training)
            training.extend(np.asarray(losses[0])[:count])
            validation.extend(np.asarray(losses[1])[:count])
            told = listen(Progress(len(training), *_means(training[-1], validation[-1], state.best_loss)))
            stopped = bool(done) or told is True
            # Return to the host about twice a second, for progress and interrupts, not more often.
            now = time.perf_counter()
            faster = now - reported < 0.5
            epochs_per_call = min(2 * epochs_per_call, BLOCK) if faster else epochs_per_call
            reported = now
        best_loss = np.asarray(state.best_loss)
        if not np.isfinite(best_loss).all():
            raise TrainingError(
                "training never reached a finite validation loss. The simulated data may hold huge "
                "values, or the learning rate may be too large: try Trainer(learning_rate=1e-4)."
            )
        history = History(
            training_loss=np.stack(training),
            validation_loss=np.stack(validation),
            best_loss=best_loss,
            epochs=len(training),
            stop_reason=_why(bool(done), len(training) < most),
            compile_seconds=epochs.compile_seconds,
            run_seconds=time.perf_counter() - started - epochs.compile_seconds,
            skipped_steps=int(np.sum(state.skipped)),
        )
        return eqx.combine(layout.arrays(np.asarray(state.best)), rest), history

    def _epochs(self, epoch: Epoch, words, state, rest, rows: TrainingRows) -> InMemory | InLane | Streamed:
        """Epochs of these rows: on the device if they fit there, together with other runs' if there are."""
        limit, with_others, x = self.device_memory, lane(), rows.x
        assert x is not None
        if limit is None:
            limit = _half_of_the_device() / (with_others.lanes if with_others else 1)
        if scratch.is_on_disk(x):
            limit = min(limit, scratch.most_bytes() / 4)  # blocks are gathered, copied and used
        if scratch.is_on_disk(x) or x.nbytes > limit:
            return Streamed(epoch, words, state, rest, rows, limit)
        if self.devices is not None:
            return InMemory(epoch, words, state, rest, on_all(self.devices, rows))
        if with_others:
            return InLane(with_others, epoch, words, rest, rows)
        return InMemory(epoch, words, state, rest, rows)


def _why(done: bool, early: bool) -> str:
    """Why training stopped."""
    if not done:
        return "told to stop"
    return "converged" if early else "epoch limit"


def _half_of_the_device() -> float:
    """Bytes; infinity where the device does not say, as a CPU, whose memory is the host's."""
    known = jax.devices()[0].memory_stats() or {}
    return known.get("bytes_limit", np.inf) / 2


def _means(*values) -> tuple[float, ...]:
    return tuple(float(np.mean(np.asarray(v))) for v in values)
