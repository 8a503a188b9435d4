"""Epochs of data that are too large for the device: x stays on the host and comes in blocks of minibatches.

The parts of an epoch are those of `epochs.py`, with the same keys and the same order of rows: only where x is
gathered differs. While the device works on one block, a thread gathers the next and sends it.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from aptinfer.epochs import Carry, Epoch, Limits, State, after_epoch, alone, limits_of, no_losses
from aptinfer.programs import compiled
from aptinfer.rows import TrainingRows
from aptinfer.sharding import in_parts, on_all

Item = TypeVar("Item")
Made = TypeVar("Made")
LARGEST_BLOCK = 2**28  # bytes: enough to hide the time that a transfer takes to begin
BLOCKS_AT_ONCE = 2  # on the device: the one in work and the one that follows


class Streamed:
    """One epoch per call, the blocks of x no larger together than `memory` bytes if that is possible."""

    def __init__(self, epoch: Epoch, words, state: State, rest, rows: TrainingRows, memory: float):
        self._parts, self._words, self._rest = epoch, words, rest
        self._x = np.asarray(rows.x)
        self._rows = on_all(epoch.trainer.devices, rows.without_x())
        self._steps, self._pieces = int(epoch.steps(rows)), int(epoch.parts(rows))
        self._positions = np.asarray(rows.validation)[: int(rows.n_validation)]
        members, step = len(state.weights), self._x[:1].nbytes * epoch.trainer.batch
        block = min(memory / BLOCKS_AT_ONCE, LARGEST_BLOCK)
        self._size = int(np.clip(block // (members * step), 1, max(self._steps, self._pieces)))
        self._compile(state, members)

    def _compile(self, state: State, members: int) -> None:
        parts, batch, devices = self._parts, self._parts.trainer.batch, self._parts.trainer.devices
        each = jax.vmap if members > 1 else alone

        def begin(words, rows, epoch):
            for_order, for_steps = parts.keys(words, epoch, members)
            return each(lambda key: parts.order(key, rows))(for_order), for_steps

        def train(rest, rows, orders, keys, carry, drops, x, first, count):
            def member(order, key, carry, drops, x):
                def step(i, carry):
                    here = jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
                    return parts.step(first + i, carry, rest, rows, order, key, drops, here)

                return jax.lax.fori_loop(0, count, step, carry)

            return each(member)(orders, keys, carry, drops, x)

        def validate(rest, rows, averages, sums, x, first, count):
            def member(weights, sums):
                def part(i, sums):
                    here = jax.lax.dynamic_index_in_dim(x, i, keepdims=False)
                    return parts.part(first + i, sums, weights, rest, rows, here)

                return jax.lax.fori_loop(0, count, part, sums)

            return each(member)(averages, sums)

        def finish(state, carry, sums, steps, limits):
            validation = sums[0] / sums[1]
            state = after_epoch(limits, state, carry, validation)
            return state, (carry.total / steps, validation), ~parts.active(state, limits)

        self.compile_seconds, rows, rest = 0.0, self._rows, self._rest

        def made(function, *arguments):
            program, seconds = compiled(f"stream: {function.__name__}", function, parts, *arguments)
            self.compile_seconds += seconds
            return program

        number, event = np.int32(0), self._x.shape[1:]
        carry, sums = self._start(state)
        x: Any = np.zeros((members, self._size, batch, *event), np.float32)
        if devices is not None:  # where it lies is part of the program
            x = in_parts(devices, x, axis=2)
        self._begin = made(begin, self._words, rows, state.epoch)
        orders, keys = self._begin(self._words, rows, state.epoch)
        self._run = made(train, rest, rows, orders, keys, carry, state.drops, x, number, number)
        one = x[0] if devices is None else in_parts(devices, x[0], axis=1)
        self._validate = made(validate, rest, rows, state.average, sums, one, number, number)
        self._finish = made(finish, state, carry, sums, np.float32(1), limits_of(1, 1, 1))

    def _start(self, state: State) -> tuple[Carry, Any]:
        zeros = jax.tree.map(lambda a: jnp.broadcast_to(a, len(state.weights)), no_losses())
        return Carry.of(state), zeros

    def __call__(self, state: State, epochs: int, limits: Limits):
        """The state after one epoch, whatever is asked for, its losses, and whether training has ended."""
        del epochs
        orders, keys = self._begin(self._words, self._rows, state.epoch)
        carry, sums = self._start(state)
        numbers = np.asarray(orders)
        for x, first, count in self._blocks(numbers, self._steps):
            carry = self._run(
                self._rest, self._rows, orders, keys, carry, state.drops, x, np.int32(first), np.int32(count)
            )
            jax.block_until_ready(carry.total)  # the next block is on its way; a third would take memory
        for x, first, count in self._blocks(self._positions, self._pieces):
            sums = self._validate(
                self._rest, self._rows, carry.average, sums, x, np.int32(first), np.int32(count)
            )
            jax.block_until_ready(sums)
        state, (training, validation), ended = self._finish(
            state, carry, sums, np.float32(self._steps), limits
        )
        return state, (training[None], validation[None]), ended

    def _blocks(self, numbers: np.ndarray, minibatches: int) -> Iterator[tuple[Any, int, int]]:
        """x of consecutive minibatches of these rows (last axis), the first one's number, and how many."""
        trainer, size = self._parts.trainer, self._size

        def block(first: int):
            # Beyond the last row the list begins again, as validation has it.
            place = np.arange(first * trainer.batch, (first + size) * trainer.batch) % numbers.shape[-1]
            index = numbers[..., place.reshape(size, trainer.batch)]
            x = in_parts(trainer.devices, self._x[index], axis=index.ndim - 1)
            return x, first, min(size, minibatches - first)

        return one_ahead(block, range(0, minibatches, size))


def one_ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """What `make` makes of every item, the next one already being made in a thread."""
    with ThreadPoolExecutor(1) as thread:
        waiting = None
        for item in items:
            following = thread.submit(make, item)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
