r"""FMPE (Wildberger, Dax et al. 2023): regress the velocity that carries N(0, I) to the posterior.

    minimise  E | v(t, z_t, x) - (z_1 - z_0) |^2,    z_t = (1 - t) z_0 + t z_1,    p(t) proportional to t^a,

over simulated pairs (z_1, x) of the prior, noise z_0 ~ N(0, I) and times t. No density is needed to train, so
the network may be any function; drawing and evaluating solve a differential equation
(`estimators/velocity.py`).
"""

from dataclasses import dataclass, field
from math import inf
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aptinfer.checks import suggests_keywords
from aptinfer.estimators.ensemble import split_ensemble
from aptinfer.estimators.velocity import Carried, VelocityNetwork
from aptinfer.keys import as_jax
from aptinfer.methods.choices import check_choices, with_defaults
from aptinfer.methods.learning import Learned, Task, direct, train_network
from aptinfer.methods.losses import Batch, Loss
from aptinfer.posteriors import DirectPosterior
from aptinfer.protocols import Proposal
from aptinfer.spaces import Frame, Latent, Space
from aptinfer.train import Trainer

FIXED = np.zeros(2, np.uint32)  # words of the key of validation's noise
GOLDEN = np.uint32(2654435769)  # the golden ratio's fraction in units of 2^-32: products wrap round exactly
QUESTIONS = 8  # times and noises that a validation row is asked


@dataclass(frozen=True)
class FlowMatching(Loss):
    """|v(t, z_t, x) - (z_1 - z_0)|^2 with a time and a noise for each row.

    A batch's times are one random number and its equal shifts, which cover [0, 1] evenly. Validation asks
    every row the same questions in every epoch: times of a golden-ratio sequence, and noise that its position
    decides.
    """

    exponent: float = 0.0

    def __call__(self, estimator, batch):
        times, noise = self.questions(batch)

        def row(x, value, times, noise):
            q = estimator(x)
            assert isinstance(q, Carried)  # FMPE refuses other estimators when it is built

            def error(t, z_0):
                return jnp.sum((q.velocity(t, (1 - t) * z_0 + t * value) - (value - z_0)) ** 2)

            return jnp.mean(jax.vmap(error)(times, noise))

        return jax.vmap(row)(batch.x, batch.candidates[:, 0], times, noise)

    def questions(self, batch: Batch) -> tuple[Float[Array, "batch asked"], Float[Array, "batch asked dim"]]:
        """Times and noises: random ones in training, fixed ones in validation."""
        rows, _, dim = batch.candidates.shape
        if batch.key is None:
            assert batch.position is not None
            place = batch.position[:, None] * QUESTIONS + np.arange(QUESTIONS)
            uniform = (place.astype(jnp.uint32) * GOLDEN >> 8).astype(jnp.float32) * np.float32(2**-24)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(as_jax(FIXED), batch.position)
            noise = jax.vmap(lambda key: jax.random.normal(key, (QUESTIONS, dim), jnp.float32))(keys)
        else:
            for_times, for_noise = jax.random.split(batch.key)
            shift = jax.random.uniform(for_times, (), jnp.float32)
            uniform = ((shift + np.arange(rows, dtype=np.float32) / np.float32(rows)) % 1)[:, None]
            noise = jax.random.normal(for_noise, (rows, 1, dim), jnp.float32)
        return uniform ** np.float32(1 / (1 + self.exponent)), noise


@suggests_keywords
@dataclass(frozen=True)
class FMPE:
    """Flow matching posterior estimation, in a single round from the prior: amortised over observations.

    Args:
        estimator: `VelocityNetwork(...)`, or an `Ensemble` of them.
        embedding, space, trainer: as for `APT`; the loss is noisy, so weights are averaged for longer.
        exponent: times are drawn with density proportional to t^exponent; 0: uniform. The larger, the more of
            them near the posterior itself, where sharp ones are told from blurred ones.
    """

    estimator: Any = field(default_factory=VelocityNetwork)
    embedding: Any = None
    space: Space = field(default_factory=Latent)
    trainer: Trainer = field(default_factory=lambda: Trainer(average=0.999))
    exponent: float = 1.0

    one_round = True
    embeds_x = True

    def __post_init__(self):
        if not isinstance(split_ensemble(self.estimator)[0], VelocityNetwork):
            raise TypeError(
                f"FMPE estimator must be apt.VelocityNetwork(...) or an apt.Ensemble of it; got "
                f"{self.estimator!r}. For densities such as apt.NSF() use apt.NPE(estimator=...)."
            )
        check_choices(self, velocity=True)
        if not isinstance(self.exponent, Real) or not -1 < self.exponent < inf:
            raise ValueError(f"FMPE exponent must be a finite number above -1, got {self.exponent!r}.")

    def settled(self, frame: Frame) -> "FMPE":
        del frame
        return with_defaults(self)

    def learn(self, task: Task, memory: None) -> Learned:
        network, history = train_network(task, self, FlowMatching(float(self.exponent)), memory)
        return direct(task, network, history)

    def propose(self, posterior: DirectPosterior, number: int) -> Proposal:
        raise ValueError("FMPE is a one-round method: use method=apt.APT() for several rounds.")
