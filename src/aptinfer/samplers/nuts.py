"""The no-U-turn sampler of BlackJAX, many chains at once."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from aptinfer.checks import positive_int, suggests_keywords
from aptinfer.keys import Key, as_jax
from aptinfer.precision import precise
from aptinfer.samplers.draws import Draws, Starts, checked, from_chains
from aptinfer.samplers.resampled import Resampled
from aptinfer.samplers.target import Target, log_density, refuse_prior_on_host

RECORDS = 100  # of each chain: at least, for R-hat, and in one call of the compiled program at most


@suggests_keywords
@dataclass(frozen=True)
class NUTS:
    """Hamiltonian chains that tune themselves, for smooth targets in many dimensions.

    The density needs a gradient; trajectories end where it is zero or impossible. A chain does not leave a
    mode that is far from others. Needs BlackJAX: pip install 'aptinfer[nuts]'.

    Args:
        chains: how many run side by side.
        thin: steps per recorded draw.
        warmup: steps in which each chain adapts its step size and its mass matrix.
        doublings: of a trajectory, at most: it has up to 2**doublings gradients.
        start: where chains start: `Resampled()`, the best of many prior draws, or `TemperedSMC()`, which
            finds modes that such draws would miss.
    """

    chains: int = 20
    thin: int = 1
    warmup: int = 300
    doublings: int = 8
    start: Starts = field(default_factory=Resampled)

    def __post_init__(self):
        positive_int("NUTS chains", self.chains, minimum=2)
        positive_int("NUTS thin", self.thin)
        positive_int("NUTS warmup", self.warmup, minimum=20)
        positive_int("NUTS doublings", self.doublings)

    @property
    def block(self) -> int:
        """Draws that one call makes for the price of a single one."""
        return self.chains * RECORDS

    def __call__(self, key: Key, target: Target, params: Any, n: int) -> Draws:
        n = positive_int("n", n)
        refuse_prior_on_host(target, "NUTS")
        _blackjax()
        key_order, key_start, key_warm, key_draw = (key.child(i) for i in range(4))
        # In JAX's default precision, whatever the user chose: BlackJAX computes in no other.
        z = self.start.starts(key_start, target, params, self.chains).values.astype(jnp.result_type(float))
        adapted = _adapt(target, params, key_warm.words(), z, self.warmup, self.doublings)
        records = max(RECORDS, -(-n // self.chains))
        parts, divergent = [], 0
        for start in range(0, records, RECORDS):
            count = min(RECORDS, records - start)
            words = key_draw.child(start).words()
            numbers = (np.int32(self.thin), np.int32(count))
            adapted, buffer, diverged = _steps(target, params, words, adapted, self.doublings, *numbers)
            parts.append(np.asarray(buffer, np.float32)[:count].swapaxes(0, 1))
            divergent += int(diverged)
        chains = np.concatenate(parts, axis=1)
        remedy = f"Thin more, NUTS(thin={4 * self.thin}), or let Automatic() sample."
        return checked(from_chains(key_order, chains, n, {"divergent": divergent}), remedy)


def _blackjax() -> Any:
    try:
        import blackjax
    except ImportError:
        raise ImportError(
            "NUTS needs BlackJAX, which is not installed: pip install 'aptinfer[nuts]'. Automatic() and "
            "Slice() need nothing else."
        ) from None
    return blackjax


class _Adapted(NamedTuple):
    """Chains, one per row, and what each has learned."""

    z: Array
    step_size: Array
    inverse_mass: Array


@eqx.filter_jit
@precise
def _adapt(target: Target, params: Any, words: Any, z: Any, warmup: int, doublings: int) -> _Adapted:
    blackjax = _blackjax()
    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        lambda z: log_density(target, params, z),
        # Posteriors have few and often correlated parameters: a covariance, not only variances, pays.
        is_mass_matrix_diagonal=False,
        max_num_doublings=doublings,
    )

    def chain(key, z):
        (state, learned), _ = adaptation.run(key, z, num_steps=warmup)
        return _Adapted(state.position, learned["step_size"], learned["inverse_mass_matrix"])

    return jax.vmap(chain)(jax.random.split(as_jax(words), z.shape[0]), z)


@eqx.filter_jit
@precise
def _steps(target, params, words, adapted: _Adapted, doublings: int, thin, records):
    """Chains after `records` times `thin` steps, their records, and how many trajectories diverged."""
    blackjax = _blackjax()
    kernel = blackjax.nuts.build_kernel()

    def density(z):
        return log_density(target, params, z)

    states = jax.vmap(lambda z: blackjax.nuts.init(z, density))(adapted.z)

    def step(key, state, step_size, inverse_mass):
        return kernel(key, state, density, step_size, inverse_mass, doublings)

    def record(i, carry):
        key = jax.random.fold_in(as_jax(words), i)

        def once(j, carry):
            states, diverged = carry
            keys = jax.random.split(jax.random.fold_in(key, j), adapted.z.shape[0])
            states, info = jax.vmap(step)(keys, states, adapted.step_size, adapted.inverse_mass)
            return states, diverged + jnp.sum(info.is_divergent, dtype=jnp.int32)

        states, buffer, diverged = carry
        states, diverged = lax.fori_loop(0, thin, once, (states, diverged))
        return states, buffer.at[i].set(states.position), diverged

    buffer = jnp.zeros((RECORDS, *adapted.z.shape), adapted.z.dtype)
    states, buffer, diverged = lax.fori_loop(0, records, record, (states, buffer, jnp.int32(0)))
    return adapted._replace(z=states.position), buffer, diverged
