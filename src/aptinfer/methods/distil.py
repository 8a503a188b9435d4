"""A flow with the shape of a posterior on the prior's support, and little mass elsewhere (paper, appendix).

A posterior learned in theta space may have most of its mass outside the support: every draw then costs many.
Its draws inside are all that counts. A new estimator, trained on them by maximum likelihood, needs few.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from aptinfer.checks import positive_int, suggests_keywords, whole_seed
from aptinfer.estimators.ensemble import build_members
from aptinfer.keys import Key
from aptinfer.methods.choices import default_estimator
from aptinfer.methods.learning import fitting
from aptinfer.methods.losses import MaximumLikelihood
from aptinfer.posteriors import DirectPosterior
from aptinfer.protocols import Simulations
from aptinfer.rows import training_rows
from aptinfer.train import Trainer


class Blind(eqx.Module):
    """An embedding that tells nothing of x: there is only one."""

    def __call__(self, x: Float[Array, "*event"]) -> Float[Array, " features"]:
        del x
        return jnp.zeros(1, jnp.float32)


@suggests_keywords
def distil(
    posterior: DirectPosterior,
    *,
    estimator: Any = None,
    draws: int = 10_000,
    trainer: Trainer | None = None,
    seed: int = 0,
) -> DirectPosterior:
    """The posterior at its one observation, and no other, learned anew from draws inside the prior's support.

    Args:
        posterior: of a run in theta space, or of a prior without a bijection.
        estimator: settings of the new density; the default one if None.
        draws: from the posterior, to train on.
        trainer: optimiser and stopping.
        seed: equal seeds give equal results.
    """
    if not isinstance(posterior, DirectPosterior):
        raise TypeError(
            f"distil takes the posterior of a run with apt.APT(), apt.NPE(), apt.SNPEA() or apt.SNPEB(); got "
            f"{posterior!r}. Other posteriors lie inside the prior's support as they are."
        )
    draws = positive_int("draws", draws, minimum=100)
    key, frame = Key((whole_seed(seed),)), posterior.frame
    posterior.single_observation()
    value, theta = posterior.draw(key.child(0), draws)
    numbers, nothing = np.zeros(draws, np.int32), np.zeros((draws, 1))
    rows = Simulations(value.astype(np.float32), theta, numbers, numbers, nothing, np.ones(draws, bool))
    trainer = fitting(trainer or Trainer(), rows)
    data = training_rows(
        rows,
        frame.log_prior(value, theta),
        None,
        capacity=draws,
        validates=trainer.validates,
        contrasts=False,
        rng=key.child(1).generator(),
    )
    built = build_members(key.child(2), estimator or default_estimator(), Blind(), frame.prior.dim, (1,))
    trained, _ = trainer(key.child(3), built, MaximumLikelihood(), data)
    return replace(posterior, estimator=trained, amortised=False)
