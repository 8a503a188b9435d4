"""Posteriors that can be sampled and evaluated directly: a trained estimator at an observation.

Work on the device is done in blocks of fixed size, so that any number of samples compiles one program.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import equinox as eqx
import jax
import numpy as np

from aptinfer.errors import SamplingError
from aptinfer.estimators.embeddings import Embedded
from aptinfer.estimators.ensemble import as_members, count_members, each_member, mean_of_densities
from aptinfer.estimators.missing import Imputed, is_masked
from aptinfer.estimators.stack import Stacked
from aptinfer.keys import Key, as_jax
from aptinfer.posteriors.base import Posterior
from aptinfer.precision import precise
from aptinfer.scaling import Scaling
from aptinfer.spaces import Frame

BLOCK = 1024  # values that the device draws or evaluates at once
FEWEST_ACCEPTED = 200  # among as many draws as should bring them, or rejection gives up
ACCEPTANCE_DRAWS = 20_000


@eqx.filter_jit
@precise
def _draw(estimator: Embedded | Stacked, x, words, size):
    """`size` draws from every member: (members, size, dim)."""
    weights, rest = as_members(estimator)
    keys = jax.random.split(as_jax(words), (count_members(estimator), size))

    def member(weights, keys):
        return jax.vmap(eqx.combine(weights, rest)(x).sample)(keys)

    return jax.vmap(member)(weights, keys)


@eqx.filter_jit
@precise
def _members_log_prob(estimator: Embedded | Stacked, x, values):
    """log density of every member at each value: (members, values)."""
    return each_member(estimator, lambda one: jax.vmap(one(x).log_prob)(values))


@eqx.filter_jit
@precise
def _log_prob(estimator: Embedded | Stacked, x, values):
    """log of the members' average density at each value."""
    return mean_of_densities(_members_log_prob(estimator, x, values))


def mean_log_prob(estimator: Embedded | Stacked, x, value):
    """The same at one value, inside a compiled program."""
    return _log_prob(estimator, x, value[None])[0]


@dataclass(frozen=True, eq=False, repr=False)
class DirectPosterior(Posterior):
    """A trained estimator at x_o.

    Attributes:
        frame, observation, event: as in `Posterior`.
        scaling: from x to what the networks see.
        estimator: trained networks, members of an ensemble stacked.
        amortised: whether they know other observations than x_o.
    """

    frame: Frame
    scaling: Scaling
    estimator: Embedded | Stacked
    observation: np.ndarray
    event: tuple[int, ...]
    amortised: bool = True

    def try_out(self):
        dim = self.frame.prior.dim
        drawn = jax.eval_shape(lambda: _draw(self.estimator, self.condition, Key((0,)).words(), 1))
        log_q = jax.eval_shape(
            lambda: _log_prob(self.estimator, self.condition, np.zeros((1, dim), np.float32))
        )
        fits = self.any_length or self.condition.shape == self.event
        if drawn.shape[1:] != (1, dim) or log_q.shape != (1,) or not fits:
            raise ValueError(f"it draws arrays of shape {drawn.shape} and not of {dim} parameters")

    @property
    def condition(self):
        """The observation as the networks see it; a short one padded, so that it needs no other program."""
        x = self.single_observation()
        if x.ndim == 2 and len(x) < self.event[0]:
            x = np.pad(x, ((0, self.event[0] - len(x)), (0, 0)), constant_values=np.nan)
        return self.scaling(x)

    @property
    def missing(self):
        return isinstance(self.estimator.embedding, Imputed)

    @property
    def any_length(self):
        return isinstance(self.estimator.embedding, Imputed) and is_masked(self.estimator.embedding.network)

    def at(self, observation):
        if not self.amortised:
            raise ValueError(
                "this posterior was distilled at one observation and knows no other. Take that which it "
                "was made of, run.posterior.given(x), and distil that."
            )
        return replace(self, observation=observation)

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

    def draw(self, key, n):
        inside_by_design = self.frame.always_inside
        batch = n if inside_by_design else max(n, BLOCK)
        least = self.frame.least_accepted
        values, thetas, found, tried = [], [], 0, 0
        while found < n:
            if tried * least >= FEWEST_ACCEPTED and found < tried * least:
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
        return self._in_blocks(_log_prob, values)

    def members_log_prob(self, values: np.ndarray) -> np.ndarray:
        """The same for every member of an ensemble: (members, values)."""
        return self._in_blocks(_members_log_prob, values)

    def log_prob_inside(self, values):
        return self.log_prob_values(values) - np.log(self.acceptance[0])

    def _in_blocks(self, log_prob, values: np.ndarray) -> np.ndarray:
        out = []
        for start in range(0, len(values), BLOCK):
            part = np.asarray(values[start : start + BLOCK], np.float32)
            padded = np.concatenate([part, np.zeros((BLOCK - len(part), part.shape[1]), np.float32)])
            out.append(np.asarray(log_prob(self.estimator, self.condition, padded))[..., : len(part)])
        return np.concatenate(out, axis=-1).astype(np.float64)

    def _raw(self, key: Key, n: int) -> np.ndarray:
        """`n` values from the estimator, an equal share from every member, in random order."""
        members = count_members(self.estimator)
        each = -(-n // members)
        parts = []
        for start in range(0, each, BLOCK):
            words = key.child(start).words()
            parts.append(np.asarray(_draw(self.estimator, self.condition, words, BLOCK)))
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
