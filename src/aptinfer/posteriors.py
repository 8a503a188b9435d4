"""Posteriors that can be sampled and evaluated directly: a trained estimator at an observation.

NumPy in, NumPy out, in theta. Work on the device is done in blocks of fixed size, so that any number of
samples compiles one program.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import equinox as eqx
import jax
import numpy as np
from jax.scipy.special import logsumexp

from aptinfer.checks import finite_array, numeric_array, positive_int, whole_seed
from aptinfer.errors import SamplingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import as_members, count_members
from aptinfer.keys import Key, as_jax
from aptinfer.scaling import Scaling
from aptinfer.spaces import Frame

BLOCKS = (256, 4096)  # sizes in which the device works; the smallest that is enough is taken
# Rejection gives up after so many draws if fewer than one in so many was accepted.
MAX_DRAWS, MAX_DRAWS_PER_SAMPLE = 200_000, 1000
ACCEPTANCE_DRAWS = 20_000


def block_size(n: int) -> int:
    return next((b for b in BLOCKS if n <= b), BLOCKS[-1])


@eqx.filter_jit
def _draw(estimator: Embedded, x, words, size):
    """`size` draws from every member: (members, size, dim)."""
    weights, rest = as_members(estimator)
    keys = jax.random.split(as_jax(words), (count_members(estimator), size))

    def member(weights, keys):
        return jax.vmap(eqx.combine(weights, rest)(x).sample)(keys)

    return jax.vmap(member)(weights, keys)


@eqx.filter_jit
def _log_prob(estimator: Embedded, x, values):
    """log of the members' average density at each value."""
    weights, rest = as_members(estimator)

    def member(weights):
        return jax.vmap(eqx.combine(weights, rest)(x).log_prob)(values)

    log_q = jax.vmap(member)(weights)
    return logsumexp(log_q, axis=0) - np.float32(np.log(log_q.shape[0]))


@dataclass(frozen=True, eq=False)
class Posterior:
    """The estimate of p(theta | x_o).

    Attributes:
        frame: the coordinates of the estimator and the prior.
        scaling: from x to what the networks see.
        estimator: trained networks, members of an ensemble stacked.
        observation: x_o, or several observations along a first axis.
        event: shape of one observation.
    """

    frame: Frame
    scaling: Scaling
    estimator: Embedded
    observation: np.ndarray
    event: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.frame.prior.names

    @property
    def condition(self):
        """The observation as the networks see it."""
        if self.batched:
            raise ValueError(
                f"this needs a single observation, and the posterior is at {len(self.observation)}. Take "
                f"them one by one: posterior.given(x[i])."
            )
        return self.scaling(self.observation)

    @property
    def batched(self) -> bool:
        """Whether there are several observations."""
        return self.observation.ndim > len(self.event)

    def given(self, x: object) -> "Posterior":
        """The posterior at another observation, or at several along a first axis (amortised)."""
        return replace(self, observation=check_observation("x", x, self.event, several=True))

    def sample(self, n: int = 1000, *, seed: int = 0) -> np.ndarray:
        """`n` draws of theta: (n, dim), or (observations, n, dim) for several observations.

        Among several, observation i has the draws that it alone would have with `seed + i`.
        """
        n, seed = positive_int("n", n), whole_seed(seed)
        if self.batched:
            one = [p.sample(n, seed=seed + i) for i, p in enumerate(self._each())]
            return np.stack(one)
        return self.draw(Key((seed,)), n)[1]

    def log_prob(self, theta: object) -> np.ndarray:
        """log q(theta | x_o), normalised over the prior's support; -inf outside it.

        theta: (dim,) or (n, dim); for several observations (observations, n, dim) or (n, dim) for all.
        """
        theta = numeric_array("theta", theta)
        dim = self.frame.prior.dim
        if theta.ndim == 0 or theta.shape[-1] != dim or theta.ndim > 2 + self.batched:
            raise ValueError(
                f"theta must have shape ({dim},) or (n, {dim}) for parameters {self.names}; got "
                f"{theta.shape}."
            )
        if self.batched:
            each = theta if theta.ndim == 3 else [theta] * len(self.observation)
            if len(each) != len(self.observation):
                raise ValueError(
                    f"theta has shape {theta.shape}, but there are {len(self.observation)} observations. "
                    f"Give (n, {dim}) for all of them or ({len(self.observation)}, n, {dim})."
                )
            return np.stack([p.log_prob(t) for p, t in zip(self._each(), each, strict=True)])
        flat = np.atleast_2d(theta)
        out = np.full(len(flat), -np.inf)
        inside = self.frame.prior.contains(flat)
        if inside.any():
            value = self.frame.from_theta(flat[inside])
            volume = self.frame.log_volume(value, flat[inside])
            out[inside] = self.log_prob_inside(value) + volume
        return out.reshape(theta.shape[:-1])

    def map(self, *, seed: int = 0) -> np.ndarray:
        """The parameters of highest posterior density."""
        from aptinfer.optimise import highest_density

        seed = whole_seed(seed)
        if self.batched:
            return np.stack([p.map(seed=seed) for p in self._each()])
        return highest_density(self, seed)

    def mean(self) -> np.ndarray:
        return self._summary_draws.mean(axis=-2)

    def std(self) -> np.ndarray:
        return self._summary_draws.std(axis=-2)

    def quantiles(self, probabilities=(0.05, 0.5, 0.95)) -> np.ndarray:
        """Marginal quantiles: (probabilities, dim), or (probabilities, observations, dim)."""
        q = finite_array("probabilities", probabilities)
        if ((q < 0) | (q > 1)).any():
            raise ValueError(f"probabilities must lie between 0 and 1, got {probabilities!r}.")
        return np.quantile(self._summary_draws, q, axis=-2)

    @cached_property
    def acceptance(self) -> tuple[float, float]:
        """Share of the estimator's mass inside the prior's support, and its standard error.

        Exactly (1, 0) in latent space. In theta space it is estimated from a fixed number of draws.
        """
        if self.frame.always_inside:
            return 1.0, 0.0
        value = self.raw_values(ACCEPTANCE_DRAWS)
        inside = self.frame.prior.contains(self.frame.to_theta(value))
        rate = float(inside.mean())
        if rate == 0:
            raise SamplingError(self._gave_up(0, ACCEPTANCE_DRAWS))
        return rate, float(np.sqrt(rate * (1 - rate) / ACCEPTANCE_DRAWS))

    def __repr__(self) -> str:
        shape = f"{len(self.observation)} observations" if self.batched else "one observation"
        return f"Posterior({', '.join(self.names)}; at {shape})"

    def draw(self, key: Key, n: int) -> tuple[np.ndarray, np.ndarray]:
        """`n` values and their theta, all inside the support, in bounded time."""
        inside_by_design = self.frame.always_inside
        batch = n if inside_by_design else max(n, BLOCKS[-1])
        values, thetas, found, tried = [], [], 0, 0
        while found < n:
            if tried >= MAX_DRAWS and found * MAX_DRAWS_PER_SAMPLE < tried:
                raise SamplingError(self._gave_up(found, tried))
            value = self._raw(key.child(tried), batch)
            theta = self.frame.to_theta(value)
            if not inside_by_design:
                inside = self.frame.prior.contains(theta)
                value, theta = value[inside], theta[inside]
            values.append(value)
            thetas.append(theta)
            found, tried = found + len(value), tried + batch
        return np.concatenate(values)[:n], np.concatenate(thetas)[:n]

    def raw_values(self, n: int) -> np.ndarray:
        """`n` values from the estimator, wherever they fall."""
        return self._raw(Key((0,)), n)

    def log_prob_values(self, values: np.ndarray) -> np.ndarray:
        """log q(value | x_o) in the estimator's own coordinates."""
        size, out = block_size(len(values)), []
        for start in range(0, len(values), size):
            part = np.asarray(values[start : start + size], np.float32)
            padded = np.concatenate([part, np.zeros((size - len(part), part.shape[1]), np.float32)])
            out.append(np.asarray(_log_prob(self.estimator, self.condition, padded))[: len(part)])
        return np.concatenate(out).astype(np.float64)

    def log_prob_inside(self, values: np.ndarray) -> np.ndarray:
        """The same, normalised over the prior's support, for values inside it."""
        return self.log_prob_values(values) - np.log(self.acceptance[0])

    def _each(self):
        return [replace(self, observation=x) for x in self.observation]

    @cached_property
    def _summary_draws(self) -> np.ndarray:
        return self.sample(10_000, seed=0)

    def _raw(self, key: Key, n: int) -> np.ndarray:
        """`n` values from the estimator, an equal share from every member, in random order."""
        members = count_members(self.estimator)
        each = -(-n // members)
        size = block_size(each)
        parts = []
        for start in range(0, each, size):
            words = key.child(start).words()
            parts.append(np.asarray(_draw(self.estimator, self.condition, words, size)))
        draws = np.concatenate(parts, axis=1)[:, :each].swapaxes(0, 1)
        draws = draws.reshape(-1, draws.shape[-1])
        if members == 1:
            return draws[:n]
        order = key.generator().permutation(len(draws))
        return draws[order[:n]]

    def _gave_up(self, found: int, tried: int) -> str:
        return (
            f"only {found} of {tried} draws from the estimator lie inside the prior's support "
            f"(acceptance rate {found / tried:.2g}). Learn in latent space, where none is lost "
            f"(space=apt.Latent(), with a prior that has a bijection: apt.Prior, apt.box, apt.gaussian or "
            f"apt.BijectivePrior), or train longer."
        )


def check_observation(
    name: str, x: object, event: tuple[int, ...] | None, *, several: bool = False
) -> np.ndarray:
    """x as a finite float64 array of the simulator's output shape."""
    array = np.atleast_1d(finite_array(name, x))
    if event is None:
        return array
    if array.shape == event or (several and array.shape[1:] == event and len(array)):
        return array
    raise ValueError(
        f"{name} has shape {array.shape}, but the simulator returns x of shape {event}. "
        f"Give an observation of that shape" + (" or several along a first axis." if several else ".")
    )
