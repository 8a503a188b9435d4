"""Predators and prey, the Markov jump process behind the Lotka-Volterra problems, simulated exactly.

With X predators and Y prey, four reactions happen at random, theta being the logarithms of their rates:

    X -> X + 1    at the rate  exp(theta_1) X Y        a predator is born
    X -> X - 1    at the rate  exp(theta_2) X          a predator dies
    Y -> Y + 1    at the rate  exp(theta_3) Y          a prey is born
    Y -> Y - 1    at the rate  exp(theta_4) X Y        a prey is eaten

Gillespie's algorithm: the time to the next event is exponential with the sum of the rates, and the event is
one of the four with probability proportional to its rate. Starting from 50 predators and 100 prey, the state
is recorded at the times 0, 0.2, ..., 30: each time the state after the first event at or beyond it, which is
how the observations were made. Where all rates are zero the state stays as it is. A simulation that needs
more than a limited number of events has failed, and its series is NaN.

Some draws from the prior need thousands of times the events of others. So the draws of a batch wait in a
queue for a few hundred lanes that are computed side by side: events are made in blocks, and after each block
a lane whose draw has ended takes the next one. A draw's random numbers come from its own key, block by
block, so that its outcome does not depend on its neighbours.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["START", "STEP", "STEPS", "jump_process"]

START = (50.0, 100.0)  # predators, prey
STEP, STEPS = 0.2, 150  # recorded at 0, STEP, ..., STEPS x STEP
BLOCK = 200  # events between two looks at the queue
LANES = 256


class State(NamedTuple):
    """Where a simulation stands.

    Time is kept as the number of recording times passed and the time since the last one: a sum of
    thousands of small intervals would lose them in single precision.
    """

    predators: Array
    prey: Array
    passed: Array
    since: Array
    events: Array


class Lane(NamedTuple):
    """The draw that a lane works on: its row in the batch, blocks of events so far, state and record."""

    row: Array
    block: Array
    state: State
    series: Array


@functools.cache
def jump_process(limit: int) -> Callable[[Array, Array], Array]:
    """A function of (key, theta) that returns one series (151, 2), NaN after more than `limit` events.

    `jax.vmap` of it is the queue.
    """

    @jax.custom_batching.custom_vmap
    def simulate(key, theta):
        return _queue(key[None], theta[None], limit)[0]

    @simulate.def_vmap
    def _(size, batched, key, theta):
        keys, thetas = (
            value if along else jnp.broadcast_to(value, (size, *value.shape))
            for value, along in zip((key, theta), batched, strict=True)
        )
        return _queue(keys, thetas, limit), True

    return simulate


def _queue(keys: Array, thetas: Array, limit: int) -> Array:
    """The series of every row, (rows, 151, 2)."""
    rows = len(thetas)
    lanes = min(rows, LANES)

    def advance(lane):
        row = jnp.minimum(lane.row, rows - 1)
        key = jax.random.fold_in(keys[row], lane.block)
        state, series = _block(key, jnp.exp(thetas[row].astype(jnp.float32)), lane.state, lane.series)
        return Lane(lane.row, lane.block + 1, state, series)

    def turn(carry):
        lane, waiting, out, _ = carry
        lane = jax.vmap(advance)(lane)
        ended = (lane.state.passed >= STEPS) | (lane.state.events > limit)
        series = jnp.where((lane.state.events > limit)[:, None, None], jnp.nan, lane.series)
        out = out.at[jnp.where(ended, lane.row, rows)].set(series, mode="drop")
        following = waiting + jnp.cumsum(ended, dtype=jnp.int32) - 1

        def choose(new, old):
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        lane = jax.tree.map(choose, jax.vmap(_fresh)(following), lane)
        # Beyond the last row, lanes repeat it for nothing: what they find is dropped.
        return lane, following[-1] + 1, out, jnp.all(lane.row >= rows)

    first = jax.vmap(_fresh)(jnp.arange(lanes, dtype=jnp.int32))
    out = jnp.zeros((rows, STEPS + 1, 2), jnp.float32)
    return jax.lax.while_loop(lambda c: ~c[3], turn, (first, jnp.int32(lanes), out, jnp.bool(False)))[2]


def _fresh(row: Array) -> Lane:
    """A lane at the beginning of a row."""
    zero, count = jnp.float32(0), jnp.int32(0)
    state = State(jnp.float32(START[0]), jnp.float32(START[1]), count, zero, count)
    return Lane(row, count, state, jnp.tile(jnp.array(START, jnp.float32), (STEPS + 1, 1)))


def _block(key: Array, rates: Array, state: State, series: Array) -> tuple[State, Array]:
    """BLOCK events, and the recording times that they pass."""
    uniform = jax.random.uniform(key, (2, BLOCK), jnp.float32)
    exponential = -jnp.log1p(-uniform[1])
    before = state.passed
    state, path = jax.lax.scan(functools.partial(_event, rates), state, (uniform[0], exponential))
    times = jnp.arange(STEPS + 1, dtype=jnp.int32)
    at = jnp.searchsorted(path.passed, times)  # the first event that reaches each time
    reached = (times > before) & (at < BLOCK)
    at = jnp.minimum(at, BLOCK - 1)
    states = jnp.stack([path.predators[at], path.prey[at]], axis=1)
    return state, jnp.where(reached[:, None], states, series)


def _event(rates: Array, state: State, noise: tuple[Array, Array]) -> tuple[State, State]:
    """The next event. After the last recording time it changes nothing that is read."""
    choice, wait = noise
    x, y = state.predators, state.prey
    born = rates[0] * x * y
    died = born + rates[1] * x
    bred = died + rates[2] * y
    total = bred + rates[3] * x * y
    alive = total > 0
    since = state.since + jnp.where(alive, wait / total, jnp.inf)
    steps = jnp.minimum(jnp.floor(since / np.float32(STEP)), STEPS)
    choice = choice * total
    predators = jnp.where(choice < born, x + 1, jnp.where(choice < died, x - 1, x))
    prey = jnp.where(choice < died, y, jnp.where(choice < bred, y + 1, y - 1))
    counted = alive & (state.passed < STEPS)
    state = State(
        jnp.where(alive, predators, x),
        jnp.where(alive, prey, y),
        jnp.minimum(state.passed + steps.astype(jnp.int32), STEPS),
        since - steps * np.float32(STEP),
        state.events + counted.astype(jnp.int32),
    )
    return state, state
