"""Training while simulations still arrive: a warm-up, whose weights are where a round's training begins.

    simulations of a round   ────────────────────────────►│
    warm-up on those so far        ──► more ──► more ──►   │ weights
    training on all of them                               └──────────────► posterior

The warm-up is the method's own training, on the rows that have ended, failed ones included, and on earlier
rounds. What follows is the round's training as it always is, from another start: so it is right for every
loss, and only its speed depends on the warm-up. How far that came depends on the clock, so that results are
not the same bits twice.

A warm-up is short on purpose. A network that has learned half of the rows by heart learns less from all of
them than a new one: on 4000 simulations of SLCP, warm-ups until convergence from a quarter of the rows on
left a validation loss that was 0.27 worse (seeds 0 and 1); a few epochs on at least half of them, 0.02 (three
seeds, which differ by more). Most of what is gained is that the program is compiled when it is needed.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aptinfer.checks import true_or_false
from aptinfer.errors import AptinferError
from aptinfer.executors import Inline
from aptinfer.methods.learning import Rehearsed, Task
from aptinfer.protocols import Executor, Simulations, Store
from aptinfer.train import Progress, Trainer

FIRST, STEP = 0.5, 0.25  # shares of a round's simulations: where a warm-up begins, and where it goes on
EPOCHS = 10  # after which a warm-up waits for more rows


@dataclass(frozen=True)
class WarmedUp:
    """While simulations of a round still ran, a training on so many of the run's rows came this far."""

    number: int
    rows: int
    progress: Progress


def check_overlap(overlap: object, executor: Executor, method: Any) -> bool:
    """Whether training may begin before simulations have ended; refuses what has nothing to overlap."""
    overlap = true_or_false("overlap", overlap)
    if overlap and isinstance(executor, Inline):
        raise ValueError(
            "overlap=True: apt.Inline() simulates in this very process, which cannot train meanwhile. Pass "
            "executor=apt.Processes(), apt.Dask(...) or a pool of concurrent.futures; or leave overlap out."
        )
    if overlap and not isinstance(getattr(method, "trainer", None), Trainer):
        raise ValueError(
            f"overlap=True: {type(method).__name__} trains nothing that could begin before its simulations "
            f"have ended. Leave overlap out, or use a method with a network, such as apt.APT()."
        )
    return overlap


class WarmUp:
    """A round's warm-up, in a thread of its own for as long as a `with` block lasts.

    Attributes:
        weights: what was learned; None if too few rows arrived in time.
    """

    def __init__(self, method: Any, task: Task, memory: Any, store: Store):
        self.weights: Any = None
        self._method, self._task, self._memory, self._store = method, task, memory, store
        self._size = store.sizes()[task.number]
        self._ended = store.tally(task.number).endings.total()  # simulations of this round, so far
        self._wanted, self._over, self._error = FIRST * self._size, False, None
        self._change = threading.Condition()
        self._news: queue.SimpleQueue[WarmedUp] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="warm-up", daemon=True)

    def __enter__(self) -> "WarmUp":
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        with self._change:
            self._over = True
            self._change.notify()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def arrived(self, ended: int) -> None:
        """So many simulations of the round have ended."""
        with self._change:
            self._ended = ended
            self._change.notify()

    def news(self) -> Iterator[WarmedUp]:
        """What has been learned since this was last asked."""
        with suppress(queue.Empty):
            while True:
                yield self._news.get_nowait()

    def _run(self) -> None:
        try:
            while self._more_rows():
                self._wanted = self._ended + STEP * self._size
                # Too few rows, or bad ones: that may pass, and otherwise the round's training will say so.
                with suppress(AptinferError, ValueError):
                    self._train()
        except BaseException as error:
            self._error = error

    def _more_rows(self) -> bool:
        """Wait for them; false when the simulations have ended."""
        with self._change:
            self._change.wait_for(lambda: self._over or self._ended >= self._wanted)
            return not self._over

    def _train(self) -> None:
        failed = [outcome.index for outcome in self._store.failures()]  # before rows: what fails now can wait
        rows = self._store.simulations()
        if not self._enough(rows):
            return
        ended = rows.done.copy()
        ended[failed] = True

        def note(progress: Progress) -> bool:
            self._news.put(WarmedUp(self._task.number, int(ended.sum()), progress))
            return self._over or progress.epoch >= EPOCHS or self._ended >= self._wanted

        task = replace(
            self._task,
            rows_since=lambda first: _since(rows, first),
            ended=ended,
            head_start=self.weights,
            for_training=self._task.for_training.child(3),
            listen=note,
        )
        try:
            self._method.learn(task, self._memory)
        except Rehearsed as learned:
            self.weights = learned.estimator

    def _enough(self, rows: Simulations) -> bool:
        """Whether the first round fills a batch, so that the program will be the one of all its rows."""
        trainer = self._method.trainer
        validates = trainer.validates(np.flatnonzero(rows.done & (rows.round == 0)))
        return bool(validates.any() and (~validates).sum() >= trainer.batch)


def _since(rows: Simulations, first: int) -> Simulations:
    return Simulations(*(column[rows.round >= first] for column in rows)) if first else rows
