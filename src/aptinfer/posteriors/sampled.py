r"""Posteriors that are known up to a constant, and sampled: a learned likelihood, or ratio, times the prior.

    p(z | x_o) = L(x_o, z) p(z) / Z,      Z = ∫ L(x_o, z) p(z) dz

Samplers draw without Z. It is estimated only when a density is asked for, by importance sampling from a
mixture that is fitted to the draws.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Array, Float

from aptinfer.errors import SamplingError, SamplingWarning
from aptinfer.keys import Key
from aptinfer.posteriors.base import Posterior
from aptinfer.posteriors.targets import target_in
from aptinfer.samplers.draws import Draws, Sampler
from aptinfer.samplers.evidence import log_evidence
from aptinfer.samplers.target import log_densities
from aptinfer.spaces import Frame

MOST_UNKNOWN = 0.02  # share of draws where a likelihood may not have learned
BLOCK = 1000  # draws that are made at once by samplers that do not say
FIRST = Key((0,))  # of the draws that the posterior's own numbers and the next proposal come from: `seed=0`
_EVIDENCE = Key((1,))


class Model(Protocol):
    """A pytree that knows log L(x, z) up to a constant, for one z, in compiled programs."""

    def log_likelihood(self, x: Any, z: Float[Array, " dim"]) -> Float[Array, ""]: ...


@dataclass(frozen=True, eq=False, repr=False)
class SampledPosterior(Posterior):
    """A learned likelihood at x_o, times the prior.

    Draws are made in blocks, each with a key of its own: `sample(n, seed=s)` is the first `n` of what seed
    `s` gives, however often and in whatever order it is asked for. Blocks of seed 0 and of the seed that was
    used last are kept.

    Attributes:
        frame, observation, event: as in `Posterior`.
        scaling: from x to what the model sees.
        model: the learned likelihood.
        sampler: one of `apt.samplers`.
        start: where a sampler with a state, such as `SingleSlice`, goes on.
    """

    frame: Frame
    scaling: Callable[[np.ndarray], np.ndarray]
    model: Model
    sampler: Sampler
    observation: np.ndarray
    event: tuple[int, ...]
    start: Any = None
    _kept: dict[Key, list[Draws]] = field(default_factory=dict, init=False)

    def at(self, observation):
        return replace(self, observation=observation, start=None)

    @property
    def r_hat(self) -> float:
        """How well chains agree, the worst over parameters: 1 is perfect. NaN for samplers without chains."""
        return self.first_draws.r_hat

    @property
    def effective_size(self) -> float:
        """How many independent draws the sampler's first block is worth, for the worst parameter."""
        return self.first_draws.effective

    @property
    def first_draws(self) -> Draws:
        """What the sampler answered first, with seed 0."""
        return self._blocks(FIRST, 1)[0]

    @cached_property
    def log_normaliser(self) -> tuple[float, float]:
        """log Z, in the coordinates and units that the model sees, and its standard error."""
        found = log_evidence(_EVIDENCE, self._target, self._params, self.first_draws.values)
        if not np.isfinite(found).all():
            raise SamplingError(
                "the posterior's normaliser could not be estimated: the learned likelihood is not finite "
                "where its own draws are. Train longer, or with a smaller learning rate: "
                "Trainer(learning_rate=1e-4)."
            )
        return found

    def draw(self, key, n):
        value = np.concatenate([block.values for block in self._blocks(key, n)])[:n]
        return value, self.frame.to_theta(value)

    def log_prob_inside(self, values):
        return log_densities(self._target, self._params, values) - self.log_normaliser[0]

    @cached_property
    def _target(self):
        return target_in(self.frame)

    @cached_property
    def _params(self):
        return self.model, self.scaling(self.single_observation())

    def _blocks(self, key: Key, n: int) -> list[Draws]:
        """Blocks of draws with this key, of at least `n` draws in all."""
        for old in [k for k in self._kept if k not in (FIRST, key)]:
            del self._kept[old]
        blocks = self._kept.setdefault(key, [])
        while sum(len(block.values) for block in blocks) < n:
            state = blocks[-1].state if blocks else self.start
            blocks.append(self._block(key.child(len(blocks)), state))
        return blocks

    def _block(self, key: Key, state: Any) -> Draws:
        size = getattr(self.sampler, "block", BLOCK)
        going_on = {} if state is None else {"state": state}
        draws = self.sampler(key, self._target, self._params, size, **going_on)
        self._warn_of_the_unknown(draws.values)
        if self.frame.always_inside:
            return draws
        # A draw next to an edge may be rounded across it.
        inside = self.frame.prior.contains(self.frame.to_theta(draws.values))
        if not inside.any():
            raise SamplingError("none of the sampler's draws lies inside the prior's support.")
        return replace(draws, values=draws.values[inside])

    def _warn_of_the_unknown(self, values: np.ndarray) -> None:
        """A likelihood that was learned near one posterior may be asked about an x whose own is elsewhere."""
        knows = getattr(self.model, "knows", None)
        unknown = 0.0 if knows is None else float(1 - knows(values).mean())
        if unknown > MOST_UNKNOWN:
            warnings.warn(
                f"{unknown:.0%} of the posterior's draws lie where the likelihood has not learned: it knows "
                f"parameters near the posterior of the run's own observation only. Another x needs a run of "
                f"its own; the run's own needs more rounds; SNL(local=None) learns everywhere.",
                SamplingWarning,
                stacklevel=2,
            )


def check_sampler(method: str, sampler: object) -> None:
    """Refuse what is not a sampler, when a method is built."""
    if inspect.isclass(sampler) or not callable(sampler):
        raise TypeError(
            f"{method} sampler must be settings such as apt.samplers.Automatic() or "
            f"apt.samplers.SingleSlice(); got {sampler!r}."
        )
